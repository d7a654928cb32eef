"""flux job id, status, attach, eventlog, info, kill, urgency, purge."""

import json
import signal
import sys
import time

from fluxlib.instance import Instance, f58, read_id

RESULTS = {"COMPLETED": 1, "FAILED": 2, "CANCELED": 4, "TIMEOUT": 8}
USAGE = "Usage: flux-job attach [OPTIONS] id\n"


def job(argv):
    name, *rest = argv or ["help"]
    commands = {"id": id_, "status": status, "attach": attach, "eventlog": eventlog, "info": info,
                "kill": kill, "urgency": urgency, "purge": purge}  # fmt: skip
    if name not in commands:
        sys.stderr.write(f"flux-job: {name}: unknown subcommand\n")
        return 1
    return commands[name]([w for w in rest if not w.startswith("-")], rest)


def id_(words, argv):
    to = next((word[5:] for word in argv if word.startswith("--to=")), "dec")
    for word in words:
        number = read_id(word)
        if number is None:
            sys.stderr.write(f'flux-job: error parsing jobid: "{word}"\n')
            return 1
        hexadecimal = f"{number:016x}"
        groups = [hexadecimal[i : i + 4] for i in range(0, 16, 4)]
        print({"dec": str(number), "hex": hex(number), "f58": f58(number),
               "f58plain": f58(number, plain=True), "dothex": ".".join(groups),
               "kvs": "job." + ".".join(groups)}[to])  # fmt: skip
    return 0


def status(words, argv):
    """Wait for the end of all: there is no form that does not."""
    return max(_status(word, argv) for word in words)


def _status(word, argv):
    number = read_id(word)
    if number is None:
        sys.stderr.write(f'flux-job: error parsing jobid: "{word}"\n')
        return 1
    one = _ended(Instance.connect(), number)
    if one is None:
        sys.stderr.write(f"flux-job: {word}: No such job\n")
        return 1
    if "--json" in argv or "-j" in argv:
        told = {"id": number, "exception_occurred": "exception" in one}
        told |= {key: one[key] for key in ("t_submit", "t_run") if key in one}
        if "exception" in one:
            told |= {
                f"exception_{key}": one["exception"][key] for key in ("type", "note", "severity")
            }
        told |= {key: one[key] for key in ("t_cleanup", "waitstatus") if key in one}
        print(json.dumps(told | {"result": RESULTS[one["result"]]}, separators=(",", ":")))
    elif "-v" in argv and one["returncode"] > 0:
        sys.stderr.write(f"flux-job: {f58(number)}: exited with exit code {one['returncode']}\n")
    return _code(one)


def attach(words, _argv):
    if not words:
        sys.stderr.write(USAGE)
        return 1
    instance = Instance.connect()
    one = _ended(instance, read_id(words[0]))
    if one is None:
        sys.stderr.write(f"flux-job: Failed to attach to {words[0]}: No such job\n")
        return 1
    out, err = (instance.path(one["id"], suffix) for suffix in (".stdout", ".stderr"))
    if out.exists():
        sys.stdout.write(out.read_text(errors="replace"))
        sys.stdout.flush()
    raised = one.get("exception")
    if raised:
        age = one.get("t_cleanup", one["t_submit"]) - one["t_submit"]
        sys.stderr.write(
            f"{age:.3f}s: job.exception {f58(one['id'])} type={raised['type']} severity=0 {raised['note']}\n"
        )
    code = one["returncode"]
    if one.get("waitstatus"):
        ended = f"exited with exit code {code}"
        if code > 128:
            ended = signal.strsignal(code - 128)
        sys.stderr.write(f"flux-job: task(s) {ended}\n")
    for name, stream in (("output", "stdout"), ("error", "stderr")):
        if one[name] and "t_run" in one:
            sys.stderr.write(f"0: {stream} redirected to {one[name]}\n")
    if err.exists():
        sys.stderr.write(err.read_text(errors="replace"))
    return _code(one)


def eventlog(words, argv):
    one = Instance.connect().load(read_id(words[-1]))
    if one is None:
        sys.stderr.write(f"flux-job: job {words[-1]} not found\n")
        return 1
    for entry in one["events"]:
        if "json" in argv:
            print(json.dumps(entry, separators=(",", ":")))
        else:
            context = "".join(
                f" {key}={json.dumps(value, separators=(',', ':'))}"
                for key, value in entry.get("context", {}).items()
            )
            print(f"{entry['timestamp']:.6f} {entry['name']}{context}")
    return 0


def info(words, argv):
    one = Instance.connect().load(read_id(words[0]))
    if one is None:
        sys.stderr.write("flux-job: invalid job id\n")
        return 1
    if words[1] == "eventlog":
        return eventlog([words[0]], ["json"])
    if words[1] != "jobspec":
        sys.stderr.write(f"flux-job: {words[1]}: key not found\n")
        return 1
    user = {
        k.removeprefix("user."): v for k, v in one["attributes"].items() if k.startswith("user.")
    }
    system = {k: v for k, v in one["attributes"].items() if not k.startswith("user.")}
    system = {"duration": one["duration"], "cwd": one["cwd"], "job": {"name": one["name"]}} | system
    if one["constraint"] is not None:
        system["constraints"] = one["constraint"]
    attributes = {"system": system} | ({"user": user} if user else {})
    tasks = [{"command": one["command"], "slot": "task", "count": {"per_slot": 1}}]
    print(json.dumps({"resources": [], "tasks": tasks, "attributes": attributes, "version": 1}))
    return 0


def kill(words, argv):
    number = read_id(words[-1])
    one = Instance.connect().load(number)
    if one is None:
        sys.stderr.write(f"flux-job: kill {words[-1]}: unknown job id\n")
        return 1
    if one["state"] != "RUN":
        what = "inactive" if one["state"] == "INACTIVE" else "not running"
        sys.stderr.write(f"flux-job: kill {f58(number)}: job is {what}\n")
        return 1
    name = argv[argv.index("-s") + 1] if "-s" in argv else "TERM"
    Instance.connect().order(number, kill=int(signal.Signals[f"SIG{name.removeprefix('SIG')}"]))
    return 0


def urgency(words, _argv):
    Instance.connect().order(read_id(words[0]), urgency={"hold": 0}.get(words[1]) or int(words[1]))
    return 0


def purge(words, _argv):
    instance = Instance.connect()
    for word in words:
        instance.path(read_id(word)).unlink(missing_ok=True)
    left = sum(one["state"] == "INACTIVE" for one in instance.all())
    print(f"purged {len(words)} inactive jobs, {left} remaining")
    return 0


def _ended(instance, number):
    while True:
        one = instance.load(number)
        if one is None or one["state"] == "INACTIVE":
            return one
        time.sleep(0.05)


def _code(one):
    return one["returncode"] if one["returncode"] >= 0 else 1
