"""The commands, and what they say where there is no instance."""

import os
import sys

from fluxlib import job, jobs, submit
from fluxlib.instance import HOSTS, Instance, NoInstanceError, f58, read_id
from fluxlib.placing import CORES, GPUS, hosts_text
from fluxlib.supervisor import supervise

NO_BROKER = "Unable to connect to Flux: broker socket /run/flux/local was not found"


def main(argv):
    if os.environ.get("PYTHONHOME"):
        sys.stderr.write("Fatal Python error: init_fs_encoding\n")
        return 1
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(encoding="utf-8")
    name, *rest = argv or ["help"]
    commands = {
        "submit": submit.submit,
        "batch": submit.batch,
        "jobs": jobs.jobs,
        "cancel": cancel,
        "job": job.job,
        "getattr": getattr_,
        "version": version,
        "resource": resource,
        "queue": queue,
        "fake-supervise": lambda rest: supervise(Instance.connect(), rest),
    }
    if name not in commands:
        sys.stderr.write(f"flux: `{name}' is not a flux command.  See 'flux --help'\n")
        return 1
    try:
        return commands[name](rest)
    except NoInstanceError:
        if name == "getattr":
            sys.stderr.write("flux: flux_open: No such file or directory\n")
        elif name == "job":
            sys.stderr.write("flux-job: flux_open: No such file or directory\n")
        else:
            sys.stderr.write(f"flux-{name}: ERROR: {NO_BROKER}\n")
        return 1


def cancel(argv):
    words = [word for word in argv if not word.startswith("-")]
    note = ""
    if "-m" in argv:
        note = argv[argv.index("-m") + 1]
        words.remove(note)
    for word in words:
        if read_id(word) is None:
            sys.stderr.write(
                "usage: flux cancel [OPTIONS] [JOBID...]\n"
                f"flux-cancel: error: argument JOBID...: invalid JobID value: '{word}'\n"
            )
            return 2
    instance = Instance.connect()
    if "--all" in argv:
        found = [j for j in instance.all() if j["state"] != "INACTIVE"]
        for one in found:
            instance.order(one["id"], cancel=note)
        sys.stderr.write(f"flux-cancel: Matched {len(found)} jobs\n")
        return 0
    code = 0
    for number in map(read_id, words):
        one = instance.load(number)
        if one is None:
            sys.stderr.write(f"flux-cancel: ERROR: {f58(number)}: unknown job id\n")
            code = 1
        elif one["state"] == "INACTIVE":
            sys.stderr.write(f"flux-cancel: ERROR: {f58(number)}: job is inactive\n")
            code = 1
        else:
            instance.order(number, cancel=note)
    return code


def getattr_(argv):
    Instance.connect()
    if argv != ["size"]:
        sys.stderr.write(f"flux-getattr: {argv[-1] if argv else ''}: No such file or directory\n")
        return 1
    print(len(HOSTS))
    return 0


def version(_argv):
    print("commands:    \t\t0.88.0\nlibflux-core:\t\t0.88.0")
    if os.environ.get("FAKE_FLUX"):
        print("broker:  \t\t0.88.0")
        print(f"FLUX_URI:\t\tlocal://{os.environ['FAKE_FLUX']}/local-0")
    print("build-options:\t\t+hwloc.api==2.8.0+zmq==4.3.4")
    return 0


def resource(_argv):
    instance = Instance.connect()
    free, lost = instance.free(), instance.lost()
    rooms = {
        "free": {r: (len(c), len(g)) for r, (c, g) in free.items() if r not in lost and (c or g)},
        "allocated": {
            r: (CORES - len(c), GPUS - len(g)) for r, (c, g) in free.items() if len(c) < CORES
        },
        "down": dict.fromkeys(lost, (CORES, GPUS)),
    }
    print("     STATE NNODES NCORES NGPUS NODELIST")
    for state, room in rooms.items():
        cores, gpus = (sum(has[n] for has in room.values()) for n in (0, 1))
        print(f"{state:>10} {len(room):6} {cores:6} {gpus:5} {hosts_text(room)}")
    return 0


def queue(_argv):
    Instance.connect()
    print("Job submission is enabled\nScheduling is started")
    return 0
