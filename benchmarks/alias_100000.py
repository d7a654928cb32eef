"""A consumer of an alias with 100,000 past events, beside one with ten.

Whole processes: `exa assets status`, and `exa assets materialize consumer` after one more event,
over two homes that differ in the history alone; the two in turn.
"""

from __future__ import annotations

import argparse
import os
from functools import partial
from pathlib import Path

from _common import PYTHON, home_in, in_turn, inside, run, scratch, show

MODULE = """
from examlops_dagster import DatasetAlias, asset


@asset(deps=[DatasetAlias("out")])
def consumer(inlet_events):
    return [event.uri for event in inlet_events["out"]]
"""

FILL = """
import sys
from datetime import datetime, timezone

from examlops_dagster.core.emissions import Emission
from examlops_dagster.core.records import Node
from examlops_dagster.ledger.emissions import publish, stage
from examlops_dagster.project import open_project

project = open_project(["mine"], reading=False)
project.event_log.sync()
with project.database.write() as connection:
    for number in range(int(sys.argv[1])):
        token = f"filled-{number}"
        stage(connection, token, [Emission(f"s3://bucket/day={number}", {"rows": 3}, {}, ("out",))])
        publish(connection, token, Node("producer"), "", datetime.now(timezone.utc))
    connection.execute("DELETE FROM unsent_outlets")
project.close()
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--size", type=int, default=100_000)
    parser.add_argument("--repeat", type=int, default=3)
    given = parser.parse_args()
    exa = [str(Path(PYTHON).with_name("exa")), "-m", "mine", "assets"]
    with scratch() as folder:
        homes = {}
        for events in (10, given.size):
            home = homes[events] = home_in(folder, f"home-{events}", {"mine": MODULE})
            with inside(home):
                run([PYTHON, "-c", FILL, str(events)], home)
                run([*exa, "materialize", "consumer"], home)

        def again(home: Path) -> None:
            run([*exa, "emit", "out", f"s3://new/{os.urandom(4).hex()}"], home)
            run([*exa, "materialize", "consumer"], home)

        works = {
            "status": lambda home: run([*exa, "status"], home),
            "one more event, and its build": again,
        }
        rows = []
        for title, work in works.items():
            took = in_turn({str(n): partial(work, home) for n, home in homes.items()}, given.repeat)
            many, few = took[str(given.size)], took["10"]
            rows.append((title, few, many, many / few))
        show(
            f"A consumer of an alias with {given.size} past events, beside one with 10",
            ("", "10 events", f"{given.size} events", "ratio"),
            rows,
        )


if __name__ == "__main__":
    main()
