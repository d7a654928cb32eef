"""``exa audit`` and ``exa approvals``, and what builds print under policy."""

import json
import os
import subprocess

import pytest
from command import COMMAND

LIMIT_SECONDS = 300
PIPELINE = """\
from examlops_dagster import asset


@asset("model", kind="model", timeout_seconds=None)
def model():
    print("built")
    return {"is": "built"}
"""
APPROVE = """\
policies:
  - {name: models, action: asset_materialize, when: kind == 'model', effect: require_approval}
"""
DENY = APPROVE.replace("require_approval", "deny")


class Exa:
    def __init__(self, folder):
        self.folder = folder

    def __call__(self, *words, code=0, actor="alice", prefix=(), **environment):
        own = ("DAGSTER_", "EXAMLOPS_", "PLATFORM_DB", "COLUMNS", "PYTHONPATH")
        kept = {k: v for k, v in os.environ.items() if not k.startswith(own)}
        settings = {
            "EXAMLOPS_ACTOR": actor,
            "EXAMLOPS_CONFIG_DIR": str(self.folder / "config"),
            "XDG_CACHE_HOME": str(self.folder.parent / "cache"),
        }
        done = subprocess.run(
            [*prefix, COMMAND, *words],
            cwd=self.folder,
            env={**kept, **settings, **environment},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=LIMIT_SECONDS,
            check=False,
        )
        assert done.returncode == code, done
        assert "Traceback" not in done.stdout + done.stderr
        return done

    def json(self, *words, **how):
        return json.loads(self(*words, "--json", **how).stdout)


@pytest.fixture
def exa(tmp_path):
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "pipeline.py").write_text(PIPELINE)
    return Exa(folder)


def policy(exa, text):
    (exa.folder / "policy.yaml").write_text(text)


def test_where_nothing_was_done_there_is_nothing_to_show(exa):
    assert exa("audit", "list").stdout == "Nothing is in the audit log.\n"
    assert exa.json("audit", "list") == []
    assert exa("audit", "export").stdout == ""
    assert exa.json("audit", "verify")["count"] == 0
    assert exa("approvals", "list").stdout == "Nothing waits for approval.\n"
    assert "nothing was ever asked for" in exa("approvals", "grant", "x", code=2).stderr
    assert sorted(p.name for p in exa.folder.iterdir()) == ["pipeline.py"]


@pytest.mark.parametrize("words", [("materialize", "model"), ("retry", "model")])
def test_a_denied_build_prints_why_and_ends_with_1(exa, words):
    policy(exa, DENY)
    done = exa("-m", "pipeline", "assets", *words, code=1)
    reason = "model: matched policy rule 'models' → deny"
    assert f"\nBlocked by policy: {reason}\n" in f"\n{done.stderr}"
    assert "built" not in done.stdout + done.stderr
    [row] = exa.json("audit", "list")
    assert (row["action"], row["actor"]) == ("asset_materialize_denied", "alice")
    assert row["details"]["reason"] == reason


@pytest.mark.parametrize("words", [("run",), ("run", "model"), ("get", "model")])
def test_run_and_get_are_denied_too(exa, words):
    policy(exa, DENY)
    assert "Blocked by policy: model" in exa("-m", "pipeline", *words, code=1).stderr


def test_a_denied_build_is_a_document_too(exa):
    policy(exa, DENY)
    found = exa.json("-m", "pipeline", "assets", "materialize", "model", code=1)
    [blocked] = found["blocked"]
    assert blocked == {
        "name": "model",
        "reason": "model: matched policy rule 'models' → deny",
        "rule": "models",
        "approval": None,
    }


def test_a_build_waits_for_somebody_else_and_then_goes_on(exa):
    policy(exa, APPROVE)
    words = ("-m", "pipeline", "assets", "materialize", "model")
    done = exa(*words, code=1)
    [approval] = exa.json("approvals", "list")
    assert approval["state"] == "pending"
    assert approval["assets"] == [{"name": "model", "partition": None}]
    assert f"Waiting for approval {approval['id']} " in done.stderr
    assert "Why" in exa("approvals", "list").stdout

    own = exa("approvals", "grant", approval["id"], code=1)
    assert own.stderr.startswith(f"Blocked by policy: alice asked for approval {approval['id']}")
    granted = exa("approvals", "grant", approval["id"], "--reason", "fine", actor="bob")
    assert granted.stdout.startswith(f"Granted {approval['id']} to alice until ")

    assert "rebuilt model" in exa(*words).stdout
    assert exa.json("approvals", "list") == []
    [used] = exa.json("approvals", "list", "--all")
    assert (used["state"], used["decided_by"], used["comment"]) == ("used", "bob", "fine")
    assert [row["action"] for row in exa.json("audit", "list")] == [
        "asset_materialize",
        "approval_granted",
        "approval_requested",
    ]


def test_a_refusal_is_told(exa):
    policy(exa, APPROVE)
    words = ("-m", "pipeline", "assets", "materialize", "model")
    exa(*words, code=1)
    [approval] = exa.json("approvals", "list")
    found = exa.json("approvals", "refuse", approval["id"], "--reason", "no", actor="bob")
    assert found["state"] == "refused"
    assert "was refused by bob: no" in exa(*words, code=1).stderr


def test_rows_are_found_by_asset_action_and_age(exa):
    exa("assets", "declare", "a")
    exa("assets", "declare", "b")
    exa("assets", "source-changed", "a")
    assert [r["assets"] for r in exa.json("audit", "list", "--action", "declare")] == [["b"], ["a"]]
    assert [r["number"] for r in exa.json("audit", "list", "--asset", "a")] == [3, 1]
    assert len(exa.json("audit", "list", "-n", "1")) == 1
    assert len(exa.json("audit", "list", "--since", "1h")) == 3
    assert exa.json("audit", "list", "--since", "2100-01-01") == []
    assert "is neither a date" in exa("audit", "list", "--since", "soon", code=2).stderr
    assert "source_changed" in exa("audit", "list").stdout


def test_a_changed_row_is_named(exa):
    for name in "abc":
        exa("assets", "declare", name)
    assert exa("audit", "verify").stdout.startswith("3 rows hold; head ")
    import sqlite3

    with sqlite3.connect(exa.folder / "platform.db") as raw:
        raw.execute("DROP TRIGGER audit_refuses_update")
        raw.execute("UPDATE audit SET actor = 'alicf' WHERE number = 2")
    raw.close()
    done = exa("audit", "verify", code=1)
    assert done.stderr == (
        "The audit log is broken at row 2: row 2 was changed: its content does not give its hash\n"
    )
    assert exa.json("audit", "verify", code=1)["broken"] == 2


def test_the_log_is_exported_to_a_file(exa):
    exa("assets", "declare", "a")
    assert exa("audit", "export", "-o", "log.jsonl").stdout == "Wrote 1 row to log.jsonl\n"
    [line] = (exa.folder / "log.jsonl").read_text().splitlines()
    assert json.loads(line)["action"] == "declare"
    assert line == exa("audit", "export").stdout.strip()


def test_a_denied_declaration_prints_why(exa):
    policy(exa, "policies: [{action: declare, effect: deny, name: closed}]")
    done = exa("assets", "declare", "a", code=1)
    assert "Blocked by policy: a: matched policy rule 'closed' → deny\n" in done.stderr
    assert exa.json("assets", "list") == []


def modules_of(exa, *words):
    import sys

    prefix = (sys.executable, "-X", "importtime")
    lines = exa(*words, prefix=prefix).stderr.splitlines()
    return {line.rpartition("|")[2].strip() for line in lines if line.startswith("import time")}


def test_without_a_policy_file_nothing_heavy_is_imported(exa):
    exa("-m", "pipeline", "assets", "materialize", "model")
    heavy = {"pydantic", "yaml", "simpleeval", "dagster", "sqlalchemy"}
    for words in (("status",), ("plan",), ("graph",), ("declare", "x"), ("materialize", "model")):
        assert not modules_of(exa, "-m", "pipeline", "assets", *words) & heavy, words
    assert not modules_of(exa, "audit", "list") & heavy
    policy(exa, DENY)
    found = modules_of(exa, "-m", "pipeline", "assets", "status")
    assert {"pydantic", "simpleeval"} <= found
    assert "dagster" not in found


def test_a_plan_says_what_policy_denies_and_neither_asks_nor_records(exa):
    (exa.folder / "policy.yaml").write_text(DENY)
    before = exa.json("audit", "list")
    done = exa("-m", "pipeline", "assets", "plan", "model")
    assert "Blocked by policy: model: matched policy rule 'models' → deny" in done.stdout
    assert "Policy lets nothing of this be built as it stands." in done.stdout
    [step] = exa.json("-m", "pipeline", "assets", "plan", "model")["steps"]
    assert step["policy"]["rule"] == "models"
    assert (step["policy"]["decision"], step["policy"]["passes"]) == ("deny", False)
    assert exa.json("audit", "list") == before
    (exa.folder / "policy.yaml").unlink()
    [step] = exa.json("-m", "pipeline", "assets", "plan", "model")["steps"]
    assert step["policy"] is None
    assert "olicy" not in exa("-m", "pipeline", "assets", "plan", "model").stdout


def test_a_plan_says_what_needs_an_approval_waits_for_one_and_has_one(exa):
    (exa.folder / "policy.yaml").write_text(APPROVE)

    def policy():
        [step] = exa.json("-m", "pipeline", "assets", "plan", "model")["steps"]
        return step["policy"]

    assert policy()["why"].startswith("needs approval: model: matched policy rule 'models'")
    assert exa.json("approvals", "list") == []
    exa("-m", "pipeline", "assets", "materialize", "model", code=1)
    [approval] = exa.json("approvals", "list")
    assert policy()["approval"] == approval["id"]
    assert (
        f"waiting for approval {approval['id']}"
        in exa("-m", "pipeline", "assets", "plan", "model").stdout
    )
    assert policy()["passes"] is False
    exa("approvals", "grant", approval["id"], actor="bob")
    assert policy()["passes"] is True
    done = exa("-m", "pipeline", "assets", "plan", "model")
    assert f"approved ({approval['id']})" in done.stdout
    assert "Policy lets nothing" not in done.stdout


def test_a_plan_of_all_that_is_due_says_what_policy_keeps_automation_from(exa):
    (exa.folder / "policy.yaml").write_text(DENY)
    [blocked] = exa.json("-m", "pipeline", "assets", "plan")["blocked"]
    assert "Blocked by policy" in blocked["reason"]
    assert blocked["policy"]["decision"] == "deny"
