"""flux jobs, as text and as JSON."""

import json
import os
import pwd
import re
import sys
import time

from fluxlib.instance import Instance, f58, read_id
from fluxlib.placing import hosts_text, ranks_text

SHORT = {"DEPEND": "D", "PRIORITY": "P", "SCHED": "S", "RUN": "R", "CLEANUP": "C",
         "COMPLETED": "CD", "FAILED": "F", "CANCELED": "CA", "TIMEOUT": "TO"}  # fmt: skip
HEADER = "       JOBID USER     NAME       ST NTASKS NNODES     TIME INFO"
CUT = 1000
INVALID = """usage: flux-jobs [-h] [-a] [-A] [-c N] [-f STATE|RESULT] [--since WHEN] [-n]
                 [-u [USERNAME|UID]] [--name JOB-NAME] [-q QUEUE,...]
                 [-i HOSTS|RANKS] [-o FORMAT] [--sort KEY,...] [-w [N]]
                 [--json] [--color [WHEN]] [-R] [-L N] [--recurse-all]
                 [--threads N] [--stats] [--stats-only]
                 [JOBID ...]
flux-jobs: error: argument JOBID: invalid JobID value: '{}'
"""


def jobs(argv):
    flags, words, name, form, count = _parse(argv)
    for word in words:
        if read_id(word) is None:
            sys.stderr.write(INVALID.format(word))
            return 2
    instance = Instance.connect()
    if "--stats-only" in flags:
        return _stats(instance.all())
    found = [instance.load(read_id(word)) for word in words]
    unknown = [word for word, job in zip(words, found, strict=True) if job is None]
    found = [job for job in found if job is not None]
    code = 1 if words and not found else 0
    if not words:
        found = [j for j in instance.all() if "-a" in flags or j["state"] != "INACTIVE"]
        found = _cut([job for job in found if name is None or job["name"] == name], count)
    if "--json" in flags:
        _json(found, one=len(words) == 1)
    else:
        _text(found, form, header="-n" not in flags)
    sys.stdout.flush()
    for word in unknown:
        sys.stderr.write(f"JobID {word} unknown\n")
    return code


def _parse(argv):
    flags, words, name, form, count = set(), [], None, None, CUT
    rest = iter(argv)
    for word in rest:
        if word in ("-o", "--format", "-no"):
            flags |= {"-n"} if word == "-no" else set()
            form = next(rest)
        elif word.startswith("--name="):
            name = word[7:]
        elif word.startswith("-c"):
            count = int(word[2:] or next(rest))
        elif word.startswith("-"):
            flags.add(word)
        else:
            words.append(word)
    return flags, words, name, form, count


def _cut(found, count):
    if count and len(found) > count:
        sys.stderr.write(
            f"warning: output truncated at {count} jobs.\n"
            "Use --count to increase returned results or use filters to alter results.\n"
        )
        return found[:count]
    return found


def _json(found, *, one):
    described = [describe(job) for job in found]
    if not one:
        print(json.dumps({"jobs": described}))
    elif described:
        print(json.dumps(described[0]))


def status(job):
    return job["result"] if job["state"] == "INACTIVE" else job["state"]


def describe(job):
    """Give the keys that are known, in Flux's order."""
    user = pwd.getpwuid(os.getuid()).pw_name
    keys = {key: job.get(key) for key in ("t_depend", "t_priority", "t_sched", "t_run", "t_cleanup",
            "t_inactive", "duration", "expiration", "name", "cwd", "bank", "ntasks", "ncores")}  # fmt: skip
    ran = "t_run" in job
    keys |= {
        "nnodes": job["nnodes"],
        "priority": job["urgency"],
        "ranks": ranks_text(job["room_ranks"]) if ran else None,
        "nodelist": hosts_text(job["room_ranks"]) if ran else None,
        "success": job.get("success"),
        "result": job.get("result"),
        "waitstatus": job.get("waitstatus"),
        "id": job["id"],
        "t_submit": job["t_submit"],
        "state": job["state"],
        "username": user,
        "userid": os.getuid(),
        "urgency": job["urgency"],
        "runtime": (job.get("t_cleanup") or time.time()) - job["t_run"] if ran else None,
        "status": status(job),
        "returncode": job.get("returncode"),
        "dependencies": [],
        "jobid": f58(job["id"]),
        "annotations": job.get("annotations", {}),
        "exception": job.get("exception", {"occurred": False}),
    }
    return {key: value for key, value in keys.items() if value is not None}


def _text(found, form, *, header):
    if form is not None:
        if header:
            print(re.sub(r"\{([^}]*)\}", lambda m: _title(m[1]), form))
        for job in found:
            print(re.sub(r"\{([^}]*)\}", lambda m, job=job: _field(job, m[1]), form))
        return
    if header:
        print(HEADER)
    for job in found:
        told = describe(job)
        name = job["name"] if len(job["name"]) <= 10 else job["name"][:9] + "+"
        runtime = f"{told['runtime']:.3f}s" if "runtime" in told else "-"
        info = told.get("nodelist") or ("held" if job["urgency"] == 0 else "")
        print(
            f"{f58(job['id']):>12} {told['username']:<8.8} {name:<10} {SHORT[status(job)]:>2} "
            f"{told.get('ntasks', '-'):>6} {told.get('nnodes', '-'):>6} {runtime:>8} {info}"
        )


def _title(field):
    return {"inactive_reason": "INACTIVE-REASON"}.get(field) or (
        "JOBID" if field.startswith("id") else field.upper()
    )


def _field(job, field):
    if field == "id.f58plain":
        return f58(job["id"], plain=True)
    if field in ("id", "id.f58"):
        return f58(job["id"])
    if field == "id.dec":
        return str(job["id"])
    return str(describe(job).get(field, ""))


def _stats(found):
    def count(*words):
        return sum(status(job) in words for job in found)

    running, pending = count("RUN"), count("SCHED", "DEPEND", "PRIORITY")
    print(
        f"{running} running, {count('COMPLETED')} completed, "
        f"{count('FAILED', 'CANCELED', 'TIMEOUT')} failed, {pending} pending, 0 inactive purged"
    )
    return 0 if running or pending else 1
