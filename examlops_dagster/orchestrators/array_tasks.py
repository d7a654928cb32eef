"""The tasks of one array: written, submitted once, and given their jobs."""

from __future__ import annotations

import secrets
import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timezone

from examlops_dagster.errors import AssetBuildError, ExamlopsError, LaunchError
from examlops_dagster.orchestrators import submitting
from examlops_dagster.orchestrators.array_shared import BufferedJobs
from examlops_dagster.orchestrators.batch import BatchBuild
from examlops_dagster.orchestrators.entrypoint import Entrypoint
from examlops_dagster.orchestrators.prepared import write_array, write_task
from examlops_dagster.orchestrators.requests import build_error, unwritten
from examlops_dagster.orchestrators.submitting import Job
from examlops_dagster.schedulers.base import JobRef, JobState, Scheduler, Submission
from examlops_dagster.schedulers.folder import JobFolder
from examlops_dagster.schedulers.folders import folders_of
from examlops_dagster.schedulers.resources import avoided, avoiding
from examlops_dagster.schedulers.tasks import known_id


@dataclass
class ArrayTasks:
    """Keys that are submitted together, under one token.

    Attributes
    ----------
    scheduler, entrypoint, environment
        Where they run, what, and the submitter's variables.
    jobs
        Remembers them.
    pause
        Lets time pass between two tries.
    tell
        Told what happens.
    """

    scheduler: Scheduler
    entrypoint: Entrypoint | None
    environment: Mapping[str, str]
    jobs: BufferedJobs
    pause: Callable[[float], None]
    tell: Callable[[str], None]

    def __post_init__(self) -> None:
        self.token = secrets.token_hex(16)
        self._folders = folders_of(self.scheduler, self.environment)
        self.folder = self._folders.new(self.token)
        self.builds: list[BatchBuild] = []
        self._made = False

    def task(self, index: int) -> JobFolder:
        """Give the files of one task."""
        return self._folders.at(self.folder.path, index)

    def add(self, build: BatchBuild, former: JobFolder | None = None) -> None:
        """Write what a key needs, and let it be one of the tasks.

        Parameters
        ----------
        former
            Of an earlier job of the attempt, whose arguments are taken.

        Raises
        ------
        AssetBuildError
            If it cannot be written.
        """
        folder = self.task(len(self.builds))
        try:
            if not self._made:
                self.folder.make()
                self._made = True
            write_task(
                build.request,
                folder,
                entrypoint=self.entrypoint,
                environment=self.environment,
                former=former,
            )
        except (OSError, AssetBuildError) as error:
            shutil.rmtree(folder.inputs, ignore_errors=True)  # the next key has its number
            if isinstance(error, AssetBuildError):
                raise
            reason = f"the folder of its job cannot be written: {error}"
            raise build_error(build.request, reason) from error
        self.builds.append(build)

    def submit(self) -> dict[BatchBuild, AssetBuildError]:
        """Submit all tasks once, and give each key its job; gives those that were refused.

        The token, and a row for each key, are on disk before. A reply that was lost is looked
        for, and only what is missing is submitted then.
        """
        now = datetime.now(timezone.utc)
        requests = [build.request for build in self.builds]
        shared = replace(requests[0], resources=_of_all(self.builds))
        try:
            submission = write_array(
                [shared, *requests[1:]],
                self.token,
                self.folder,
                scheduler=self.scheduler.name,
                entrypoint=self.entrypoint,
                environment=self.environment,
                submitted_at=now,
            )
        except OSError as error:
            reason = f"the folder of its job cannot be written: {error}"
            return {b: build_error(b.request, reason) for b in self.builds}
        for index, build in enumerate(self.builds):
            folder = self.task(index)
            row = build.submitting.row(self.token, folder, now, index)
            build.job = Job(row, folder)
            self.jobs.record(row)
        try:
            self.jobs.must_flush()
        except ExamlopsError as error:
            return {b: self._unwritten(b, error) for b in self.builds}
        found, trouble, is_refused = self._submitted(submission)
        refused: dict[BatchBuild, AssetBuildError] = {}
        for index, build in enumerate(self.builds):
            assert build.job is not None
            ref = found.get(index)
            if ref is None:
                refused[build] = self._refused(build, trouble, is_refused=is_refused)
                continue
            build.job.ref = ref
            build.submitting.record(
                build.job,
                job_id=known_id(self.scheduler, ref),
                cluster=ref.cluster,
                submitted_at=ref.submitted_at,
                state=JobState.PENDING.word,
            )
        self.jobs.flush()
        if found:
            self.tell(f"submitted {len(found)} tasks as {self.name(found.values())}")
        return refused

    def name(self, refs: Iterable[JobRef]) -> str:
        """Name the jobs for people: an array by its id, and how many there are of others."""
        ids = list(dict.fromkeys(ref.job_id or self.token[:8] for ref in refs))
        more = f" and {len(ids) - 1} more" if len(ids) > 1 else ""
        return f"{'jobs' if more else 'job'} {ids[0]}{more} on {self.scheduler.name}"

    def _submitted(self, submission: Submission) -> tuple[dict[int, JobRef], str, bool]:
        """Give the tasks that the scheduler has, why it has not the others, and if it said so."""
        found: dict[int, JobRef] = {}
        last = ""
        for attempt in range(1, submitting.SUBMIT_TRIES + 1):
            left = replace(submission, submitted=frozenset(found))
            try:
                answer = self.scheduler.submit(left)
            except LaunchError as error:
                last = str(error)
                if not error.transient:
                    return found, last, True
            else:
                return {**found, **_by_index(answer)}, last, True
            try:
                found.update(self._looked_up())
            except AssetBuildError as error:
                return found, error.reason, False
            if len(found) == submission.array:
                return found, last, True
            self.tell(f"the submit is tried again: {last}")
            self.pause(submitting.SUBMIT_DELAY_SECONDS * attempt)
        for index in set(range(len(self.builds))).difference(found):
            try:
                if not self.task(index).withdraw():
                    found[index] = self._without_id(index)
            except LaunchError as error:
                return found, str(error), False
        return found, f"it did not answer {submitting.SUBMIT_TRIES} times: {last}", True

    def _looked_up(self) -> dict[int, JobRef]:
        """Look for tasks at the scheduler, which forgets, and in the folder."""
        job = self.builds[0].job
        assert job is not None
        found = _by_index(self.builds[0].submitting.find(job.row))
        for index in range(len(self.builds)):
            if index not in found and self.task(index).has_run:
                found[index] = self._without_id(index)
        return found

    def _without_id(self, index: int) -> JobRef:
        """Give a task that ran, whatever the scheduler knows of it."""
        job = self.builds[index].job
        assert job is not None
        submitted_at = job.row.submitted_at
        return JobRef(self.scheduler.name, "", self.token, submitted_at, index=index)

    def _unwritten(self, build: BatchBuild, why: ExamlopsError) -> AssetBuildError:
        build.job = None
        return unwritten(build.request, why)

    def _refused(self, build: BatchBuild, words: str, *, is_refused: bool) -> AssetBuildError:
        job, build.job = build.job, None
        assert job is not None
        if not is_refused:  # nobody knows; the next request looks it up
            return build_error(build.request, words)
        build.submitting.record(job, state=JobState.REFUSED.word, reason=words)
        reason = f"{self.scheduler.name} refused the job of {build.request.node}: {words}"
        return build_error(build.request, reason, f"{reason}\nfolder: {self.folder.path}")


def _by_index(refs: Iterable[JobRef]) -> dict[int, JobRef]:
    return {ref.index: ref for ref in refs if ref.index is not None}


def _of_all(builds: Sequence[BatchBuild]) -> dict[str, object]:
    """Give the resources of the keys of one asset, which differ in the nodes to be avoided."""
    return avoiding(
        builds[0].resources, (node for build in builds for node in avoided(build.resources))
    )
