"""Production functions that speak Dagster Pipes, as they do in a job."""

import os
import subprocess
import sys
import threading
from contextvars import copy_context
from pathlib import Path

from dagster_pipes import DagsterPipesError, PipesContext, open_dagster_pipes

from examlops_dagster import AssetOutput

PROGRAM = """\
import os
print(sorted(n for n in os.environ if n.startswith(("DAGSTER_PIPES", "EXAMLOPS_OUTLET_EVENTS"))))
"""

kept = []


def tells(**upstream):
    pipes = PipesContext.get()
    pipes.log.warning("nearly full")
    pipes.report_asset_materialization({"loss": 0.5, "of": pipes.asset_key}, data_version="p1")
    pipes.report_custom_message({"examlops/outlet": {"dataset": "s3://b/x", "alias": "out"}})
    return [pipes.get_extra("upstream"), pipes.is_partition_step and pipes.partition_key]


def opens(**upstream):
    with open_dagster_pipes() as pipes:
        pipes.log.info("opened by itself")
        pipes.report_asset_check("rows", passed=True)
        return pipes.run_id


def opens_and_fails(**upstream):
    with open_dagster_pipes() as pipes:
        pipes.log.info("so far so good")
        raise ValueError("this is why")


def swallows(**upstream):
    try:
        with open_dagster_pipes():
            raise ValueError("swallowed")
    except ValueError:
        return 1


def says_more(**upstream):
    PipesContext.get().report_asset_materialization({"a": 1, "b": 1}, data_version="by pipes")
    return AssetOutput(7, data_version="returned", metadata={"b": 2})


def says_what_is_no_json(**upstream):
    PipesContext.get().report_custom_message(object())


def silent(**upstream):
    return "silent"


def silent_and_fails(**upstream):
    raise ValueError("silent")


def keeps_its_context(**upstream):
    kept.append(PipesContext.get())
    kept[0].log.info(f"said by the context of the first: {upstream['n']}")
    return len(kept)


def from_a_thread(**upstream):
    thread = threading.Thread(target=lambda: PipesContext.get().log.info("from a thread"))
    thread.start()
    thread.join(300)


def meets(barrier, other, name):
    """Be called at the same time as another one, each with its own context."""
    barrier.wait(300)
    PipesContext.get().log.info(name)
    said = []

    def in_thread():
        try:
            PipesContext.get().log.info(f"{name} in a thread")
        except DagsterPipesError as error:
            said.append(str(error))

    context = copy_context()
    for run in (in_thread, lambda: context.run(in_thread)):
        thread = threading.Thread(target=run)
        thread.start()
        thread.join(300)
    other.wait(300)
    return said


def writes_outlets(**upstream):
    with Path(os.environ["EXAMLOPS_OUTLET_EVENTS"]).open("a") as file:
        file.write('{"dataset": "s3://b/by-file"}\n')
    return os.environ["EXAMLOPS_ASSET"], os.environ["EXAMLOPS_PARTITION"]


def variables_of_a_program(**upstream):
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True, timeout=300
    )
    return done.stdout.strip()
