"""flux submit and flux batch."""

import argparse
import json
import os
import re
import subprocess
import sys
from pathlib import Path

from fluxlib.constraints import ConstraintError, eligible, numbers, parse
from fluxlib.instance import Instance, event, f58, write
from fluxlib.placing import unsatisfiable

USAGES = {
    "submit": "flux submit [OPTIONS...] COMMAND [ARGS...]",
    "batch": "flux batch [OPTIONS...] [SCRIPT] [ARGS...]",
}
UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "ms": 0.001, "": 60}
_DIRECTIVE = re.compile(r"(?:#\s?)?flux:(.*)")


class RefusedError(Exception):
    def __init__(self, text, code=1):
        self.code = code
        super().__init__(text)


def submit(argv):
    return _run("submit", argv)


def batch(argv):
    return _run("batch", argv)


def _run(kind, argv):
    try:
        options = _parse(kind, argv)
        instance = Instance.connect()
        tasks = numbers(options.cc) if options.cc else [None]
        ids = instance.new_ids(len(tasks))
        made = [_job(kind, options, *pair) for pair in zip(ids, tasks, strict=True)]
    except RefusedError as refused:
        sys.stderr.write(f"{refused}\n")
        return refused.code
    environment = os.environ | {
        name: value for name, _, value in (rule.partition("=") for rule in options.env) if value
    }
    for one in made:
        instance.save(one)
    write(instance.path(ids[0], ".env"), json.dumps(environment))
    subprocess.Popen(
        [sys.executable, "-ES", sys.argv[0], "fake-supervise", *map(str, ids)],
        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        start_new_session=True, cwd="/",
    )  # fmt: skip
    for number in ids:
        print(f58(number))
    return 0


def _parser(kind):
    parser = argparse.ArgumentParser(
        prog=f"flux {kind}", usage=USAGES[kind], add_help=False, allow_abbrev=False
    )
    per = "slot" if kind == "batch" else "task"
    parser.add_argument("-n", f"--n{per}s", dest="tasks", type=int)
    parser.add_argument("-N", "--nodes", type=int)
    parser.add_argument("-c", f"--cores-per-{per}", dest="cores", type=int, default=1)
    parser.add_argument("-g", f"--gpus-per-{per}", dest="gpus", type=int, default=0)
    for name in ("job-name", "input", "output", "error", "cwd", "dependency", "flags"):
        parser.add_argument(f"--{name}")
    parser.add_argument("--requires", action="append")
    parser.add_argument("-t", "--time-limit", default="0")
    parser.add_argument("-q", "--queue")
    parser.add_argument("-B", "--bank")
    parser.add_argument("--urgency", type=int, default=16)
    parser.add_argument("-x", "--exclusive", action="store_true")
    parser.add_argument("--env", action="append", default=[])
    parser.add_argument("--setattr", action="append", default=[])
    parser.add_argument("-o", "--setopt", action="append", default=[])
    if kind == "submit":
        parser.add_argument("--cc")
    else:
        parser.add_argument("--wrap", action="store_true")
    parser.add_argument("command", nargs=argparse.REMAINDER)
    return parser


def _parse(kind, argv):
    parser = _parser(kind)
    try:
        options, unknown = parser.parse_known_args(argv)
    except SystemExit as stop:
        raise RefusedError("", int(stop.code or 2)) from stop
    if unknown:
        words = " ".join(unknown)
        raise RefusedError(
            f"usage: {USAGES[kind]}\nflux {kind}: error: unrecognized arguments: {words}", 2
        )
    if options.command[:1] == ["--"]:
        options.command = options.command[1:]
    if kind == "batch":
        options.cc = None
        options.script = _script(parser, options)
    options.duration = _duration(kind, options.time_limit)
    if options.queue:
        prefix = "flux-batch: ERROR:" if kind == "batch" else "[Errno 22]"
        raise RefusedError(f"{prefix} '{options.queue}' is not a valid queue")
    if kind == "batch" and not options.tasks and not options.nodes:
        raise RefusedError("flux-batch: ERROR: Number of slots to allocate must be specified")
    if options.nodes and options.tasks and options.nodes > options.tasks:
        raise RefusedError(f"flux-{kind}: ERROR: node count must not be greater than task count")
    if options.exclusive and not options.nodes:
        raise RefusedError(f"flux-{kind}: ERROR: exclusive can only be set with a node count")
    options.constraint = _constraint(kind, options.requires)
    if kind == "submit" and not options.command:
        raise RefusedError("flux-submit: ERROR: job command and arguments are missing")
    return options


def _script(parser, options):
    """Read the script; any line of it may be a directive, user text included."""
    if options.wrap:
        text = "#!/bin/sh\n" + " ".join(options.command) + "\n"
        options.command = []
        return text
    name = options.command[0] if options.command else "batch"
    try:
        text = Path(name).read_text() if options.command else sys.stdin.read()
    except OSError:
        raise RefusedError(f"flux-batch: ERROR: No such file or directory: '{name}'") from None
    if not text.startswith("#!"):
        raise RefusedError(f"flux-batch: ERROR: {name} does not appear to start with '#!'")
    for number, line in enumerate(text.splitlines(), 1):
        found = _DIRECTIVE.fullmatch(line.strip())
        if found:
            _, unknown = parser.parse_known_args([*found[1].split(), "x"], options)
            if unknown:
                raise RefusedError(
                    f"flux-batch: ERROR: argument parsing failed at {name} line {number}\n"
                    f"usage: {USAGES['batch']}\n"
                    f"flux batch: error: unrecognized arguments: {' '.join(unknown)}",
                    2,
                )
    return text


def _constraint(kind, requires):
    """Read all --requires together."""
    if requires is None:
        return None
    query = " ".join(requires)
    try:
        return parse(query)
    except ConstraintError as error:
        if error.is_syntax:
            text = f"flux-{kind}: ERROR: --requires='{query}': {error}"
        else:
            text = f"{'flux-batch: ERROR:' if kind == 'batch' else '[Errno 1]'} {error}"
        raise RefusedError(text) from error


def _duration(kind, text):
    found = re.fullmatch(r"(-?[\d.]+)(ms|[smhd]?)", text)
    if not found:
        raise RefusedError(f"flux-{kind}: ERROR: invalid Flux standard duration")
    if float(found[1]) < 0:
        raise RefusedError(f"flux-{kind}: ERROR: duration must not be negative")
    return float(found[1]) * UNITS[found[2]]


def _job(kind, options, number, cc):
    def put(text):
        if text is None or cc is None:
            return text
        return text.replace("{cc}", str(cc))

    tasks = options.tasks or options.nodes or 1
    whole = options.exclusive or not (options.tasks or not options.nodes)
    asked = {
        "tasks": tasks,
        "nodes": options.nodes,
        "cores": options.cores,
        "gpus": options.gpus,
        "whole": whole,
        "eligible": eligible(options.constraint),
    }
    command = [put(word) for word in options.command]
    default = Path(command[0]).name if command else "batch"
    one = {
        "id": number,
        "kind": kind,
        "name": put(options.job_name) if options.job_name is not None else default,
        "cwd": options.cwd or str(Path.cwd()),
        "ntasks": options.nodes if kind == "batch" else tasks,  # one broker a node
        "nnodes": options.nodes,
        "ncores": None if whole else tasks * options.cores,
        "asked": asked,
        "duration": options.duration,
        "urgency": options.urgency,
        "bank": options.bank,
        "command": command,
        "script": options.script if kind == "batch" else None,
        "cc": cc,
        "input": options.input,
        "output": put(options.output),
        "error": put(options.error),
        "attributes": dict(rule.partition("=")[::2] for rule in options.setattr),
        "constraint": options.constraint,
        "state": "SCHED",
        "unsatisfiable": unsatisfiable(asked),
        "events": [],
    }
    one["t_submit"] = event(one, "submit", userid=os.getuid(), urgency=options.urgency,
                            flags=4 if options.flags else 0, version=1)  # fmt: skip
    event(one, "validate")
    one["t_depend"] = event(one, "depend")
    one["t_priority"] = event(one, "priority", priority=options.urgency)
    one["t_sched"] = one["t_priority"]
    return one
