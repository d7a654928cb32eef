"""The ids of tasks of arrays: as people and the scheduler's own commands know them."""

from __future__ import annotations

from examlops_dagster.core.jobs import HpcJob
from examlops_dagster.schedulers.base import JobRef, Scheduler


def known_id(scheduler: Scheduler, ref: JobRef) -> str:
    """Give ``1234_7`` for a task of an array; a scheduler may give each task an id of its own."""
    own = getattr(scheduler, "tasks_have_ids", False)
    if ref.index is None or own or not ref.job_id:
        return ref.job_id
    return f"{ref.job_id}_{ref.index - ref.offset}"


def ref_of(row: HpcJob) -> JobRef:
    """Give what identifies a job to its scheduler, from what is remembered of it."""
    job_id, _, task = row.job_id.partition("_")
    offset = row.array_index - int(task) if row.array_index is not None and task else 0
    return JobRef(
        row.scheduler, job_id, row.token, row.submitted_at, row.cluster, row.array_index, offset
    )
