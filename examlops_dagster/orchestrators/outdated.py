"""Jobs that were left running for what has changed since: they end before another is submitted.

Nobody takes such a job up any more, and two at a time would write to the same place.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timezone
from typing import NamedTuple

from examlops_dagster.core.jobs import HpcJob
from examlops_dagster.errors import AssetBuildError, ExamlopsError
from examlops_dagster.orchestrators.requests import build_error, unknown_earlier
from examlops_dagster.orchestrators.submitting import Find, Job, Submitting, cancel_all
from examlops_dagster.schedulers.base import JobState, JobStatus
from examlops_dagster.schedulers.folder import Exit

_CHANGED = "its code or what it is built from has changed since"


class Outdated(NamedTuple):
    """A job of another fingerprint that may still run."""

    submitting: Submitting
    job: Job


def outdated_of(
    submitting: Submitting, rows: Sequence[HpcJob], find: Find | None = None
) -> list[Outdated]:
    """Let those go that ended, so that no request takes them up, and give the others.

    Parameters
    ----------
    rows
        Of the node, whatever their fingerprint; those of the request's own are left alone.
    find
        Looks a submit up that left no id.

    Raises
    ------
    AssetBuildError
        If the scheduler does not say whether it took one.
    """
    found = []
    for row in rows:
        if row.fingerprint in ("", submitting.request.fingerprint):
            continue
        job = submitting.opened(row, find)
        if job is None:
            continue
        end = job.folder.exit(row.token)
        if JobState[row.state].final:
            submitting.record(job, fingerprint="")
        elif end is not None:
            _let_go(submitting, job, _state_of(end), end)
        elif not (job.ref and job.ref.job_id):  # it ran, and the scheduler has forgotten it
            _let_go(submitting, job, JobState.LOST, None)
        else:
            found.append(Outdated(submitting, job))
    return found


def end_outdated(found: Sequence[Outdated], seconds: float) -> dict[Submitting, AssetBuildError]:
    """Cancel jobs together, and see that they are gone; gives those of which one is not.

    Parameters
    ----------
    seconds
        For all to be gone.
    """
    if not found:
        return {}
    scheduler = found[0].submitting.scheduler
    refs = [each.job.ref for each in found if each.job.ref is not None]
    statuses = cancel_all(scheduler, refs, seconds)
    left = {}
    for submitting, job in found:
        assert job.ref is not None
        status = statuses[job.ref]
        end = job.folder.exit(job.row.token)
        name = submitting.name(job)
        if status.state.final:
            _let_go(submitting, job, status.state, end)
            submitting.tell(f"{name} is ended ({status.state.word}): {_CHANGED}")
            continue
        left[submitting] = build_error(
            submitting.request,
            f"{name} was cancelled, since {_CHANGED}, but is still there "
            f"({_shown(status)}) → exa hpc cancel {job.row.job_id}, and ask again",
        )
    return left


def earlier_rows(submitting: Submitting) -> Sequence[HpcJob]:
    """Give the jobs of the node whose end nobody recorded, whatever their fingerprint.

    Raises
    ------
    AssetBuildError
        If they are not known.
    """
    request = submitting.request
    if submitting.jobs is None or not request.fingerprint:
        return ()
    try:
        return submitting.jobs.unclaimed_of(request.node.asset).get(request.node, ())
    except ExamlopsError as error:
        raise unknown_earlier(request, error) from error


def _let_go(submitting: Submitting, job: Job, state: JobState, end: Exit | None) -> None:
    """Record the end of a job, without the fingerprint by which it would be taken up."""
    submitting.record(
        job,
        state=state.word,
        reason=_CHANGED,
        fingerprint="",
        ended_at=(end and end.time) or datetime.now(timezone.utc),
        exit_code=None if end is None else end.code,
    )


def _state_of(end: Exit) -> JobState:
    return JobState.COMPLETED if end.code == 0 else JobState.FAILED


def _shown(status: JobStatus) -> str:
    return status.native or status.state.word
