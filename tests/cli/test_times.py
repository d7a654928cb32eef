"""Tables show times by the clock of who reads them, all alike; JSON has them with their zone."""

import re

import pytest

ZONE = "Asia/Kathmandu"  # 5:45 before UTC
SHOWN = r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d"
PIPELINE = """\
from examlops_dagster import DatasetAlias, asset, task


@asset(timeout_seconds=None)
def made():
    return 1


@task(outlets=[DatasetAlias("out")], timeout_seconds=None)
def load(outlet_events):
    outlet_events["out"].add("s3://bucket/x")
"""
POLICY = """\
policies:
  - {action: asset_materialize, when: asset == 'made', effect: require_approval}
"""


@pytest.fixture(scope="module")
def lived(shared):
    """A home in which each table has a row."""
    shared.write("pipeline.py", PIPELINE)
    shared.write("pyproject.toml", '[tool.examlops]\nmodules = ["pipeline"]\n')
    (shared.folder / "data").mkdir()
    shared.write("data/x.csv", "a\n1\n")
    shared("assets", "materialize", "made", "load")
    shared("data", "snapshot", "raw", "--path", "data")
    shared.write("policy.yaml", POLICY)
    shared("assets", "materialize", "made", "--force", code=1)
    return shared


@pytest.mark.parametrize(
    "words",
    [
        ("assets", "history", "made"),
        ("assets", "aliases"),
        ("assets", "aliases", "out"),
        ("approvals", "list"),
        ("audit", "list"),
        ("data", "list"),
        ("lineage", "made"),
    ],
    ids=" ".join,
)
def test_a_table_shows_the_time_here(lived, words):
    here, there = (lived(*words, TZ=zone).out for zone in (ZONE, "UTC"))
    assert re.findall(SHOWN, here)
    assert here != there
    minutes = [int(text[14:16]) for text in re.findall(SHOWN, there)]
    assert [int(text[14:16]) for text in re.findall(SHOWN, here)] == [
        (each + 45) % 60 for each in minutes
    ]
    for text in (here, there):
        assert not re.search(r"\d\dT\d\d:|\d\d:\d\d[+-]\d\d:\d\d|UTC", text)


def test_json_has_the_zone(lived):
    [row, *_] = lived("assets", "history", "made", "--json", TZ=ZONE).json
    assert row["started_at"].endswith("+00:00")
    [event, *_] = lived("lineage", "made", "--json", TZ=ZONE).json
    assert event["eventTime"].endswith("+00:00")
