"""The scheduler orchestrator: one build as a batch job, submitted once and waited for."""

from __future__ import annotations

import itertools
import logging
import os
import signal
import threading
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from contextlib import contextmanager
from types import FrameType
from typing import Any, TypeVar

from examlops_dagster.core.declarations import Declaration
from examlops_dagster.core.jobs import JobsLedger
from examlops_dagster.core.seams import (
    LEFT_RUNNING,
    AssetOrchestrator,
    BuildRequest,
    BuildResult,
    Ended,
    Progress,
)
from examlops_dagster.errors import AssetBuildError
from examlops_dagster.orchestrators.array import ArrayBuild
from examlops_dagster.orchestrators.batch import BatchBuild
from examlops_dagster.orchestrators.cancelling import Cancelling
from examlops_dagster.orchestrators.ends import Patience, Watch
from examlops_dagster.orchestrators.entrypoint import Entrypoint, entrypoint_of
from examlops_dagster.orchestrators.fallback import fall_back
from examlops_dagster.orchestrators.local import LocalOrchestrator
from examlops_dagster.orchestrators.requests import require_work
from examlops_dagster.orchestrators.submitting import cancel_all
from examlops_dagster.schedulers.base import Scheduler

_Result = TypeVar("_Result")

_logger = logging.getLogger(__name__)


class SchedulerOrchestrator:
    """Runs builds as batch jobs, for as many threads at once as call `run`.

    Where there is no scheduler, or a function that a job cannot import, the build runs locally
    and its provenance says why (``EXAMLOPS_ASSET_FALLBACK=refuse`` makes that an error). What a
    scheduler refused is never run here.

    Parameters
    ----------
    jobs
        Remembers jobs, so that one that outlived its waiter is taken over.
    scheduler
        Where jobs go; None looks at the environment.
    environment
        The submitter's; jobs get it from the scheduler.
    patience
        How long to wait for what.
    progress
        Told the job's id, its state and why it waits.
    """

    name = "scheduler"
    waits_by_pauses = True
    """Its waits consist of the request's pauses."""

    def __init__(
        self,
        jobs: JobsLedger | None = None,
        scheduler: Scheduler | None = None,
        environment: Mapping[str, str] = os.environ,
        *,
        patience: Patience | None = None,
        progress: Progress | None = None,
    ) -> None:
        self.jobs = jobs
        self.environment = environment
        self.patience = patience or Patience()
        self.progress = progress
        self._scheduler = scheduler
        self._watch: Watch | None = None
        self._cancelling: Cancelling | None = None
        self._local: AssetOrchestrator | None = None
        self._lock = threading.Lock()

    def over(self, jobs: JobsLedger) -> SchedulerOrchestrator:
        """Give one that remembers its jobs elsewhere; both ask and cancel together."""
        scheduler, _ = self._chosen()
        other = SchedulerOrchestrator(
            jobs,
            scheduler,
            self.environment,
            patience=self.patience,
            progress=self.progress,
        )
        if scheduler is not None:
            other._watch = self._watch_of(scheduler)
            other._cancelling = self._cancelling_of(scheduler)
        return other

    def close(self) -> None:
        """End the local workers of builds that fell back; jobs go on."""
        if isinstance(self._local, LocalOrchestrator):
            self._local.close()

    def run(self, request: BuildRequest) -> BuildResult:
        """Run one build as a job and wait for its end.

        Raises
        ------
        AssetBuildError
            When the scheduler refused the job, or it failed, ran out of memory or was lost;
            ``details`` holds the last lines of its stdout and stderr.
        BuildTimeoutError
            When it reached its limit of running time, or the one in the queue.
        BuildCancelledError
            When somebody cancelled it on the cluster.
        ResultError
            When what it returned cannot be kept.
        LaunchError
            When there is no function.
        BaseException
            What interrupts the waiting. After a Ctrl-C the job is cancelled and gone; any other
            interrupt leaves it running, and the next request takes it up.
        """
        require_work(request)
        entrypoint = _entrypoint(request.declaration)
        if isinstance(entrypoint, str):
            return self._fall_back(request, entrypoint)
        scheduler, why = self._chosen()
        if scheduler is None:
            return self._fall_back(request, why)
        return self._waited_for(request, entrypoint, scheduler, BatchBuild.run)

    def taken_up(self, request: BuildRequest) -> BuildResult | None:
        """Look for a job that an earlier request left, before something else builds the node.

        One of this attempt is waited for; one of another is ended. For the errors see `run`.

        Returns
        -------
        BuildResult | None
            None where there is none, or where it was cancelled, or the cluster failed it.
        """
        entrypoint = _entrypoint(request.declaration)
        scheduler, why = self._chosen()
        if isinstance(entrypoint, str) or scheduler is None:
            _logger.warning(
                "%s: a job that an earlier request left may run beside this build, since it cannot "
                "be looked for (%s) → exa hpc jobs --asset %s",
                request.node,
                entrypoint if isinstance(entrypoint, str) else why,
                request.node.asset,
            )
            return None
        return self._waited_for(request, entrypoint, scheduler, BatchBuild.taken_up)

    def _waited_for(
        self,
        request: BuildRequest,
        entrypoint: Entrypoint | None,
        scheduler: Scheduler,
        wait: Callable[[BatchBuild], _Result],
    ) -> _Result:
        with _noted_signals() as signals:
            build = BatchBuild(
                request,
                entrypoint,
                scheduler,
                self._watch_of(scheduler),
                jobs=self.jobs,
                environment=self.environment,
                patience=self.patience,
                progress=self.progress,
                cancelling=self._cancelling_of(scheduler),
            )
            try:
                return wait(build)
            except BaseException as error:
                if not isinstance(error, Exception):
                    left = build.interrupted(self._is_meant(request, error, signals))
                    setattr(error, LEFT_RUNNING, left)
                raise

    def run_many(self, requests: Iterable[BuildRequest]) -> Generator[Ended, None, None]:
        """Run builds of one asset as few submissions; see ManyAtOnce, and `run` for the errors."""
        requests = iter(requests)
        for first in requests:
            every = itertools.chain([first], requests)
            entrypoint = _entrypoint(first.declaration)
            scheduler, why = self._chosen()
            if isinstance(entrypoint, str):
                scheduler, why, entrypoint = None, entrypoint, None
            if scheduler is None:
                yield from self._fall_back_each(every, why)
                return
            with _noted_signals() as signals:
                array = ArrayBuild(
                    entrypoint,
                    scheduler,
                    self._watch_of(scheduler),
                    jobs=self.jobs,
                    environment=self.environment,
                    patience=self.patience,
                    progress=self.progress,
                )
                try:
                    yield from array.run(every)
                except BaseException as error:
                    stopped = not isinstance(error, Exception)
                    meant = stopped and self._is_meant(first, error, signals)
                    setattr(error, LEFT_RUNNING, array.interrupted(meant))
                    raise

    def _fall_back_each(
        self, requests: Iterable[BuildRequest], why: str
    ) -> Generator[Ended, None, None]:
        for request in requests:
            try:
                yield request, self._fall_back(request, why)
            except AssetBuildError as error:
                yield request, error

    def waits_for(self, declaration: Declaration) -> bool:
        """Whether a build of it waits for a job; one that falls back runs here.

        Raises
        ------
        ExamlopsError
            If the environment names a scheduler that there is not.
        """
        return not isinstance(_entrypoint(declaration), str) and self._chosen()[0] is not None

    def _chosen(self) -> tuple[Scheduler | None, str]:
        from examlops_dagster.schedulers import choose  # noqa: PLC0415 - only where one is needed

        with self._lock:  # one for all threads: it may hold a connection
            if self._scheduler is None:
                choice = choose.choose_scheduler(self.environment)
                if not choice.found:
                    return None, choice.reason
                self._scheduler = choose.make_scheduler(choice.name, self.environment)
            return self._scheduler, ""

    def _watch_of(self, scheduler: Scheduler) -> Watch:
        with self._lock:
            if self._watch is None:
                from examlops_dagster.schedulers.watcher import Watcher  # noqa: PLC0415 - as above

                self._watch = Watcher(scheduler, self.environment)
            return self._watch

    def _cancelling_of(self, scheduler: Scheduler) -> Cancelling:
        with self._lock:
            if self._cancelling is None:
                self._cancelling = Cancelling(scheduler, cancel_all)
            return self._cancelling

    def _fall_back(self, request: BuildRequest, why: str) -> BuildResult:
        return fall_back(
            request, why, self._run_here, instead_of="a job", environment=self.environment
        )

    def _run_here(self, request: BuildRequest) -> BuildResult:
        with self._lock:
            if self._local is None:
                self._local = LocalOrchestrator()
        return self._local.run(request)

    @staticmethod
    def _is_meant(request: BuildRequest, error: BaseException, signals: list[int]) -> bool:
        """Whether an interrupt asks for the end of the build."""
        number = signals[-1] if signals else None
        if request.ends_job is not None:
            return request.ends_job(number)
        return number == signal.SIGINT if signals else isinstance(error, KeyboardInterrupt)


def _entrypoint(declaration: Declaration) -> Entrypoint | str | None:
    """Give what a job imports (nothing for a command), or why it cannot."""
    if declaration.command or declaration.function is None:
        return None
    return entrypoint_of(declaration.function)


@contextmanager
def _noted_signals() -> Iterator[list[int]]:
    """Note which signal interrupts the main thread: Dagster's exception does not tell."""
    seen: list[int] = []
    former: dict[int, Any] = {}
    if threading.current_thread() is threading.main_thread():
        for interrupt in (signal.SIGINT, signal.SIGTERM):
            handler = signal.getsignal(interrupt)
            if callable(handler):
                former[interrupt] = handler
                signal.signal(interrupt, _noting(seen, handler))
    try:
        yield seen
    finally:
        for number, handler in former.items():
            signal.signal(number, handler)


def _noting(
    seen: list[int], handler: Callable[[int, FrameType | None], Any]
) -> Callable[[int, FrameType | None], Any]:
    def note(number: int, frame: FrameType | None) -> Any:
        seen.append(number)
        return handler(number, frame)

    return note
