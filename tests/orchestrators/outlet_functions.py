"""Functions and programs that say which datasets they wrote."""

import json
import os
from pathlib import Path

from examlops_dagster import Metadata


def yields(**upstream):
    yield Metadata("s3://b/one", {"rows": 3}, ("out", "more"))
    yield Metadata("s3://b/two")
    return {"a": 1}


def writes(**upstream):
    with Path(os.environ["EXAMLOPS_OUTLET_EVENTS"]).open("a") as file:
        file.write(json.dumps({"dataset": "s3://b/written"}) + "\n")
    yield Metadata("s3://b/yielded")


def nothing(**upstream):
    return None


def closure():
    def inner(**upstream):
        yield Metadata("s3://b/closure")

    return inner


OVER_PIPES = """\
from dagster_pipes import open_dagster_pipes

with open_dagster_pipes() as pipes:
    event = {"dataset": "s3://b/pipes", "extra": {"a": 1}, "alias": "out"}
    pipes.report_custom_message({"examlops/outlet": event})
    pipes.report_custom_message({"examlops/outlet": {"dataset": 3}})
"""
