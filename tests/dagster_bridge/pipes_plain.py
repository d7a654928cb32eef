"""Plain Dagster assets that run programs by our clients; imported by tests and by their processes."""

import os
import sys
from pathlib import Path

from dagster import DagsterInstance, Definitions, asset, in_process_executor
from dagster._core.definitions.job_base import InMemoryJob
from dagster._core.execution.api import execute_run_iterator
from dagster._core.storage.tags import GRPC_INFO_TAG, RESUME_RETRY_TAG

from examlops_dagster import PipesSlurmClient


@asset
def slow(context, pipes_slurm: PipesSlurmClient):
    folder = Path(os.environ["SLOW_FOLDER"])
    run = pipes_slurm.run(context=context, script=folder / "slow.py", args=[str(folder)])
    return run.get_materialize_result()


defs = Definitions(
    [slow], resources={"pipes_slurm": PipesSlurmClient()}, executor=in_process_executor
)


def execute(instance, parent=None, launched=True):
    """Run the asset as a run worker does; a run with a parent retries it from its failure."""
    job = defs.resolve_implicit_global_asset_job_def()
    tags = {GRPC_INFO_TAG: "{}"} if launched else {}
    if parent:
        tags[RESUME_RETRY_TAG] = "true"
    run = instance.create_run_for_job(
        job_def=job, parent_run_id=parent, root_run_id=parent, tags=tags
    )
    for _ in execute_run_iterator(InMemoryJob(job), run, instance):
        pass
    return instance.get_run_by_id(run.run_id)


if __name__ == "__main__":
    with DagsterInstance.get() as found:
        execute(found, launched=sys.argv[1] == "launched")
