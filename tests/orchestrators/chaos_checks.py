"""What must hold after a storm."""

import json
from collections import defaultdict
from pathlib import Path

from chaos_project import ASSETS, BROKEN
from chaos_storm import BY_SCHEDULER
from dagster import AssetKey, DagsterInstance

from examlops_dagster.ledger.jobs import OPEN_STATES

MOST_REQUESTS = 8
"""Until all is fresh."""


def settle(world, storm):
    """Give the same requests until one says that all is fresh."""
    for command in world.commands:
        if command.is_alive:
            command.wait()
    for process in world.waiting():  # of --detach
        process.wait(60)
    for name in sorted(storm.forced):
        world.run("assets", "materialize", name, "--force", *BY_SCHEDULER)
    for _ in range(MOST_REQUESTS):
        code, said = world.run("assets", "materialize", *ASSETS)
        if code == 0 and "already fresh" in said:
            break
    else:
        raise AssertionError(f"not fresh after {MOST_REQUESTS} requests: {said}")
    code, said = world.run("assets", "materialize", BROKEN, *BY_SCHEDULER)
    assert code == 1, said
    assert "it fails by itself" in said


def problems(world, storm):
    """Give what does not hold, in words."""
    return [
        *_overlaps(world),
        *_versions(world),
        *_lost_work(world, storm),
        *_events(world),
        *_leftovers(world),
        *_commands(world),
    ]


def _overlaps(world):
    for run in world.executions().values():
        if run["beside"]:
            yield f"(1) {run['node']}: run {run['run'][:8]} began beside {run['beside']}"


def _node(row):
    return f"{row['asset']}[{row['partition']}]" if row["partition"] else row["asset"]


def _builds(world, state="succeeded"):
    return world.sql("SELECT * FROM builds WHERE state = ? ORDER BY id", state)


def _run_of(world, build, by_token):
    """Give the execution that a build recorded: it is the data version, or that of the job."""
    if build["asset"] != "program":
        return build["data_version"]
    job = json.loads(build["provenance"]).get("hpc_job_id")
    rows = world.sql("SELECT token FROM hpc_jobs WHERE job_id = ? AND asset = 'program'", job)
    return by_token.get(rows[-1]["token"]) if rows else None


def _versions(world):
    """Each version is one execution that ended, and none is of two versions."""
    executions = world.executions()
    by_token = {e["token"]: run for run, e in executions.items() if e["node"] == "program"}
    seen = defaultdict(list)
    for build in _builds(world):
        if build["asset"] == "PM100":
            continue
        name = f"{_node(build)} v{build['version']}"
        run = _run_of(world, build, by_token)
        execution = executions.get(run)
        if execution is None:
            yield f"(2) {name}: no function ran for {run}"
        elif not execution["ended"] or execution["node"] != _node(build):
            yield f"(2) {name}: {execution}"
        seen[run].append(name)
    for run, names in seen.items():
        if len(names) > 1:
            yield f"(2) run {run} is recorded as {names}"


def _lost_work(world, storm):
    """What ended well as a job, and nobody cancelled, is recorded."""
    rows = {(r["token"], r["array_index"]): r for r in world.sql("SELECT * FROM hpc_jobs")}
    recorded = {build["data_version"] for build in _builds(world)}
    by_job = {json.loads(b["provenance"]).get("hpc_job_id") for b in _builds(world)}
    for path in sorted(world.jobs.glob("*/exit*.json")):
        _, _, task = path.stem.partition(".")
        row = rows.get((path.parent.name, int(task) if task else -1))
        if row is None:
            yield f"(2) a job of which nobody knows ran: {path}"
            continue
        is_outdated = not row["fingerprint"] and (storm.forced or storm.has_changed)
        failed = json.loads(path.read_text())["code"] != 0
        if failed or is_outdated or row["state"] == "CANCELLED":
            continue
        result = (
            path.parent / f"out.{task}" / "result.json" if task else path.parent / "out/result.json"
        )
        if row["asset"] == "program":
            found = row["job_id"] in by_job
        else:
            found = json.loads(result.read_text())["data_version"] in recorded
        if not found:
            yield (
                f"(2) the work of job {row['job_id']} of {_node(row)} is lost: it is "
                f"{row['state']} ({row['reason']})"
            )


def _events(world):
    """Events are of builds that succeeded, in the order of their versions."""
    builds = {b["build_id"]: b for b in world.sql("SELECT * FROM builds")}
    with DagsterInstance.from_config(str(world.home)) as instance:
        for name in (*ASSETS, BROKEN):
            last = defaultdict(int)
            found = instance.fetch_materializations(AssetKey(name), limit=1000).records[::-1]
            for record in found:
                event = record.asset_materialization
                build = builds.get(event.tags.get("examlops/build"), {"state": "unknown"})
                node = f"{name}[{event.partition}]" if event.partition else name
                version = int(event.tags["examlops/version"])
                if build["state"] not in ("succeeded", "unchanged"):
                    yield f"(3) {node}: an event of a build that is {build}"
                    continue
                if build["version"] != version:
                    yield f"(3) {node}: event says v{version}, {build}"
                grown = version > last[node]
                if not grown and (build["state"] != "unchanged" or version < last[node]):
                    yield f"(3) {node}: v{version} after v{last[node]}"
                last[node] = version
            if name == BROKEN and found:
                yield f"(3) {name} has events"
            heads = world.sql("SELECT * FROM heads WHERE asset = ?", name)
            for head in heads:
                if last[_node(head)] != head["version"]:
                    yield f"(3) {_node(head)}: v{head['version']}, the last event is v{last[_node(head)]}"
    for build in builds.values():
        if build["state"] not in ("succeeded", "unchanged") and build["event_id"] is not None:
            yield f"(3) {_node(build)}: {build}"


def _leftovers(world):
    for line in world.left_at_scheduler():
        yield f"(4) at the scheduler: {line}"
    marks = ", ".join("?" * len(OPEN_STATES))
    for job in world.sql(f"SELECT * FROM hpc_jobs WHERE state IN ({marks})", *OPEN_STATES):
        yield f"(4) job {job['job_id'] or job['token'][:8]} of {_node(job)}: {job['state']} ({job['reason']})"
    for build in _builds(world, "running"):
        yield f"(4) {_node(build)}: a build is running, {build}"
    for row in world.sql("SELECT * FROM claims"):
        if Path(f"/proc/{row['pid']}").exists():
            yield f"(4) {_node(row)} is claimed by {row['pid']}"
    states = world.statuses()
    for name, state in states.items():
        if state != ("failed" if name == BROKEN else "fresh"):
            yield f"(5) {name} is {state}"


def _commands(world):
    for words, expected in (
        (("audit", "verify"), 0),
        (("assets", "status", "top", "--check"), 0),
        (("assets", "status", "--check"), 3),
    ):
        code, said = world.run(*words)
        if code != expected:
            yield f"(5) exa {' '.join(words)} ended with {code}: {said}"
