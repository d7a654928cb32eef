"""Many builds of one asset as few submissions, waited for by one thread."""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from examlops_dagster.core.jobs import HpcJob, JobsLedger
from examlops_dagster.core.records import Node
from examlops_dagster.core.seams import BuildRequest, Ended, Progress
from examlops_dagster.errors import AssetBuildError, ExamlopsError
from examlops_dagster.orchestrators.array_shared import (
    BufferedJobs,
    FindOnce,
    Listing,
    SharedWatch,
)
from examlops_dagster.orchestrators.array_tasks import ArrayTasks
from examlops_dagster.orchestrators.batch import BatchBuild
from examlops_dagster.orchestrators.ends import End, Patience, Watch
from examlops_dagster.orchestrators.entrypoint import Entrypoint
from examlops_dagster.orchestrators.outdated import Outdated, end_outdated, outdated_of
from examlops_dagster.orchestrators.requests import build_error, resources_of, unknown_earlier
from examlops_dagster.orchestrators.submitting import Job, Quiet, cancel_all
from examlops_dagster.orchestrators.waiting import Waiting
from examlops_dagster.schedulers.base import Scheduler
from examlops_dagster.schedulers.folder import JobFolder

_SHORTEST_LOOK = 0.05
_LONGEST_LOOK = 1.0
_LOOK_SHARE = 5
"""A look may take about one part in so many of the time."""

_TELL_SECONDS = 5.0

_logger = logging.getLogger(__name__)


@dataclass(eq=False)
class _Key:
    """One build among many."""

    build: BatchBuild
    waiting: Waiting | None = None
    due_at: float = 0.0
    """When it is to be submitted, by the monotonic clock."""
    former: JobFolder | None = None
    """Of the job that the cluster failed, whose arguments are taken."""


class _Earlier:
    """The jobs of the asset whose end nobody recorded."""

    def __init__(self, jobs: BufferedJobs) -> None:
        self._jobs = jobs
        self._known: Mapping[Node, Sequence[HpcJob]] | None = None
        self._find = FindOnce()
        self.outdated: list[Outdated] = []
        """Those of another fingerprint, which have to end before others are submitted."""

    def taken_over(self, build: BatchBuild) -> Job | None:
        """Take over the one of a build, if there is one."""
        request, find = build.request, self._find.of(build)
        if not request.fingerprint:
            return None
        if self._known is None:
            try:
                self._known = self._jobs.unclaimed_of(request.node.asset)
            except ExamlopsError as error:
                raise unknown_earlier(request, error) from error
        rows = self._known.get(request.node, ())
        own = [row for row in rows if row.fingerprint == request.fingerprint]
        job = build.submitting.taken_over(own, find)
        if job is None:
            self.outdated += outdated_of(build.submitting, rows, find)
        return job


class ArrayBuild:
    """Runs requests of one asset together; see SchedulerOrchestrator for the parameters."""

    def __init__(
        self,
        entrypoint: Entrypoint | None,
        scheduler: Scheduler,
        watch: Watch,
        *,
        jobs: JobsLedger | None,
        environment: Mapping[str, str],
        patience: Patience,
        progress: Progress | None,
    ) -> None:
        self.entrypoint = entrypoint
        self.scheduler = scheduler
        self.watch = SharedWatch(watch)
        self.environment = environment
        self.patience = patience
        self.progress = progress
        self.jobs = BufferedJobs(jobs)
        self._keys: list[_Key] = []
        self._asset = ""
        self._pause: Callable[[float], None] = time.sleep
        self._told_step: Progress | None = None
        self._told: Counter[str] = Counter()
        self._told_at = 0.0
        self._ended: Counter[str] = Counter()
        self._listings: dict[Path, Listing] = {}

    def run(self, requests: Iterable[BuildRequest]) -> Iterator[Ended]:
        """Take over what runs, submit the rest together, and give each build as it ends."""
        yield from self._prepared(requests)
        look = _SHORTEST_LOOK
        while self._keys:
            yield from self._submitted()
            started = time.monotonic()
            ended = self._looked()
            took = time.monotonic() - started
            yield from self._concluded(ended)
            self._summed_up()
            look = _SHORTEST_LOOK if ended else min(look * 1.3, _LONGEST_LOOK)
            if self._keys:
                self._pause(max(look, min(took * _LOOK_SHARE, _LONGEST_LOOK)))

    def interrupted(self, meant: bool) -> bool:
        """Cancel all jobs, if that is what was meant, and see that they are gone; else leave them.

        Returns
        -------
        bool
            Whether any goes on.
        """
        self._look_up_lost()
        open_keys = [k for k in self._keys if k.build.job is not None and k.build.job.ref]
        refs = [k.build.job.ref for k in open_keys if k.build.job and k.build.job.ref]
        try:
            if not refs:
                return False
            if not meant:
                self._tell(
                    f"{len(refs)} jobs on {self.scheduler.name} are left running → exa hpc jobs "
                    f"--asset {self._asset}; the next request takes them up"
                )
                return True
            found = cancel_all(self.scheduler, refs, self.patience.cancel)
            for key in open_keys:
                job = key.build.job
                assert job is not None
                assert job.ref is not None
                status = found[job.ref]
                if status.state.final:
                    key.build.submitting.record(job, state=status.state.word, reason="interrupted")
            left = [ref for ref in refs if not found[ref].state.final]
            self._tell(f"{len(refs) - len(left)} jobs on {self.scheduler.name} are gone")
            if left:
                self._tell(
                    f"{len(left)} jobs were cancelled, but are still there → exa hpc cancel "
                    f"{self._asset}"
                )
            return bool(left)
        finally:
            self.jobs.flush()

    def _prepared(self, requests: Iterable[BuildRequest]) -> Iterator[Ended]:
        """Take over earlier jobs; write the arguments of the others, which need not be kept."""
        tasks: ArrayTasks | None = None
        alone: _Key | None = None
        earlier = _Earlier(self.jobs)
        taken = 0
        for request in requests:
            if not self._asset:
                self._asset, self._pause = request.node.asset, request.pause
                self._told_step = request.told
            key = _Key(self._build(request))
            try:
                resources_of(request)
                job = earlier.taken_over(key.build)
                if job is not None:
                    if job.folder.is_task:
                        key.build.slim()
                    self._wait_for(key, job)
                    taken += 1
                elif alone is None and tasks is None:
                    alone = key  # a job of its own, unless there is another
                else:
                    if tasks is None:
                        tasks = self._tasks()
                        first, alone = alone, None
                        assert first is not None
                        yield from self._added(tasks, first)
                    yield from self._added(tasks, key)
                    continue
            except AssetBuildError as error:
                yield request, error
                continue
            self._keys.append(key)
        self.jobs.flush()
        if taken:
            self._tell(f"taking over {taken} jobs on {self.scheduler.name}")
        left = end_outdated(earlier.outdated, self.patience.cancel)
        self.jobs.flush()
        if left:
            yield from self._refused_all(next(iter(left.values())))
        elif tasks is not None and tasks.builds:
            yield from self._start(tasks)

    def _refused_all(self, error: AssetBuildError) -> Iterator[Ended]:
        """End all that is not submitted yet: what one of the keys left cannot be ended."""
        refused = [key for key in self._keys if key.waiting is None]
        self._keys = [key for key in self._keys if key.waiting is not None]
        for key in refused:
            yield key.build.request, build_error(key.build.request, error.reason, error.details)

    def _added(self, tasks: ArrayTasks, key: _Key) -> Iterator[Ended]:
        if key in self._keys:
            self._keys.remove(key)
        try:
            tasks.add(key.build, key.former)
        except AssetBuildError as error:
            yield key.build.request, error
            return
        key.build.slim()
        self._keys.append(key)

    def _submitted(self) -> Iterator[Ended]:
        """Submit what is due: one key as a plain job, several as another array."""
        now = time.monotonic()
        due = [k for k in self._keys if k.waiting is None and k.due_at <= now]
        if len(due) == 1 and due[0].former is None:
            [key] = due
            try:
                job = key.build.submitting.submit(key.build.resources, partial(self._took, key))
            except AssetBuildError as error:
                self._keys.remove(key)
                yield key.build.request, error
                return
            self.jobs.flush()
            self._wait_for(key, job)
        elif due:
            tasks = self._tasks()
            for key in due:
                yield from self._added(tasks, key)
            if tasks.builds:
                yield from self._start(tasks)

    def _took(self, key: _Key, job: Job) -> None:
        """Have the row of a job on disk before it is submitted."""
        key.build.took(job)
        self.jobs.record(job.row)
        self.jobs.must_flush()

    def _start(self, tasks: ArrayTasks) -> Iterator[Ended]:
        by_build = {id(key.build): key for key in self._keys}
        refused = tasks.submit()
        for build in tasks.builds:
            key = by_build[id(build)]
            error = refused.get(build)
            if error is not None:
                self._keys.remove(key)
                yield build.request, error
            elif build.job is not None:
                self._wait_for(key, build.job)

    def _looked(self) -> list[tuple[_Key, End]]:
        """Look at all jobs once; gives those that ended."""
        waiting = [(key, key.waiting) for key in self._keys if key.waiting is not None]
        self.watch.look([w.ref for _, w in waiting])
        for listing in self._listings.values():
            listing.look()
        found = [(key, each.look()) for key, each in waiting]
        ended = [(key, end) for key, end in found if end is not None]
        self.jobs.flush()
        left = [w.ref for key, end in ended if end.leaves_job and (w := key.waiting) is not None]
        if left:
            cancel_all(self.scheduler, left, self.patience.cancel)
        return ended

    def _concluded(self, ended: Sequence[tuple[_Key, End]]) -> Iterator[Ended]:
        done: list[Ended] = []
        before: list[HpcJob] = []
        over: set[int] = set()
        for key, end in ended:
            job = key.build.job
            assert job is not None
            key.waiting = None
            request, row = key.build.request, job.row
            try:
                result = key.build.ended(end)
            except AssetBuildError as error:
                done.append((request, error))
                self._tell(f"{request.node}: {error.reason}")
            else:
                if result is None:
                    key.due_at = time.monotonic() + key.build.delay_seconds
                    key.former = job.folder if job.folder.is_task else None
                    self._tell(f"{request.node}: {end.state.word}; it is submitted again")
                    continue
                done.append((request, result))
            before.append(row)
            over.add(id(key))
            self._ended[end.state.word] += 1
        self._keys = [key for key in self._keys if id(key) not in over]
        self.jobs.flush()
        given = 0
        try:
            for each in done:
                given += 1
                yield each
        finally:  # what nobody took is taken up by the next request, with what it made
            self.jobs.record_all(before[given:])
            self.jobs.flush()

    def _wait_for(self, key: _Key, job: Job) -> None:
        names = None
        if job.folder.is_task:
            listing = self._listings.setdefault(job.folder.path, Listing(job.folder.path))
            names = listing.names
        key.waiting = key.build.wait_for(job, self.watch, names)

    def _summed_up(self) -> None:
        """Tell how many jobs are in which state, now and then."""
        states = Counter(self._ended)
        for key in self._keys:
            states[key.build.job.row.state if key.build.job else "to be submitted"] += 1
        now = time.monotonic()
        is_late = now - self._told_at >= _TELL_SECONDS
        if states != self._told and (is_late or not self._keys):
            self._told, self._told_at = states, now
            self._tell(", ".join(f"{count} {word}" for word, count in sorted(states.items())))

    def _build(self, request: BuildRequest) -> BatchBuild:
        """Give the build of one key; what happens is told of all together."""
        return BatchBuild(
            replace(request, told=None),
            self.entrypoint,
            self.scheduler,
            self.watch,
            jobs=self.jobs,
            environment=self.environment,
            patience=self.patience,
            progress=None,
        )

    def _tasks(self) -> ArrayTasks:
        return ArrayTasks(
            self.scheduler, self.entrypoint, self.environment, self.jobs, self._pause, self._tell
        )

    def _look_up_lost(self) -> None:
        """Find the jobs of a submit that was interrupted before its reply."""
        find = FindOnce()
        for key in self._keys:
            job = key.build.job
            if job is not None and job.ref is None:
                with Quiet():
                    job.ref = key.build.submitting.found(job.row, find.of(key.build))

    def _tell(self, text: str) -> None:
        _logger.info("%s: %s", self._asset, text)
        if self._told_step is not None:
            self._told_step(text)
        if self.progress is not None:
            self.progress(f"{self._asset}: {text}")
