"""Programs that speak Dagster Pipes, as users write them, and homes in which they are assets."""

import sys
import textwrap

from dagster import DagsterEventType, MetadataValue

from examlops_dagster.ledger.jobs import HpcJobs
from examlops_dagster.store.engine import Database

# As in dagster-slurm's examples: a script file that opens Pipes by itself, and knows nothing of us.
DAGSTER_SLURM_SCRIPT = """\
import os

from dagster_pipes import PipesContext, open_dagster_pipes


def main() -> None:
    context = PipesContext.get()
    context.log.info(f"processing {context.asset_key} on {os.uname().nodename}")
    number = context.get_extra("number")
    values = [x * x for x in range(number)]
    context.log.debug(f"{len(values)} values")
    context.report_asset_materialization(
        metadata={
            "total": sum(values),
            "report": {"raw_value": "https://example.org/report", "type": "url"},
            "notes": {"raw_value": "**good**", "type": "md"},
        },
        data_version=f"squares-{number}",
    )
    context.report_asset_check("not_empty", passed=bool(values), metadata={"values": len(values)})


if __name__ == "__main__":
    with open_dagster_pipes():
        main()
"""

TELLS = """\
import json, os
from dagster_pipes import open_dagster_pipes

with open_dagster_pipes() as pipes:
    pipes.log.debug("größer ƒ")
    pipes.log.warning("nearly full")
    pipes.report_custom_message({"progress": 0.5, "epoch": 3})
    pipes.report_custom_message({"examlops/outlet": {"dataset": "s3://b/by-pipes", "alias": "out"}})
    pipes.report_asset_check("rows", passed=False, severity="WARN", metadata={"rows": 3})
    pipes.report_asset_materialization(
        metadata={
            "loss": 0.25,
            "page": {"raw_value": "https://example.org/a", "type": "url"},
            "table": {"raw_value": {"a": [1, 2]}, "type": "json"},
        },
        data_version="told-1",
    )
    with open(os.environ["EXAMLOPS_OUTLET_EVENTS"], "a") as file:
        file.write("no JSON at all\\n")
        file.write(json.dumps({"dataset": "s3://b/by-file", "extra": {"k": 1}, "alias": ["x", "y"]}))
"""

RAISES = """\
from dagster_pipes import open_dagster_pipes

with open_dagster_pipes():
    try:
        raise KeyError("the cause")
    except KeyError as error:
        raise ValueError("this is why") from error
"""

NEVER_CLOSES = """\
import os
from dagster_pipes import open_dagster_pipes

open_dagster_pipes().log.info("so far so good")
os._exit(0)
"""

CLOSES_WITH_EXCEPTION = """\
from dagster_pipes import open_dagster_pipes

try:
    with open_dagster_pipes():
        raise ValueError("swallowed by the program")
except ValueError:
    pass
"""

STRANGE = """\
import json, os
from dagster_pipes import decode_param, open_dagster_pipes

path = decode_param(os.environ["DAGSTER_PIPES_MESSAGES"])["path"]


def say(method, **params):
    message = {"__dagster_pipes_version": "0.1", "method": method, "params": params}
    with open(path, "a") as file:
        file.write(json.dumps(message) + "\\n")


with open_dagster_pipes() as pipes:
    with open(path, "a") as file:
        file.write('{"torn": \\nnot a message\\n[1, 2]\\n')
    say("report_asset_materialization", asset_key="another", metadata=None, data_version="no")
    say("report_asset_check", asset_key="another", check_name="c", passed=False)
    say("report_asset_check", asset_key=None, check_name="broken")
    say("no_such_method", a=1)
    say("log", message=["no", "text"], level=7)
    say("report_asset_materialization", metadata={"bad": {"raw_value": "x", "type": "int"}})
say("log", message="after closed", level="INFO")
"""

SLOW = """\
import os, pathlib, sys, time

folder = pathlib.Path(sys.argv[1])
(folder / f"started-{os.getpid()}").touch()
deadline = time.monotonic() + 600  # where a test left it
while not (folder / "go").exists() and time.monotonic() < deadline:
    time.sleep(0.05)
from dagster_pipes import open_dagster_pipes
with open_dagster_pipes() as pipes:
    pipes.log.info("it went on")
    pipes.report_asset_materialization({"pid": os.getpid()}, data_version="slow-1")
"""


def script(home, text, name="program.py"):
    return home.write(name, textwrap.dedent(text))


def assert_squares(home, result, scheduler):
    """Assert that all that ``DAGSTER_SLURM_SCRIPT`` says of 4 is known; give its event and job."""
    assert result.success
    [event] = home.events("squares")
    assert event.metadata["total"] == MetadataValue.int(14)
    assert event.metadata["report"] == MetadataValue.url("https://example.org/report")
    assert event.metadata["notes"] == MetadataValue.md("**good**")
    assert event.metadata["examlops/scheduler"] == MetadataValue.text(scheduler)
    assert event.tags["dagster/data_version"] == "squares-4"
    [check] = result.get_asset_check_evaluations()
    assert (check.check_name, check.passed) == ("not_empty", True)
    assert any("processing squares on" in text for _, text in lines_of(home, result))
    [row] = jobs_of(home)
    assert (row.state, row.node.asset, row.run_id) == ("COMPLETED", "squares", result.run_id)
    return event, row


def asset_of(home, argv, *, name="told", orchestrator="scheduler", more=""):
    """Give a module with one asset that a program builds."""
    return home.module(
        f"from examlops_dagster import DatasetAlias, asset, daily, partitions\n\n\n"
        f"@asset({name!r}, command={list(map(str, argv))!r}, orchestrator={orchestrator!r}{more})\n"
        "def build(**keys): ...\n"
    )


def program_of(home, text, **how):
    return asset_of(home, [sys.executable, script(home, text)], **how)


def lines_of(home, result):
    """Give the log of a run: (level, text) of each line, a level's name in capitals."""
    import logging

    entries = home.instance.all_logs(result.run_id)
    return [(logging.getLevelName(e.level), e.user_message) for e in entries if e.user_message]


def text_of(home, result):
    return "\n".join(text for _, text in lines_of(home, result))


def jobs_of(home):
    """Give the jobs of a home, as platform.db has them."""
    database = Database(home.folder / "platform.db")
    try:
        return HpcJobs(database).listed(limit=100)
    finally:
        database.close()


def failure_of(result):
    """Give what the one step that failed says of its error."""
    [event] = [e for e in result.all_events if e.event_type is DagsterEventType.STEP_FAILURE]
    return event.step_failure_data.user_failure_data
