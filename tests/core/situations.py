"""Situations in which the tests of the core judge: moments, claims, and holds of one asset."""

from datetime import timedelta

from worlds import NOW, built, graph_of, judged, record, snapshot, source

from examlops_dagster.core.freshness import Schedule
from examlops_dagster.core.records import BuildState, Claim, Hold, Node
from examlops_dagster.core.status import Judge

DAILY = Schedule("0 6 * * *")

YESTERDAY = NOW - timedelta(days=1)

TODAY_5 = NOW.replace(hour=5)

TODAY_7 = NOW.replace(hour=7)

CLAIM = Claim("token", "host", 1, "", NOW, NOW)


def state(verdict):
    return verdict.state, verdict.shown


def read(node, *edges):
    """Records of upstreams at v1, and of a node that was built from them."""
    return {edge: record() for edge in edges} | {node: record(of=dict.fromkeys(edges, (1, "d1")))}


BASE = built("b", "a", resources={"gpus": 1}, command=("run.sh",), retries=1)

RECORDS = {"a": record()}

CODE = {"b": "c1"}


def fingerprint(declaration=BASE, records=None, code=None, **more):
    now = snapshot(RECORDS if records is None else records, **more)
    return Judge(graph_of(source("a"), declaration), now, code or CODE).fingerprint(Node("b"))


def held(failures=2, deaths=0, how=BuildState.FAILED, error="ValueError: no", **more):
    return Hold(more.pop("fingerprint", None) or fingerprint(), failures, deaths, how, error, NOW)


def under(hold, declaration=BASE, records=None, code=None, **more):
    found = {"a": record()} if records is None else records
    holds = {Node("b"): hold}
    return judged([source("a"), declaration], found, code or CODE, holds=holds, **more)["b"]
