"""Whether jobs are submitted from here or over SSH, and how the other host is reached."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from fnmatch import fnmatchcase
from pathlib import PurePosixPath

from examlops_dagster.errors import UsageError
from examlops_dagster.schedulers.far_end import FarEnd
from examlops_dagster.settings import (
    HPC_FORWARD_ENV,
    HPC_REMOTE_WORKDIR,
    HPC_SSH_HOST,
    HPC_SSH_KEY,
    HPC_SSH_PORT,
    HPC_SSH_USER,
    HPC_TRANSPORT,
    SSH_AUTO_ADD_HOST_KEYS,
)

_YES = ("1", "true", "yes", "on")
_UNSAFE = re.compile(r"^-|[\s\x00-\x1f\x7f]")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


class Transport(Enum):
    """How the commands of a scheduler are run."""

    LOCAL = "local"
    SSH = "ssh"


@dataclass(frozen=True)
class SshSettings:
    """How the other host is reached; what is unset is left to the user's ssh_config.

    Attributes
    ----------
    host
        A name, an address, or a Host of ssh_config.
    user, key, port
        Empty for those of ssh_config.
    accepts_new_hosts
        Whether a host that was never seen is trusted; one whose key changed never is.
    forwarded
        Names of environment variables that go along, also as patterns (``WANDB_*``).
    workdir
        Folder there into which the folders of jobs are copied; empty where both hosts share a
        filesystem, and nothing is copied.
    """

    host: str
    user: str = ""
    key: str = ""
    port: str = ""
    accepts_new_hosts: bool = False
    forwarded: tuple[str, ...] = ()
    workdir: str = ""

    @property
    def is_staged(self) -> bool:
        """Whether the folders of jobs are copied."""
        return bool(self.workdir)

    @property
    def connection(self) -> tuple[str, ...]:
        """What decides at which host a command arrives, and as whom."""
        return (self.host, self.user, self.port, self.key)

    @property
    def far_end(self) -> FarEnd:
        """The cluster that is reached."""
        return FarEnd(self.host, self.port, self.user)

    @property
    def destination(self) -> str:
        """The host, and the user where one is named, for people."""
        return f"{self.user}@{self.host}" if self.user else self.host

    def forwarded_of(self, environment: Mapping[str, str]) -> dict[str, str]:
        """Give the variables that go along."""
        return {
            name: value
            for name, value in environment.items()
            if _VARIABLE.fullmatch(name) and any(fnmatchcase(name, p) for p in self.forwarded)
        }


def transport_of(environment: Mapping[str, str]) -> Transport:
    """Say how commands are run: ``EXAMLOPS_HPC_TRANSPORT``, else SSH where a host is named.

    Raises
    ------
    UsageError
        The value is not known.
    """
    text = environment.get(HPC_TRANSPORT, "").strip().lower()
    if not text:
        return Transport.SSH if environment.get(HPC_SSH_HOST, "").strip() else Transport.LOCAL
    try:
        return Transport(text)
    except ValueError:
        raise UsageError(f"{HPC_TRANSPORT}={text} is unknown; known: local, ssh") from None


def ssh_settings(environment: Mapping[str, str]) -> SshSettings | None:
    """Read the variables of the SSH transport; None where commands are run here.

    Raises
    ------
    UsageError
        The transport is ssh without a host, or a value cannot be used.
    """
    if transport_of(environment) is Transport.LOCAL:
        return None

    def value(name: str) -> str:
        text = environment.get(name, "").strip()
        if name != HPC_REMOTE_WORKDIR and _UNSAFE.search(text):
            raise UsageError(f"{name}={text!r} cannot be used: it has blanks or begins with a dash")
        return text

    host = value(HPC_SSH_HOST)
    if not host:
        raise UsageError(f"{HPC_TRANSPORT}=ssh, but {HPC_SSH_HOST} names no host → set it")
    port = value(HPC_SSH_PORT)
    if port and not (port.isdecimal() and 0 < int(port) < 1 << 16):
        raise UsageError(f"EXAMLOPS_HPC_SSH_PORT={port} is no port")
    workdir = value(HPC_REMOTE_WORKDIR)
    if workdir and not PurePosixPath(workdir).is_absolute():
        raise UsageError(
            f"{HPC_REMOTE_WORKDIR}={workdir}: write the absolute path of a folder there"
        )
    return SshSettings(
        host,
        value(HPC_SSH_USER),
        environment.get(HPC_SSH_KEY, "").strip(),
        port,
        value(SSH_AUTO_ADD_HOST_KEYS).lower() in _YES,
        tuple(filter(None, re.split(r"[\s,]+", environment.get(HPC_FORWARD_ENV, "")))),
        workdir.rstrip("/") or workdir,
    )
