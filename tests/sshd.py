"""A real sshd on loopback, in which logins find the fakes of schedulers on their PATH."""

import os
import shlex
import shutil
import socket
import subprocess
import time
from pathlib import Path

from needs import lack
from ports import free_port

FAKES = Path(__file__).resolve().parent / "fakes"
LIMIT_SECONDS = 120
NOISE = "Welcome! You have 3 messages."


def sshd_program():
    """Give the path of sshd; a test that needs it skips without, and fails in CI."""
    found = shutil.which("sshd", path=f"{os.environ['PATH']}:/usr/sbin:/usr/local/sbin")
    if found is None or shutil.which("ssh") is None:
        lack("no sshd here: apt-get install openssh-server openssh-client")
    return found


class SshServer:
    """An sshd with keys and a configuration of its own, and an ``ssh`` that knows it.

    Logins have a home of their own, whose profile talks, and puts the fake ``flux`` on PATH.
    """

    host = "127.0.0.1"

    def __init__(self, folder):
        self.folder = folder
        self.home = folder / "home"
        self.log = folder / "sshd.log"
        self._process = None
        self._real_ssh = shutil.which("ssh")
        program = sshd_program()
        for name in ("home", "bin", "flux"):
            (folder / name).mkdir()
        for name in ("host", "key", "stranger"):
            argv = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", folder / name]
            subprocess.run(argv, check=True, timeout=LIMIT_SECONDS, capture_output=True)
        shutil.copy(folder / "key.pub", folder / "authorized_keys")
        self.profile(
            PATH=f"{FAKES}:{os.environ['PATH']}",
            FAKE_FLUX=str(folder / "flux"),
            OF_THE_PROFILE="yes",
            XDG_CACHE_HOME=str(folder / "cache there"),
        )
        self.port = free_port(self.host)
        self.knows(folder / "host.pub")
        (folder / "ssh_config").write_text(
            f"UserKnownHostsFile {shlex.quote(str(folder / 'known_hosts'))}\n"
            "GlobalKnownHostsFile /dev/null\nIdentityAgent none\n"
        )
        wrapper = folder / "bin" / "ssh"
        wrapper.write_text(
            f'#!/bin/sh\nexec {self._real_ssh} -F {shlex.quote(str(folder / "ssh_config"))} "$@"\n'
        )
        wrapper.chmod(0o700)
        self._argv = [program, "-D", "-e", "-f", folder / "sshd_config"]
        self._configure()
        self.start()

    def _configure(self):
        settings = {
            "Port": self.port,
            "ListenAddress": self.host,
            "HostKey": self.folder / "host",
            "PidFile": "none",
            "AuthorizedKeysFile": self.folder / "authorized_keys",
            "StrictModes": "no",
            "UsePAM": "no",
            "PasswordAuthentication": "no",
            "KbdInteractiveAuthentication": "no",
            "PermitRootLogin": "prohibit-password",
            "SetEnv": f"HOME={self.home}",
            "LogLevel": "VERBOSE",
        }
        lines = [f"{name} {value}\n" for name, value in settings.items()]
        (self.folder / "sshd_config").write_text("".join(lines))

    def start(self):
        if os.getuid() == 0:  # sshd wants it there for its unprivileged part
            Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(self._argv, stdin=subprocess.DEVNULL, stderr=log)
        deadline = time.monotonic() + LIMIT_SECONDS
        while True:
            try:
                socket.create_connection((self.host, self.port), timeout=1).close()
            except OSError:
                assert self._process.poll() is None, self.log.read_text()
                assert time.monotonic() < deadline, self.log.read_text()
                time.sleep(0.05)
            else:
                return

    def stop(self):
        """End it; connections that were made go on."""
        self._process.terminate()
        self._process.wait(LIMIT_SECONDS)

    def profile(self, **variables):
        lines = [f"export {name}={shlex.quote(value)}\n" for name, value in variables.items()]
        talk = f"echo {shlex.quote(NOISE)}\necho {shlex.quote(NOISE)} >&2\n"
        (self.home / ".bash_profile").write_text(talk + "".join(lines))

    def knows(self, public_key):
        """Have the client know a host key; None for no key."""
        text = ""
        if public_key is not None:
            kind, key = public_key.read_text().split()[:2]
            text = f"[{self.host}]:{self.port} {kind} {key}\n"
        (self.folder / "known_hosts").write_text(text)

    def variables(self, **more):
        """Give the environment of a submitter."""
        return {
            "PATH": f"{self.folder / 'bin'}:{os.environ['PATH']}",
            "EXAMLOPS_HPC_SSH_HOST": self.host,
            "EXAMLOPS_HPC_SSH_PORT": str(self.port),
            "EXAMLOPS_HPC_SSH_KEY": str(self.folder / "key"),
            **more,
        }

    def logged(self, words):
        """Count the lines of its log that hold these words."""
        return sum(words in line for line in self.log.read_text().splitlines())

    @property
    def logins(self):
        return self.logged("Accepted publickey")

    @property
    def sessions(self):
        return self.logged("Starting session")
