"""``exa assets aliases`` and ``exa assets emit``."""

import json

import pytest
from homes import run_program

PIPELINE = """\
from examlops_dagster import Dataset, DatasetAlias, asset, task


@task(outlets=[DatasetAlias("out", match="s3://*")])
def producer(outlet_events):
    outlet_events["out"].add(Dataset("s3://bucket/ü x"), extra={"rows": 3})


@asset(deps=[DatasetAlias("out")])
def consumer(inlet_events):
    return [event.uri for event in inlet_events["out"]]


@asset(deps=[Dataset("s3://plain")])
def reader(): ...
"""


@pytest.fixture
def exa(tmp_path):
    (tmp_path / "pipeline.py").write_text(PIPELINE, encoding="utf-8")

    def run(*argv, code=0):
        return run_program(tmp_path, "exa", "-m", "pipeline", *argv, code=code)

    return run


def test_aliases_show_what_they_were_resolved_to(exa):
    before = exa("assets", "aliases").stdout
    assert before.splitlines()[1].split() == ["out", "—", "producer", "—", "—"]
    assert exa("assets", "aliases", "out").stdout == "out was resolved to nothing yet.\n"
    exa("assets", "materialize", "producer")
    shown = exa("assets", "aliases", "out").stdout
    assert "s3://bucket/ü x" in shown
    assert "producer" in shown
    assert '{"rows": 3}' in shown
    [event] = json.loads(exa("assets", "aliases", "out", "--json").stdout)
    assert (event["dataset"], event["extra"], event["source"]) == (
        "s3://bucket/ü x", {"rows": 3}, "producer",
    )  # fmt: skip
    [alias] = json.loads(exa("assets", "aliases", "--json").stdout)
    assert (alias["alias"], alias["version"], alias["producers"]) == ("out", 1, ["producer"])


def test_a_producer_outside_emits_and_its_consumers_are_stale(exa):
    done = exa("assets", "emit", "out", "s3://elsewhere", "--extra", "rows=4", "--extra", "by=me")
    assert done.stdout.endswith("Emitted s3://elsewhere to out\n")
    [event] = json.loads(exa("assets", "aliases", "out", "--json").stdout)
    assert (event["extra"], event["source"]) == ({"rows": 4, "by": "me"}, None)
    exa("assets", "emit", "s3://plain")
    states = {
        row["name"]: row["state"] for row in json.loads(exa("assets", "status", "--json").stdout)
    }
    assert states["consumer"] == states["reader"] == "runnable_stale"
    assert "consumer" in exa("run").stdout


def test_what_cannot_be_emitted_is_refused_with_the_remedy(exa):
    refused = exa("assets", "emit", "out", "file:///x", code=2).stderr
    assert "alias out takes s3://*, not file:///x" in refused
    refused = exa("assets", "emit", "consumer", "s3://x", code=2).stderr
    assert "neither a dataset nor an alias" in refused
    assert "Did you mean" in exa("assets", "emit", "outt", "s3://x", code=2).stderr
    assert "KEY=VALUE" in exa("assets", "emit", "out", "s3://x", "--extra", "x", code=2).stderr
    assert "neither an alias" in exa("assets", "aliases", "consumer", code=2).stderr


def test_a_request_says_what_was_not_triggered(tmp_path):
    (tmp_path / "pipeline.py").write_text(
        PIPELINE.replace('    outlet_events["out"].add', "    (lambda *a, **k: None)"),
        encoding="utf-8",
    )
    done = run_program(tmp_path, "exa", "-m", "pipeline", "assets", "materialize", "consumer")
    assert "rebuilt producer" in done.stdout
    assert "not triggered: consumer (upstream out is unresolved" in done.stdout
