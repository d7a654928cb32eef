"""What the tests of the ledgers share: attempts, claims, other processes, counted statements."""

import subprocess
import sys
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

from examlops_dagster.core.records import Attempt, BuildState, Node, Read
from examlops_dagster.store.engine import Connection

ROOT = Path(__file__).parents[2]
A, B = Node("a"), Node("b")
UP = {Node("up"): Read(3, "u3"), Node("p", "x|y"): Read(1, "p1")}


def attempt(node=A, build_id="1", fingerprint="fp", **more):
    return Attempt(node, build_id, fingerprint, "code", more.pop("built_from", UP), "local", **more)


def built(ledger, node=A, build_id="1", data="d1", **more):
    """Take a node through a whole successful build."""
    this = attempt(node, build_id, **more)
    assert ledger.claim(node, build_id) is None
    ledger.begin(this)
    version = ledger.allot(this, data)
    found = ledger.complete(this, version, data, {"orchestrator": "local"})
    ledger.release(node, build_id)
    return found


def failed(ledger, node=A, build_id="1", state=BuildState.FAILED, error="no", **more):
    this = attempt(node, build_id, **more)
    ledger.begin(this)
    return ledger.fail(this, state, error)


@contextmanager
def counted(monkeypatch):
    """Count the statements that are executed."""
    asked = []
    execute = Connection.execute

    def count(self, sql, /, **parameters):
        asked.append(sql)
        return execute(self, sql, **parameters)

    with monkeypatch.context() as patch:
        patch.setattr(Connection, "execute", count)
        yield asked


def run_script(script, *arguments, **more):
    return subprocess.Popen(
        [sys.executable, "-c", script, *arguments],
        cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, **more,
    )  # fmt: skip


def put_claim(
    database, clock, *, host="elsewhere", pid=1, pid_started=1.0, age=0.0, token="theirs"
):
    at = (clock() - timedelta(seconds=age)).timestamp()
    with database.write() as connection:
        connection.execute(
            "INSERT INTO claims VALUES ('a', '', :token, :host, :pid, :pid_started, '', :at, :at)",
            token=token,
            host=host,
            pid=pid,
            pid_started=pid_started,
            at=at,
        )
