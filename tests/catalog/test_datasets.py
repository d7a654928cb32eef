"""Revisions and feature views on a real instance: assets advance, also after a kill."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest

import examlops_dagster
from examlops_dagster import FeatureView, apply_view, asset_status, record_dataset_revision
from examlops_dagster.errors import PolicyError, UsageError

ROOT = Path(__file__).parents[2]

PIPELINE = """\
from examlops_dagster import asset


@asset("features", deps=["PM100"])
def features(**upstream):
    return upstream
"""

KILLED = """\
import os, signal, sys
from examlops_dagster import record_dataset_revision
from examlops_dagster.ledger.event_log import EventLog
from examlops_dagster.catalog.revisions import Revisions

def die(*arguments, **named):
    os.kill(os.getpid(), signal.SIGKILL)

if sys.argv[2] == "before the advance":
    EventLog.report = die
else:
    Revisions.advanced = die
record_dataset_revision("PM100", path=sys.argv[1])
"""


def test_the_first_revision_declares_and_advances(home, files):
    recorded = record_dataset_revision("PM100", path=files(a="1"))
    assert recorded.version == 1
    assert home.versions() == {"PM100": 1}
    [event] = home.events("PM100")
    assert event.tags["dagster/data_version"] == recorded.revision


def test_the_same_content_is_a_no_op_and_an_earlier_one_is_not(home, files):
    folder = files(a="1")
    assert record_dataset_revision("PM100", path=folder).version == 1
    assert record_dataset_revision("PM100", path=folder).version == 1
    assert record_dataset_revision("PM100", path=files(a="2")).version == 2
    assert record_dataset_revision("PM100", path=files(a="1")).version == 3
    assert len(home.events("PM100")) == 3


def test_a_new_revision_makes_downstream_stale(home, files):
    # code that names a dataset which nobody has declared is in error, until the first revision
    module = home.module(PIPELINE)
    record_dataset_revision("PM100", path=files(a="1"), modules=[module])
    home.exa(module, "features")
    assert home.states(module)["features"] == "fresh"
    record_dataset_revision("PM100", path=files(a="1"), modules=[module])
    assert home.states(module)["features"] == "fresh"
    record_dataset_revision("PM100", path=files(a="2"), modules=[module])
    assert home.why(module, "features") == ("upstream PM100 changed (1 → 2)",)


def test_a_revision_that_others_name_is_recorded_too(home):
    recorded = record_dataset_revision(
        "PM100", "commit-1", uri="lakefs://repo/main", row_count=7, byte_count=9, schema_hash="s"
    )
    assert (recorded.version, recorded.backend, recorded.uri) == (
        1,
        "external",
        "lakefs://repo/main",
    )
    assert (recorded.facts.row_count, recorded.facts.byte_count) == (7, 9)
    assert record_dataset_revision("PM100", "commit-2").version == 2


@pytest.mark.parametrize("revision", ["", " ", "unknown", "Unknown", "None"])
def test_a_revision_that_says_nothing_is_refused(home, revision):
    with pytest.raises(UsageError, match="identifies no content of PM100"):
        record_dataset_revision("PM100", revision)
    assert home.versions() == {}


def test_nothing_found_records_nothing_and_declares_nothing(home, tmp_path):
    with pytest.raises(UsageError, match="does not exist"):
        record_dataset_revision("PM100", path=tmp_path / "nosuch")
    assert home.versions() == {}
    assert home.sql("SELECT * FROM revisions") == []


@pytest.mark.parametrize("given", [{}, {"revision": "r", "path": "."}])
def test_exactly_one_of_revision_and_path_is_given(home, given):
    with pytest.raises(UsageError, match="either revision= or path="):
        record_dataset_revision("PM100", **given)


def test_what_has_a_production_function_has_no_revisions(home, files):
    home.declare("PM100")
    module = home.module(PIPELINE)
    with pytest.raises(UsageError, match="features has a production function"):
        record_dataset_revision("features", path=files(a="1"), modules=[module])


def test_what_has_partitions_has_no_revisions(home, files):
    home.declare("days", partitions="static:a,b")
    with pytest.raises(UsageError, match="has partitions"):
        record_dataset_revision("days", path=files(a="1"))


def test_a_bad_name_is_told_before_any_hashing(home, files):
    with pytest.raises(examlops_dagster.DefinitionError):
        record_dataset_revision("a\nb", path=files(a="1"))
    assert home.sql("SELECT * FROM revisions") == []


def test_after_a_change_that_somebody_only_told_the_content_counts_again(home, files):
    folder = files(a="1")
    record_dataset_revision("PM100", path=folder)
    home.advance("PM100")
    assert record_dataset_revision("PM100", path=folder).version == 3
    assert record_dataset_revision("PM100", path=folder).version == 3


@pytest.mark.parametrize("when", ["before the advance", "after the advance"])
def test_a_kill_after_the_row_loses_nothing(home, files, when):
    first = record_dataset_revision("PM100", path=files(a="1"))
    folder = files(a="2")
    done = subprocess.run(
        [sys.executable, "-c", KILLED, folder, when], cwd=home.folder, timeout=300, check=False
    )
    assert done.returncode == -signal.SIGKILL
    assert home.sql("SELECT version FROM revisions ORDER BY id") == [(1,), (None,)]
    asset_status()  # makes up for it
    assert home.versions() == {"PM100": 2}
    [(revision, version)] = home.sql("SELECT revision, version FROM revisions WHERE id > 1")
    assert version == 2
    assert revision != first.revision
    assert len(home.events("PM100")) == 2
    assert record_dataset_revision("PM100", path=folder).version == 2


def test_a_kill_at_the_first_revision_leaves_it_declared(home, files):
    subprocess.run(
        [sys.executable, "-c", KILLED, files(a="1"), "before the advance"],
        cwd=home.folder, timeout=300, check=False,
    )  # fmt: skip
    asset_status()
    assert home.versions() == {"PM100": 1}


def test_the_next_snapshot_makes_up_for_what_was_left(home, files):
    subprocess.run(
        [sys.executable, "-c", KILLED, files(a="1"), "before the advance"],
        cwd=home.folder, timeout=300, check=False,
    )  # fmt: skip
    assert record_dataset_revision("PM100", path=files(a="2")).version == 2
    assert home.sql("SELECT version FROM revisions ORDER BY id") == [(1,), (2,)]


def test_where_the_asset_layer_fails_the_revision_is_recorded_and_told(home, files, caplog):
    settings = (home.folder / "dagster.yaml").read_text()
    home.write("dagster.yaml", "nosuch: 1\n")
    recorded = record_dataset_revision("PM100", path=files(a="1"))
    assert recorded.version is None
    assert "the revision is recorded, but PM100 has not advanced to it yet" in caplog.text
    home.write("dagster.yaml", settings)
    asset_status()
    assert home.versions() == {"PM100": 1}


def test_what_is_no_longer_declared_is_left_alone(home, files, caplog):
    subprocess.run(
        [sys.executable, "-c", KILLED, files(a="1"), "before the advance"],
        cwd=home.folder, timeout=300, check=False,
    )  # fmt: skip
    home.project().undeclare("PM100")
    asset_status()
    assert caplog.text == ""
    home.declare("PM100")
    asset_status()
    assert home.versions() == {"PM100": 1}


def test_who_only_looks_makes_up_for_nothing(home, files):
    subprocess.run(
        [sys.executable, "-c", KILLED, files(a="1"), "before the advance"],
        cwd=home.folder, timeout=300, check=False,
    )  # fmt: skip
    home.project(reading=True).snapshot()  # as a page does
    assert home.sql("SELECT version FROM revisions") == [(None,)]
    assert home.events("PM100") == []


# Feature views


VIEW = FeatureView("jobs", "job_id", ["power", "time"], "PM100")


def edges(home, *modules):
    project = home.project(*modules)
    found = {n: [u.name for u in d.upstreams] for n, d in project.graph.declarations.items()}
    project.close()
    return found


def test_a_view_declares_its_asset_with_its_source(home):
    home.declare("PM100")
    assert apply_view(VIEW) is True
    assert edges(home) == {"PM100": [], "jobs": ["PM100"]}
    project = home.project()
    assert project.graph.declarations["jobs"].kind == "feature"
    assert project.views.all() == [VIEW]


def test_applied_again_it_changes_nothing(home):
    apply_view(VIEW)
    declared = home.sql("SELECT * FROM declarations")
    assert apply_view(VIEW) is False
    assert home.sql("SELECT * FROM declarations") == declared


def test_another_source_moves_the_edge_and_keeps_the_rest(home):
    home.declare("jobs", description="words", partitions="static:a,b")
    apply_view(VIEW)
    assert apply_view(FeatureView("jobs", "job_id", ["power"], "PM200")) is True
    assert edges(home)["jobs"] == ["PM200"]
    declared = home.project().graph.declarations["jobs"]
    assert declared.description == "words"
    assert declared.partitions is not None


def test_a_view_without_a_source_is_a_root(home):
    apply_view(FeatureView("jobs", "job_id", "power"))
    assert edges(home) == {"jobs": []}


def test_a_function_that_was_registered_before_stays(home):
    home.declare("PM100")
    module = home.module(
        """\
        from examlops_dagster import asset

        @asset("jobs", kind="feature", timeout_seconds=None)
        def jobs(**upstream):
            return upstream
        """
    )
    apply_view(VIEW)
    assert edges(home, module)["jobs"] == ["PM100"]
    home.exa(module, "jobs")
    assert home.states(module)["jobs"] == "fresh"
    record_dataset_revision("PM100", "r2", modules=[module])
    assert home.why(module, "jobs") == ("upstream PM100 changed (1 → 2)",)


def test_what_code_states_wins_over_a_view(home):
    home.declare("PM100")
    home.declare("other")
    module = home.module(PIPELINE.replace('"features"', '"jobs"').replace("PM100", "other"))
    apply_view(VIEW)
    assert edges(home, module)["jobs"] == ["other"]


def test_a_view_that_cannot_be_declared_is_registered_and_made_up_for(home, caplog):
    home.declare("PM100", deps=["jobs"])
    assert apply_view(VIEW) is True
    assert "feature view jobs is registered but not declared" in caplog.text
    assert home.project().views.all() == [VIEW]
    assert edges(home) == {"PM100": ["jobs"], "jobs": []}
    home.declare("PM100")
    asset_status()
    assert edges(home) == {"PM100": [], "jobs": ["PM100"]}
    assert home.project().views.waiting() == []


@pytest.mark.parametrize(
    ("name", "entity", "features"),
    [("", "e", ["f"]), ("v", "", ["f"]), ("v", "e", []), ("v", "e", ["f", "f"]), ("v", "e", [""])],
)
def test_a_view_that_says_too_little_is_refused(name, entity, features):
    with pytest.raises(UsageError, match="a feature view needs"):
        FeatureView(name, entity, features)


def test_revisions_and_views_live_in_postgres_too(home, files, postgres_url, monkeypatch):
    monkeypatch.setenv("EXAMLOPS_DB_URL", postgres_url)
    assert record_dataset_revision("PM100", path=files(a="1")).version == 1
    assert record_dataset_revision("PM100", path=files(a="2")).version == 2
    assert record_dataset_revision("PM100", path=files(a="1")).version == 3
    apply_view(VIEW)
    assert apply_view(VIEW) is False
    assert edges(home) == {"PM100": [], "jobs": ["PM100"]}


# Governance

POLICY = """\
policies:
  - action: snapshot
    when: asset == "secret"
    effect: deny
    name: no secrets
  - action: declare
    when: asset == "jobs"
    effect: deny
"""


def test_policy_is_asked_before_anything_is_read(home, files, monkeypatch):
    home.write("policy.yaml", POLICY)
    monkeypatch.setattr("examlops_dagster.project.datasets.read_content", pytest.fail)
    with pytest.raises(PolicyError, match=r"Blocked by policy: .*no secrets"):
        record_dataset_revision("secret", path=files(a="1"))
    with pytest.raises(PolicyError):
        record_dataset_revision("secret", "commit")
    assert home.sql("SELECT * FROM revisions") == []
    assert home.sql("SELECT * FROM declarations") == []


def test_a_view_that_policy_forbids_is_not_registered(home):
    home.write("policy.yaml", POLICY)
    with pytest.raises(PolicyError):
        apply_view(VIEW)
    assert home.project().views.all() == []


def test_a_revision_is_in_the_audit_log(home, files):
    recorded = record_dataset_revision("PM100", path=files(a="1"))
    [row] = home.project().governor.audit.listed(asset="PM100")
    assert row.action == "snapshot"
    found = {**row.details}
    assert (found["revision"], found["version"], found["new"]) == (recorded.revision, 1, True)
