"""The local orchestrator: in this process, or in a warm worker process under a limit."""

from __future__ import annotations

import contextlib
import logging
import pickle
import sys
import weakref
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from examlops_dagster.core.seams import BuildRequest, BuildResult, Value
from examlops_dagster.errors import (
    AssetBuildError,
    BuildCancelledError,
    BuildTimeoutError,
    ResultError,
)
from examlops_dagster.formats import dumps
from examlops_dagster.orchestrators.call_pipes import CallHere
from examlops_dagster.orchestrators.calling import Outcome, describe, name_of, produce
from examlops_dagster.orchestrators.listening import Listening
from examlops_dagster.orchestrators.messages import (
    Call,
    CommandCall,
    Failed,
    FunctionCall,
    Produced,
    Signal,
)
from examlops_dagster.orchestrators.pool import WorkerPool
from examlops_dagster.orchestrators.process import START_SECONDS, WorkerDiedError, WorkerProcess
from examlops_dagster.orchestrators.requests import build_error, require_work

if TYPE_CHECKING:
    from typing_extensions import Self

_logger = logging.getLogger(__name__)

_PROVENANCE = {"orchestrator": "local"}


class LocalOrchestrator:
    """Runs builds on this machine, for as many threads at once as call `run`.

    A request without a limit runs in this process. One with a limit runs in a worker process,
    which is kept for later builds and ended, with all that it started, when the limit passes.
    The limit counts from the call of the function until its result arrives; importing its
    module has a limit of its own, 300 s. A ``command`` always runs below a worker. Functions and
    commands have Dagster Pipes, as in a job.

    Parameters
    ----------
    in_process
        Call every function in this process, whatever its limit, which is not enforced then.
    grace_seconds
        Between SIGTERM and SIGKILL for a build that has to end.
    """

    name = "local"

    def __init__(self, *, in_process: bool = False, grace_seconds: float = 5.0) -> None:
        self.in_process = in_process
        self.grace_seconds = grace_seconds
        self._pool = WorkerPool(grace_seconds)
        weakref.finalize(self, self._pool.close)  # at the exit of the interpreter at the latest

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the workers; builds that run in them are cancelled. Later builds start new ones."""
        self._pool.close()

    def run(self, request: BuildRequest) -> BuildResult:
        """Run one build and wait for its end.

        Raises
        ------
        AssetBuildError
            When the function raised, exited or crashed, could not be imported by the worker, or
            cannot be sent to it.
        BuildTimeoutError
            When it ran longer than ``request.timeout_seconds``.
        BuildCancelledError
            When the orchestrator was closed meanwhile.
        ResultError
            When what it returned cannot be kept.
        LaunchError
            When there is no function, or no worker could be started.
        BaseException
            What interrupts the waiting, KeyboardInterrupt for one, after the build was ended.
        """
        require_work(request)
        if request.declaration.command:
            return self._run_command(request)
        if self.in_process or request.timeout_seconds is None:
            return _run_here(request)
        return self._run_function(request)

    def _run_function(self, request: BuildRequest) -> BuildResult:
        call = _function_call(request)
        with contextlib.ExitStack() as stack:
            try:
                listening = stack.enter_context(Listening(request))
            except OSError as error:  # the build is worth more than its messages
                _logger.warning("%s is built without Dagster Pipes: %s", request.node, error)
                return self._run_in_worker(request, call)
            call = replace(call, variables=listening.variables)
            return listening.result(self._run_in_worker(request, call))

    def _run_command(self, request: BuildRequest) -> BuildResult:
        with contextlib.ExitStack() as stack:
            try:
                listening = stack.enter_context(Listening(request))
            except OSError as error:
                reason = f"the files by which its program speaks cannot be written: {error}"
                raise build_error(request, reason) from error
            call = CommandCall(request.declaration.command, listening.variables)
            return listening.result(self._run_in_worker(request, call))

    def _run_in_worker(self, request: BuildRequest, call: Call) -> BuildResult:
        _flush_own_output()
        while True:
            worker = self._pool.take()
            try:
                answer = _build(worker, request, call)
            except BaseException as error:
                self._pool.discard(worker)
                worker.end(self.grace_seconds)
                if worker.cancelled and isinstance(error, AssetBuildError):
                    reason = "cancelled: the orchestrator was closed while it ran"
                    raise build_error(request, reason, kind=BuildCancelledError) from error
                raise
            if answer is None:
                self._pool.discard(worker)
                worker.ask_to_exit()
                worker.finish(self.grace_seconds)
                continue
            self._pool.give_back(worker)
            if isinstance(answer, AssetBuildError):
                raise answer
            return answer.as_result(_PROVENANCE)


def _run_here(request: BuildRequest) -> BuildResult:
    declaration, node = request.declaration, request.node
    assert declaration.function is not None
    with CallHere(request) as call:
        try:
            outcome = produce(
                declaration.function,
                request.arguments,
                node=node,
                node_type=declaration.node_type,
                serializer=declaration.serializer,
            )
        except ResultError as error:
            call.pipes.failed(error, error.reason)
            raise
        except (Exception, SystemExit) as error:
            found = describe(error)
            call.pipes.failed(error, found.reason)
            raise build_error(request, *found) from error
    return call.result(outcome.as_result(_PROVENANCE))


def _build(
    worker: WorkerProcess, request: BuildRequest, call: Call
) -> Outcome | AssetBuildError | None:
    """Have a build done by a worker that is whole afterwards; None if it needs another one.

    What it raises leaves the worker in an unknown state.
    """
    started = False
    limit: float | None = START_SECONDS
    try:
        worker.start(call)
        answer = worker.receive(START_SECONDS, request.pause)
        if answer is Signal.STALE:
            return None
        if answer is Signal.STARTED:
            started = True
            limit = request.timeout_seconds
            answer = worker.receive(limit, request.pause)
        payload = worker.receive_bytes() if getattr(answer, "format", None) else None
    except TimeoutError:
        assert limit is not None
        reason = f"timed out after {limit:g} s{'' if started else ' of importing its module'}"
        worker.forward_output()
        raise build_error(request, reason, worker.last_lines, BuildTimeoutError) from None
    except WorkerDiedError as error:
        if worker.builds > 1 and not started and not worker.cancelled:
            return None  # it was killed while it was idle
        worker.forward_output()
        raise build_error(request, str(error), worker.last_lines) from error
    worker.complete()
    return _read(answer, payload, request)


def _read(answer: Any, payload: bytes | None, request: BuildRequest) -> Outcome | AssetBuildError:
    if isinstance(answer, Failed):
        kind = ResultError if answer.unusable else AssetBuildError
        return build_error(request, answer.reason, answer.details, kind)
    assert isinstance(answer, Produced)
    try:
        extras = pickle.loads(answer.extras)
    except Exception as error:  # noqa: BLE001 - whatever the user's classes raise
        reason = (
            f"its metadata cannot be read here ({describe(error).reason}); use plain values, or "
            "declare timeout_seconds=None to run the function in this process"
        )
        return build_error(request, reason, kind=ResultError)
    value = Value(answer.format, payload) if answer.format and payload is not None else None
    return Outcome(
        value,
        answer.data_version,
        extras["metadata"],
        tuple(extras["events"]),
        answer.update_detected,
    )


def _function_call(request: BuildRequest) -> FunctionCall:
    declaration = request.declaration
    function = declaration.function
    assert function is not None
    name = name_of(function)
    reference: str | bytes
    file: str | None = None
    what = "the function"
    try:
        if name is not None:
            reference = name
            file = getattr(sys.modules.get(name.partition(":")[0]), "__file__", None)
        else:
            reference = dumps(function)
        what = "an argument"
        arguments = dumps(dict(request.arguments))
    except Exception as error:
        reason = (
            f"{what} cannot be sent to the worker process ({describe(error).reason}); define the "
            "function at the top of a module, or declare timeout_seconds=None to run it in this "
            "process"
        )
        raise build_error(request, reason, describe(error).details) from error
    return FunctionCall(
        request.node,
        declaration.node_type,
        reference,
        file,
        arguments,
        declaration.serializer,
    )


def _flush_own_output() -> None:
    """Put what this process has printed before what the worker is going to print."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):  # it may be closed, or None
            stream.flush()
