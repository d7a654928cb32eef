"""Plain Dagster assets whose jobs wait side by side; imported by tests and by their processes."""

import os
import sys
import threading
from pathlib import Path

from dagster import DagsterInstance, Definitions, asset
from dagster._core.definitions.job_base import InMemoryJob
from dagster._core.execution.api import execute_run_iterator
from dagster._core.storage.tags import GRPC_INFO_TAG

from examlops_dagster import PipesSlurmClient, waiting_executor

COUNT = 20

# Each waits until the others run, so that it ends only if all do at one time.
TOGETHER = """\
import os, pathlib, sys, time
from dagster_pipes import open_dagster_pipes

folder, count = pathlib.Path(sys.argv[1]), int(sys.argv[2])
(folder / f"started-{os.getpid()}").touch()
deadline = time.monotonic() + 600  # where a test left it
while len(list(folder.glob("started-*"))) < count and not (folder / "go").exists():
    if time.monotonic() > deadline:
        sys.exit("the others did not start")
    time.sleep(0.05)
with open_dagster_pipes() as pipes:
    if pipes.is_asset_step:
        pipes.report_asset_materialization({"pid": os.getpid()}, data_version=pipes.asset_key)
"""


class Guard:
    """Sees whether two functions are called at one time."""

    def __init__(self):
        self._lock = threading.Lock()
        self.met = False

    def __enter__(self):
        self.met = self.met or not self._lock.acquire(blocking=False)

    def __exit__(self, *_):
        if self._lock.locked():
            self._lock.release()


guard = Guard()
threads = {}


def together(name, count=COUNT, **how):
    @asset(name=name, **how)
    def built(context, pipes_slurm: PipesSlurmClient):
        folder = Path(os.environ["TOGETHER_FOLDER"])
        threads[name] = threading.current_thread()
        with guard:
            script = folder / "together.py"
            threading.Event().wait(0.02)
        done = pipes_slurm.run(context=context, script=script, args=[folder, count])
        with guard:
            threading.Event().wait(0.02)
            return done.get_materialize_result()

    return built


def definitions(assets, client=None):
    resources = {"pipes_slurm": client or PipesSlurmClient()}
    return Definitions(assets, resources=resources, executor=waiting_executor)


def execute(instance, found, launched=False, config=None):
    """Run all assets as a run worker does, or as part of this process."""
    job = found.resolve_implicit_global_asset_job_def()
    run = instance.create_run_for_job(
        job_def=job,
        tags={GRPC_INFO_TAG: "{}"} if launched else {},
        run_config={"execution": {"config": config}} if config else {},
    )
    for _ in execute_run_iterator(InMemoryJob(job), run, instance):
        pass
    return instance.get_run_by_id(run.run_id)


if __name__ == "__main__":
    every = [together(f"a{n}", COUNT + 1) for n in range(COUNT)]
    with DagsterInstance.get() as of_the_home:
        execute(of_the_home, definitions(every), launched=sys.argv[1] == "launched")
