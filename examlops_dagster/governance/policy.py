"""The policy in force: that of ``policy.yaml``, read anew when the file changes."""

from __future__ import annotations

import hashlib
import stat
from dataclasses import dataclass
from datetime import timedelta
from functools import lru_cache
from pathlib import Path

from examlops_dagster.governance.decision import Decision, Effect, Question, Rule, decide
from examlops_dagster.home import Home
from examlops_dagster.settings import CONFIG_DIR

POLICY_FILE = "policy.yaml"
DEFAULT_FOLDER = "~/.config/examlops"
MAX_BYTES = 1_000_000


@dataclass(frozen=True)
class Policy:
    """What a file says.

    Attributes
    ----------
    path
        Of the file.
    digest
        Start of its sha256, for the audit log.
    valid_for
        How long a grant or a refusal holds.
    self_grant
        Whether who asked may grant it.
    problem
        Why the file cannot be used, with its place; then everything is denied.
    """

    path: Path
    rules: tuple[Rule, ...] = ()
    digest: str = ""
    valid_for: timedelta = timedelta(hours=24)
    self_grant: bool = False
    problem: str = ""

    def decide(self, question: Question) -> Decision:
        """Say whether something may be done."""
        if self.problem:
            return Decision(Effect.DENY, "", self.problem)
        return decide(self.rules, question)


def load_policy(home: Home) -> Policy | None:
    """Give the policy of a home; None where there is no file, which allows everything.

    The file is ``policy.yaml`` beside ``dagster.yaml``, else in ``EXAMLOPS_CONFIG_DIR``
    (``~/.config/examlops``).
    """
    for folder in (home.folder, config_folder(home)):
        path = folder / POLICY_FILE
        try:
            path.lstat()  # a link to nothing is a file that cannot be read
            found = path.stat()
        except (FileNotFoundError, NotADirectoryError):
            if not path.is_symlink():
                continue
            return Policy(path, problem=f"{path}: it is a link to a file that is not there")
        except OSError as error:
            return Policy(path, problem=f"{path}: {error.strerror or error}")
        if not stat.S_ISREG(found.st_mode):
            return Policy(path, problem=f"{path}: it is not a file")
        return _load(path, found.st_mtime_ns, found.st_ctime_ns, found.st_size, found.st_ino)
    return None


def config_folder(home: Home) -> Path:
    """Give the folder for settings of a whole host (``EXAMLOPS_CONFIG_DIR``)."""
    named = home.environment.get(CONFIG_DIR)
    return Path(named or DEFAULT_FOLDER).expanduser()


@lru_cache(maxsize=8)
def _load(path: Path, *signature: int) -> Policy:
    """Read a file; the signature changes when the file does."""
    del signature
    try:
        data = path.read_bytes()
        if len(data) > MAX_BYTES:
            return Policy(path, problem=f"{path}: it has {len(data)} bytes, more than {MAX_BYTES}")
        text = data.decode("utf-8")
    except OSError as error:
        return Policy(path, problem=f"{path}: {error.strerror or error}")
    except UnicodeDecodeError as error:
        return Policy(path, problem=f"{path}: it is not UTF-8 ({error.reason})")
    from examlops_dagster.governance.policy_file import (  # noqa: PLC0415 - imports pydantic
        PolicyFileError,
        parse_policy,
    )

    digest = hashlib.sha256(data).hexdigest()[:12]
    try:
        rules, approvals = parse_policy(path, text)
    except PolicyFileError as error:
        return Policy(path, digest=digest, problem=str(error))
    except (ValueError, RecursionError) as error:  # what a loader makes of an odd value
        return Policy(path, digest=digest, problem=f"{path}: {error}")
    valid_for = timedelta(hours=approvals.valid_hours)
    return Policy(path, rules, digest, valid_for, approvals.self_grant)
