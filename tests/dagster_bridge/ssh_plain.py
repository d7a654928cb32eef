"""Plain Dagster assets whose jobs are submitted over SSH; imported by tests and their processes."""

import os
from pathlib import Path

from dagster import DagsterInstance, Definitions, asset
from dagster._core.definitions.job_base import InMemoryJob
from dagster._core.execution.api import execute_run_iterator
from dagster._core.storage.tags import GRPC_INFO_TAG, RESUME_RETRY_TAG

from examlops_dagster import PipesFluxClient, waiting_executor

COUNT = 2


def slow(name):
    @asset(name=name)
    def built(context, pipes: PipesFluxClient):
        folder = Path(os.environ["SLOW_FOLDER"])
        run = pipes.run(context=context, script=folder / "slow.py", args=[str(folder)])
        return run.get_materialize_result()

    return built


def definitions(assets, client):
    return Definitions(assets, resources={"pipes": client}, executor=waiting_executor)


def execute(instance, parent=None):
    """Run the slow ones as a run worker does; a run with a parent retries it from its failure."""
    found = definitions([slow(f"slow{n}") for n in range(COUNT)], PipesFluxClient())
    job = found.resolve_implicit_global_asset_job_def()
    tags = {GRPC_INFO_TAG: "{}", **({RESUME_RETRY_TAG: "true"} if parent else {})}
    run = instance.create_run_for_job(
        job_def=job, parent_run_id=parent, root_run_id=parent, tags=tags
    )
    for _ in execute_run_iterator(InMemoryJob(job), run, instance):
        pass
    return instance.get_run_by_id(run.run_id)


if __name__ == "__main__":
    with DagsterInstance.get() as of_the_home:
        execute(of_the_home)
