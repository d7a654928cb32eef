"""What OpenSSH complains of, told with the remedy; whether it may go better by itself."""

from __future__ import annotations

from examlops_dagster.errors import LaunchError
from examlops_dagster.schedulers.ssh_settings import SshSettings
from examlops_dagster.settings import HPC_SSH_HOST, SSH_AUTO_ADD_HOST_KEYS

_MISTAKES = {
    "REMOTE HOST IDENTIFICATION HAS CHANGED": (
        "its host key is another one than before → if that is meant: ssh-keygen -R {host}"
    ),
    "host key is known": (
        "its host key is not known here → check it once by hand: {by_hand} "
        f"(or set {SSH_AUTO_ADD_HOST_KEYS}=1, which trusts a host that was never seen)"
    ),
    "Host key verification failed": "its host key cannot be verified → look at it: {by_hand}",
    "Permission denied": (
        "it refused the login → EXAMLOPS_HPC_SSH_USER and EXAMLOPS_HPC_SSH_KEY name the user and "
        "a key without a passphrase (or one that ssh-agent holds); try: {by_hand}"
    ),
    "Too many authentication failures": (
        "it refused the login before the right key came → EXAMLOPS_HPC_SSH_KEY names the one key"
    ),
    "Could not resolve hostname": f"there is no such host → correct {HPC_SSH_HOST}",
    "UNPROTECTED PRIVATE KEY FILE": "others may read the key → chmod 600 {key}",
    "invalid format": "the key cannot be read → EXAMLOPS_HPC_SSH_KEY names a private key",
    "Bad owner or permissions": "ssh_config may be written by others → mend its permissions",
    "Bad configuration option": "ssh_config has an option that ssh does not know",
}
"""What ssh says, and the remedy; the first that is found holds."""


def connection_error(settings: SshSettings, said: str) -> LaunchError:
    """Give the error of a connection that did not come about, or was lost.

    Parameters
    ----------
    said
        What ssh wrote on stderr.
    """
    last = " / ".join(line.strip() for line in said.splitlines() if line.strip()) or "no reason"
    port = f" -p {settings.port}" if settings.port else ""
    key = f" -i {settings.key}" if settings.key else ""
    by_hand = f"ssh{port}{key} {settings.destination} true"
    for words, remedy in _MISTAKES.items():
        if words in said:
            told = remedy.format(by_hand=by_hand, host=settings.host, key=settings.key)
            return LaunchError(f"no connection to {settings.destination}: {told} (ssh: {last})")
    return LaunchError(f"the connection to {settings.destination} failed: {last}", transient=True)
