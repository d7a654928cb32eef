"""Pipelines that automation keeps fresh."""

ASSETS = """\
from examlops_dagster import Manual, Schedule, asset, partitions, task


def called(name):
    with open("calls", "a") as file:
        print(name, file=file)


@asset("features", deps=["PM100"], timeout_seconds=None)
def build_features(**upstream):
    called("features")
    return {"read": upstream["PM100"]}


@asset("model", inputs={"features": build_features}, timeout_seconds=None)
def build_model(features):
    called("model")
    return {"from": features}


@asset("beside", deps=["other"], timeout_seconds=None)
def build_beside(**upstream):
    called("beside")
    return {"read": upstream["other"]}


@asset("pinned", deps=["PM100"], freshness=Manual, timeout_seconds=None)
def build_pinned(**upstream):
    called("pinned")


@asset("below", deps=[build_pinned], timeout_seconds=None)
def build_below(**upstream):
    called("below")


@asset("yearly", deps=["PM100"], freshness=Schedule("0 0 29 2 *"), timeout_seconds=None)
def build_yearly(**upstream):
    called("yearly")
"""

PARTS = """\
from examlops_dagster import asset, partitions

SPACE = {"k": partitions(["a", "b", "c", "d"])}


@asset(partitions=SPACE, deps=["PM100"], timeout_seconds=None)
def parts(k, **upstream):
    return [k, upstream["PM100"]]


@asset(partitions=SPACE, deps=[parts], timeout_seconds=None)
def sums(k, **upstream):
    return upstream["parts"]
"""

FAILING = """\
from examlops_dagster import asset, task, Schedule


def called(name):
    with open("calls", "a") as file:
        print(name, file=file)


@asset(retries=2, timeout_seconds=None)
def broken():
    called("broken")
    raise ValueError("no luck")


@asset(deps=[broken], timeout_seconds=None)
def below(**upstream):
    called("below")
"""
