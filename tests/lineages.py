"""What the tests of lineage share: the schemas of OpenLineage, and events that they judge."""

import json
import os
from contextlib import contextmanager
from functools import cache
from pathlib import Path

import pytest
from homes import Homestead
from jsonschema import Draft202012Validator
from needs import SHARED, shared
from openlineage.client.serde import Serde
from referencing import Registry, Resource

import examlops_dagster
from examlops_dagster.core.records import BuildState
from examlops_dagster.governance.lineage_events import end_of, start_of
from examlops_dagster.governance.lineage_names import Names
from examlops_dagster.governance.lineage_rows import facts_of_asset

SCHEMAS = SHARED / "openlineage"
OURS = Path(examlops_dagster.__file__).parent / "governance" / "schemas"
CORE = "https://openlineage.io/spec/2-0-2/OpenLineage.json"
ENDS = ("COMPLETE", "FAIL", "ABORT")

with_schemas = shared("openlineage")


@cache
def registry():
    core = json.loads((SCHEMAS / "OpenLineage.json").read_text())
    files = [*(SCHEMAS / "facets").glob("*.json"), *OURS.glob("*.json")]
    found = [json.loads(path.read_text()) for path in files]

    def retrieve(uri):
        assert uri.endswith("/OpenLineage.json"), f"nothing is known of {uri}"
        return Resource.from_contents(core)

    resources = [(each["$id"], Resource.from_contents(each)) for each in [core, *found]]
    return Registry(retrieve=retrieve).with_resources(resources)


@cache
def validator(reference):
    return Draft202012Validator(
        {"$ref": reference},
        registry=registry(),
        format_checker=Draft202012Validator.FORMAT_CHECKER,
    )


def facets_in(event):
    """Give every facet of an event with where it stands."""
    found = [("run", event["run"].get("facets", {})), ("job", event["job"].get("facets", {}))]
    for side in ("inputs", "outputs"):
        for dataset in event.get(side, []):
            found.append((f"{side} {dataset['name']}", dataset.get("facets", {})))
            more = dataset.get(f"{side[:-1]}Facets", {})
            found.append((f"{side} {dataset['name']}", more))
    return [(f"{where} {name}", facet) for where, facets in found for name, facet in facets.items()]


def problems_of(event):
    """Say all that the schemas have against an event, and against each facet by its own schema."""
    found = [
        f"{error.json_path}: {error.message}"
        for error in validator(f"{CORE}#/$defs/RunEvent").iter_errors(event)
    ]
    for where, facet in facets_in(event):
        url = facet["_schemaURL"]
        found += [f"{where}: {e.message}" for e in validator(url).iter_errors(facet)]
    return found


class Told:
    """What was told of a home that is gone: tests of one class share what takes seconds."""

    def __init__(self, home, *names):
        self.folder = home.folder
        self.told = {name: events_of(home, name) for name in names}
        self.runs = {name: [build.run_id for build in home.builds(name)] for name in names}


@contextmanager
def home_for_a_class(tmp_path_factory):
    with pytest.MonkeyPatch.context() as monkeypatch:
        home = Homestead(tmp_path_factory.mktemp("lineage") / "home", monkeypatch)
        yield home
        home.close()


def events_of(home, name, limit=100):
    """Give the events of an asset as they would be sent, oldest first."""
    if isinstance(home, Told):
        return home.told[name]
    project = home.project()
    with project.database.read() as connection:
        found = facts_of_asset(connection, name, limit)
    project.close()
    names, events = Names.of(os.environ), []
    for facts in reversed(found):
        if not facts.is_reported:
            events.append(Serde.to_dict(start_of(facts, names)))
        if facts.state is not BuildState.RUNNING:
            events.append(Serde.to_dict(end_of(facts, names)))
    return events


def built(home, text, *names, **how):
    """Build assets of a new module; give it, and the report."""
    module = home.module(text)
    report = home.exa(module, *names, **how)
    return module, report


def last(home, name):
    return events_of(home, name)[-1]


def output_of(event, name):
    [found] = [o for o in event["outputs"] if o["name"] == name]
    return found


def ends_by_run(events):
    """Give the kinds of events by run id."""
    found = {}
    for event in events:
        found.setdefault(event["run"]["runId"], []).append(event["eventType"])
    return found


def assert_whole(events):
    """See that every run has its START first and exactly one end."""
    for run_id, kinds in ends_by_run(events).items():
        assert kinds in [["START", end] for end in ENDS], f"{run_id}: {kinds}"
