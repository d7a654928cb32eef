"""Where commands about a job arrive: two clusters may be reached at one name, as through tunnels."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from examlops_dagster.settings import HPC_SSH_HOST, HPC_SSH_PORT, HPC_SSH_USER

_DEFAULT_PORT = "22"


@dataclass(frozen=True)
class FarEnd:
    """The other end of SSH, as the settings name it.

    Attributes
    ----------
    host
        Empty for this host.
    port
        Empty for that of ssh_config; None where it was not written down, as once.
    user
        Empty for that of ssh_config.
    """

    host: str = ""
    port: str | None = ""
    user: str = ""

    def __str__(self) -> str:
        port = f":{self.port}" if self.port else ""
        return f"{f'{self.user}@' if self.user else ''}{self.host}{port}"

    def is_same(self, other: FarEnd) -> bool:
        """Tell whether an id means the same job there, as far as both are known."""
        return (
            self.host == other.host
            and (None in {self.port, other.port} or _number(self) == _number(other))
            and ("" in {self.user, other.user} or self.user == other.user)
        )

    @property
    def written(self) -> dict[str, str]:
        """What submit.json says of it."""
        if not self.host:
            return {}
        return {"ssh_host": self.host, "ssh_port": self.port or "", "ssh_user": self.user}

    @staticmethod
    def read(intent: Any) -> FarEnd:
        """Read it from what a submit.json holds."""
        if not isinstance(intent, Mapping) or not intent.get("ssh_host"):
            return FarEnd()
        port = intent.get("ssh_port")
        return FarEnd(
            str(intent["ssh_host"]),
            None if port is None else str(port),
            str(intent.get("ssh_user") or ""),
        )

    def remedy(self, now: FarEnd) -> str:
        """Say how settings that name another end come to name this one."""
        if not self.host:
            return f"unset {HPC_SSH_HOST}"
        wanted = (
            (HPC_SSH_HOST, self.host, now.host),
            (HPC_SSH_PORT, self.port, now.port),
            (HPC_SSH_USER, self.user, now.user),
        )
        given = [f"{name}={was}" for name, was, is_now in wanted if was and was != is_now]
        taken = [HPC_SSH_PORT] if self.port == "" and now.port else []
        parts = [
            f"{verb} {' '.join(names)}"
            for verb, names in (("set", given), ("unset", taken))
            if names
        ]
        return " and ".join(parts)


HERE = FarEnd()
"""No other end: this host."""


def _number(end: FarEnd) -> str:
    return end.port or _DEFAULT_PORT
