"""What policy, audit and lineage add to a slice of 100 trivial assets.

One process builds them, with a policy file of three rules and a backend for lineage (a server of
this benchmark); the processor time inside of governance is taken apart from the rest. Delivery has
a process of its own: what counts is how long the command waits for it, at its start and its end.
"""

from __future__ import annotations

import argparse
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from _common import PYTHON, home_in, ours, run, scratch, seconds, show, wide

POLICY = """\
policies:
  - {name: never, action: asset_materialize, when: "asset == 'never'", effect: deny}
  - {name: many-gpus, action: '*', when: "get(resources, 'gpus', 0) > 4", effect: deny}
  - {name: others, action: declare, effect: allow}
"""

CHILD = """
import functools, json, resource, sys, threading, time

from examlops_dagster.dagster_bridge import admission, body, execute, governed, node
from examlops_dagster.dagster_bridge import run as requests
from examlops_dagster.governance import governor
from examlops_dagster.governance.lineage_courier import Courier
from examlops_dagster.ledger import builds

here, spent = threading.local(), {"governance": 0.0, "delivery": 0.0}


def timed(function, kind="governance"):
    @functools.wraps(function)
    def call(*arguments, **named):
        if getattr(here, "inside", False):
            return function(*arguments, **named)
        here.inside, start = True, time.thread_time()
        try:
            return function(*arguments, **named)
        finally:
            here.inside = False
            spent[kind] += time.thread_time() - start

    return call


for name, thing in list(vars(governor.Governor).items()):
    if not name.startswith("_") and type(thing).__name__ == "function":
        setattr(governor.Governor, name, timed(thing))
for name in ("refusals", "passed", "nothing_to_do"):
    setattr(governed.Governed, name, timed(getattr(governed.Governed, name)))
own = {id(thing): timed(thing) for module in (admission, governed)
       for thing in vars(module).values()
       if type(thing).__name__ == "function" and thing.__module__ == module.__name__}
for module in (body, execute, requests, node, admission, governed):
    for name, thing in list(vars(module).items()):
        if id(thing) in own:
            setattr(module, name, own[id(thing)])
for name in ("begin_notes", "end_notes", "failure_notes"):
    setattr(node, name, timed(getattr(node, name)))
builds.write_notes = timed(builds.write_notes)


def awaited(function):
    @functools.wraps(function)
    def call(*arguments, **named):
        start = time.perf_counter()
        try:
            return function(*arguments, **named)
        finally:
            spent["delivery"] += time.perf_counter() - start

    return call


Courier.set_off, Courier.recall = awaited(Courier.set_off), awaited(Courier.recall)

start, begun = time.process_time(), time.perf_counter()
names = json.loads(sys.argv[1])
report = requests.materialize(names, modules=["mine"], in_process=True)
total, clock = time.process_time() - start, time.perf_counter() - begun
courier = resource.getrusage(resource.RUSAGE_CHILDREN)
spent["courier"] = courier.ru_utime + courier.ru_stime
assert report.ok and len(report.rebuilt) == len(names), report
print("took", json.dumps({**spent, "all": total, "clock": clock}))
"""


class Backend(BaseHTTPRequestHandler):
    """Takes every event."""

    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(201)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *arguments):
        """Say nothing."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--size", type=int, default=100)
    parser.add_argument("--repeat", type=int, default=3)
    given = parser.parse_args()
    server = ThreadingHTTPServer(("127.0.0.1", 0), Backend)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    graph = wide(given.size)
    best: dict[str, float] = {}
    with scratch() as folder:
        for number in range(given.repeat):
            home = home_in(folder, f"home-{number}", {"mine": ours(graph)})
            (home / "policy.yaml").write_text(POLICY)
            (home / "child.py").write_text(CHILD)
            url = f"http://127.0.0.1:{server.server_port}"
            said = run(
                [
                    "env",
                    f"EXAMLOPS_OPENLINEAGE_URL={url}",
                    PYTHON,
                    "child.py",
                    json.dumps([*graph]),
                ],
                home,
            )
            took = json.loads(said.partition("took ")[2].splitlines()[0])
            if not best or took["all"] < best["all"]:
                best = took
    server.shutdown()
    rest = best["all"] - best["governance"]
    inside, waiting = best["governance"] / rest, best["delivery"] / best["clock"]
    rows = [
        ("the build itself", seconds(rest), ""),
        (
            "policy, audit, facts for lineage",
            seconds(best["governance"]),
            f"{inside:.3f}",
        ),
        (
            f"waiting for the delivery, of {seconds(best['clock'])} on the clock",
            seconds(best["delivery"]),
            f"{waiting:.3f}",
        ),
        ("together", "", f"{inside + waiting:.3f}"),
        ("the delivery, in its own process", seconds(best["courier"]), ""),
    ]
    show(f"Processor time of a slice of {given.size} trivial assets", ("", "time", "ratio"), rows)


if __name__ == "__main__":
    main()
