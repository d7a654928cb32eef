"""Runs commands on another host with the system's OpenSSH client, over one connection for all.

The connection is shared by all processes of this user (ControlMaster) and ends ten minutes after
its last command. A command goes to a login shell (``bash -l``), so that it has the environment
which the site's profiles make, module paths too. Its words and variables travel on stdin, where
no list of processes shows them. Marks around what it prints tell it from what profiles print, and
its own exit code from the end of a connection: without the last mark nothing is known.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import os
import re
import secrets
import shlex
import signal
import stat
import subprocess
import tempfile
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, BinaryIO

from examlops_dagster.errors import LaunchError
from examlops_dagster.schedulers.base import SIGNALLED
from examlops_dagster.schedulers.commands import (
    OF_QUERIES,
    Answer,
    cleaning_script,
    command_timeout,
)
from examlops_dagster.schedulers.ssh_errors import connection_error
from examlops_dagster.schedulers.ssh_settings import SshSettings

CONNECT_SECONDS = 15
_ALIVE_SECONDS = 15
_PERSIST_SECONDS = 600
_AT_ONCE = 4
"""Commands at one time: sshd takes ten sessions of a connection, other processes use some."""
_LONGEST_SOCKET = 80
"""Unix takes 104 bytes or more; ssh appends 17 while it makes the socket."""
_BYTES_A_SECOND = 1 << 20
"""The slowest transfer that is waited for."""
_NOT_FOUND = 127
_LAST_SIGNAL = 64

_SHELL = """exec bash -lc 'IFS= read -r script; eval "$(printf %s "$script" | base64 -d)"'"""
"""The same for every command, and read alike by csh and fish."""


@dataclass(frozen=True)
class Reply:
    """What came back of a script that ran to its end.

    Attributes
    ----------
    stdout
        At the first byte of what the script wrote.
    """

    code: int
    stdout: BinaryIO
    stderr: str


class SshRunner:
    """A Runner on another host; may be used by many threads.

    Parameters
    ----------
    settings
        How it is reached.
    environment
        Of this process.
    """

    def __init__(self, settings: SshSettings, environment: Mapping[str, str] = os.environ) -> None:
        self.settings = settings
        self._environment = environment
        self._slots = threading.BoundedSemaphore(_AT_ONCE)

    def __call__(
        self,
        argv: Sequence[str],
        *,
        environment: Mapping[str, str] | None = None,
        extra: Mapping[str, str] | None = None,
    ) -> Answer:
        """Run a command there; see `Runner`.

        It has the environment of a login there, with what is given on top; where nothing is given,
        with what ``EXAMLOPS_HPC_FORWARD_ENV`` names of that of this process. A command that only
        asks is tried a second time where the connection was lost.
        """
        if environment is None:
            environment = self.settings.forwarded_of(self._environment)
        variables = {**environment, **(extra or {})}
        exports = [f"export {name}={shlex.quote(value)}" for name, value in variables.items()]
        script = "\n".join([cleaning_script(), *exports, f"exec {shlex.join(argv)}"])
        try:
            reply = self.run(script)
        except LaunchError as error:
            if not error.transient or extra != OF_QUERIES:
                raise
            reply = self.run(script)
        with reply.stdout as file:
            out = file.read().decode(errors="replace")
        if reply.code == _NOT_FOUND and "not found" in reply.stderr:
            raise LaunchError(
                f"{argv[0]} is not on PATH of {self.settings.host}, in a login shell there",
                transient=True,
            )
        code = reply.code
        if SIGNALLED < code <= SIGNALLED + _LAST_SIGNAL:
            code = SIGNALLED - code
        return Answer(tuple(argv), code, out, reply.stderr)

    def connect(self) -> None:
        """See that commands can be run there.

        Raises
        ------
        LaunchError
            With the remedy; ``transient=False`` for what needs one.
        """
        self.run("true").stdout.close()

    def run(
        self,
        script: str,
        payload: Callable[[BinaryIO], object] | None = None,
        *,
        size: int = 0,
    ) -> Reply:
        """Run a script of bash there.

        Parameters
        ----------
        payload
            Writes what the script reads on stdin.
        size
            Bytes that go one way or the other, for which more time is given.

        Raises
        ------
        LaunchError
            The connection did not come about or was lost, or the time limit was reached: whether
            the script ran is not known then.
        """
        mark = secrets.token_hex(16)
        with tempfile.TemporaryFile() as stdin, self._slots:
            stdin.write(base64.b64encode(os.fsencode(_marked(mark, script))) + b"\n")
            if payload is not None:
                payload(stdin)
            stdin.seek(0)
            stdout = tempfile.TemporaryFile()  # noqa: SIM115 - the caller reads it
            try:
                said = self._talk(stdin, stdout, size)
                return self._reply(mark, stdout, said)
            except BaseException:
                stdout.close()
                raise

    def close(self) -> None:
        """End the connection, for all processes that share it."""
        self._control("exit")

    def _talk(self, stdin: IO[bytes], stdout: IO[bytes], size: int) -> str:
        limit = command_timeout(self._environment) + CONNECT_SECONDS + size / _BYTES_A_SECOND
        argv = [*self._ssh(), "--", self.settings.host, _SHELL]
        with tempfile.TemporaryFile() as stderr:
            try:
                process = subprocess.Popen(
                    argv, cwd="/", stdin=stdin, stdout=stdout, stderr=stderr,
                    start_new_session=True,
                )  # fmt: skip
            except FileNotFoundError:
                raise LaunchError("ssh is not on PATH here → install OpenSSH's client") from None
            try:
                process.wait(limit)
            except subprocess.TimeoutExpired:
                _kill(process)
                self._control("stop")  # the next command makes a connection of its own
                raise LaunchError(
                    f"{self.settings.host} gave no answer within {limit:g} s "
                    "(EXAMLOPS_SLURM_CMD_TIMEOUT sets the limit of a command)",
                    transient=True,
                ) from None
            except BaseException:
                _kill(process)
                raise
            stderr.seek(0)
            return stderr.read().decode(errors="replace")

    def _reply(self, mark: str, stdout: BinaryIO, said: str) -> Reply:
        end = re.search(rf"^{mark} (\d+)$", said, re.MULTILINE)
        if end is None:
            raise connection_error(self.settings, said.rpartition(f"{mark}\n")[2])
        stdout.seek(0)
        for line in iter(stdout.readline, b""):
            if line.strip() == mark.encode():
                break
        own = said[: end.start()].rpartition(f"{mark}\n")[2]
        return Reply(int(end[1]), stdout, own.removesuffix("\n"))

    def _ssh(self) -> list[str]:
        settings = self.settings
        options = {
            "ControlMaster": "auto",
            "ControlPath": str(self._socket()).replace("%", "%%"),
            "ControlPersist": str(_PERSIST_SECONDS),
            "ServerAliveInterval": str(_ALIVE_SECONDS),
            "ServerAliveCountMax": "3",
            "ConnectTimeout": str(CONNECT_SECONDS),
            "BatchMode": "yes",
            "StrictHostKeyChecking": "accept-new" if settings.accepts_new_hosts else "yes",
            "ClearAllForwardings": "yes",
            "PermitLocalCommand": "no",
            "RemoteCommand": "none",
            "LogLevel": "ERROR",
            **({"User": settings.user} if settings.user else {}),
            **({"Port": settings.port} if settings.port else {}),
        }
        key = ["-o", "IdentitiesOnly=yes", "-i", settings.key] if settings.key else []
        words = [word for name, value in options.items() for word in ("-o", f"{name}={value}")]
        return ["ssh", "-T", "-x", *words, *key]

    def _socket(self) -> Path:
        """Give the path of the connection's socket, in a folder of this user alone."""
        folder = _private_folder(self._environment)
        settings = self.settings
        parts = (settings.host, settings.user, settings.key, settings.port,
                 str(settings.accepts_new_hosts))  # fmt: skip
        name = hashlib.sha256("\0".join(parts).encode(errors="surrogateescape")).hexdigest()[:16]
        return folder / name

    def _control(self, command: str) -> None:
        argv = ["ssh", "-o", f"ControlPath={str(self._socket()).replace('%', '%%')}"]
        with contextlib.suppress(OSError, subprocess.TimeoutExpired):
            subprocess.run(
                [*argv, "-O", command, "--", self.settings.host], cwd="/", check=False, timeout=5,
                stdin=subprocess.DEVNULL, capture_output=True,
            )  # fmt: skip


def _marked(mark: str, script: str) -> str:
    return "\n".join(
        [
            f"printf '\\n%s\\n' {mark}",
            f"printf '\\n%s\\n' {mark} >&2",
            "(",
            "cd /",
            script,
            ")",
            "code=$?",
            f"printf '\\n%s %d\\n' {mark} \"$code\" >&2",
            'exit "$code"',
        ]
    )


def _private_folder(environment: Mapping[str, str]) -> Path:
    """Give the folder of the sockets: short, and nobody else's.

    Raises
    ------
    LaunchError
        Somebody else made a folder of that name.
    """
    runtime = environment.get("XDG_RUNTIME_DIR", "")
    path = Path(runtime) / "examlops-ssh"
    if not runtime or len(os.fsencode(path)) + 17 > _LONGEST_SOCKET or not Path(runtime).is_dir():
        path = Path("/tmp") / f"examlops-ssh-{os.getuid()}"  # noqa: S108 - checked below
    with contextlib.suppress(FileExistsError):
        path.mkdir(mode=0o700)
    found = path.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid():
        raise LaunchError(f"{path} is not ours, so no connection is kept there → remove it")
    path.chmod(0o700)
    return path


def _kill(process: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
