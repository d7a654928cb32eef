"""The process in which production functions run under a limit.

Started by `examlops_dagster.orchestrators.process` as ``python -m
examlops_dagster.orchestrators.worker FD`` in a session of its own; FD is its end of a socket pair.
It serves one build after the other and never imports dagster. When its parent dies, it is ended
with all that it started, at once, by its guard.
"""

from __future__ import annotations

import contextlib
import faulthandler
import os
import pickle
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from io import TextIOWrapper
from multiprocessing.connection import Connection
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, TypeAlias

from examlops_dagster.errors import ResultError
from examlops_dagster.formats import dumps
from examlops_dagster.orchestrators.call_pipes import CallPipes
from examlops_dagster.orchestrators.calling import Outcome, describe, produce, resolve
from examlops_dagster.orchestrators.command import run_command
from examlops_dagster.orchestrators.guard import end_everything, split
from examlops_dagster.orchestrators.imported import ImportedFiles
from examlops_dagster.orchestrators.messages import (
    CommandCall,
    Failed,
    FunctionCall,
    Order,
    Produced,
    Signal,
    Surroundings,
)

if TYPE_CHECKING:
    from dagster_pipes import PipesContext

_GUARD_CHECK_SECONDS = 1.0

_Link: TypeAlias = "Connection[Any, Any]"


def main(argv: Sequence[str] = sys.argv) -> None:
    """Serve the parent at the other end of the file descriptor that ``argv`` names."""
    os.set_inheritable(int(argv[1]), False)  # programs of the user shall not hold it open
    split(int(argv[1]))
    # A handler, not SIG_IGN: programs that the function starts would inherit that.
    signal.signal(signal.SIGINT, lambda *_: None)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)  # a parent in the background may ignore it
    faulthandler.enable()
    for stream in (sys.stdout, sys.stderr):
        assert isinstance(stream, TextIOWrapper)
        stream.reconfigure(line_buffering=True)
    Worker(Connection(int(argv[1]))).serve()


class Worker:
    """One build after the other, in the main thread, as a user's function may expect."""

    def __init__(self, link: _Link) -> None:
        self._link = link
        self._pid = os.getpid()
        self._guard = os.getppid()
        self._orders: SimpleQueue[Order | None] = SimpleQueue()
        self._modules = ImportedFiles()
        self._path: list[str] = []

    def serve(self) -> None:
        """Answer orders until the parent asks for the end."""
        threading.Thread(target=self._listen, name="listen", daemon=True).start()
        self._link.send(Signal.READY)
        while (order := self._orders.get()) is not None:
            self._settle_in(order.surroundings)
            if self._modules.are_stale():
                self._link.send(Signal.STALE)
                continue
            if isinstance(order.call, CommandCall):
                self._run(order.call)
            else:
                with self._modules.watched(), _variables(order.call.variables):
                    self._call(order.call)

    def _listen(self) -> None:
        """Take orders also while a function runs, and end when the guard is gone."""
        with contextlib.suppress(EOFError, OSError):
            while os.getppid() == self._guard:
                if self._link.poll(_GUARD_CHECK_SECONDS):
                    order = self._link.recv()
                    self._orders.put(order)
                    if order is None:
                        return
        # The guard sees the parent's end as well, and knows of more that has to be ended.
        while os.getppid() == self._guard:
            time.sleep(_GUARD_CHECK_SECONDS)
        end_everything()

    def _settle_in(self, surroundings: Surroundings) -> None:
        if surroundings.folder is not None:
            with contextlib.suppress(OSError):
                os.chdir(surroundings.folder)
        wanted = list(surroundings.path)
        if wanted != self._path:
            # What modules added when they were imported stays: they are not imported again.
            sys.path[:] = wanted + [p for p in sys.path if self._path and p not in wanted]
            self._path = wanted
        for name, value in surroundings.environment.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value

    def _call(self, call: FunctionCall) -> None:
        """Build, with Dagster Pipes closed before the parent hears of the end."""
        with CallPipes(lambda: _pipes_context(call)) as pipes:
            answer, payload = self._build(call, pipes)
        _flush()
        self._link.send(answer)
        if isinstance(answer, Produced) and payload is not None:
            self._link.send_bytes(payload)

    def _build(
        self, call: FunctionCall, pipes: CallPipes
    ) -> tuple[Produced | Failed, bytes | None]:
        answer: Produced | Failed
        payload: bytes | None = None
        try:
            if isinstance(call.function, str):
                function = resolve(call.function, call.file)
            else:
                function = pickle.loads(call.function)
            arguments = pickle.loads(call.arguments)
            self._link.send(Signal.STARTED)
            outcome = self._produced(call, function, arguments)
            payload = outcome.value.payload if outcome.value is not None else None
            answer = Produced(
                outcome.value.format if outcome.value is not None else None,
                outcome.data_version,
                _extras(outcome, call),
                outcome.update_detected,
            )
        except ResultError as error:
            pipes.failed(error, error.reason)
            answer = Failed(error.reason, error.details, unusable=True)
        except BaseException as error:  # noqa: BLE001 - sys.exit() in a function is its failure
            answer = Failed(*describe(error))
            pipes.failed(error, answer.reason)
        return answer, payload

    def _produced(
        self, call: FunctionCall, function: Callable[..., Any], arguments: dict[str, Any]
    ) -> Outcome:
        try:
            return produce(
                function,
                arguments,
                node=call.node,
                node_type=call.node_type,
                serializer=call.serializer,
            )
        finally:
            if os.getpid() != self._pid:  # the function forked, and this is the child
                os._exit(1)

    def _run(self, call: CommandCall) -> None:
        self._link.send(Signal.STARTED)
        self._link.send(run_command(call))


@contextlib.contextmanager
def _variables(variables: Mapping[str, str]) -> Iterator[None]:
    """Set variables meanwhile, for programs that a function starts too."""
    former = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in former.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def _pipes_context(call: FunctionCall) -> PipesContext:
    if "DAGSTER_PIPES_CONTEXT" not in call.variables:
        raise ImportError("the parent has no dagster_pipes")
    from examlops_dagster.schedulers.pipes_current import context_of  # noqa: PLC0415 - may fail

    return context_of(call.variables)


def _extras(outcome: Outcome, call: FunctionCall) -> bytes:
    try:
        return dumps({"metadata": dict(outcome.metadata), "events": list(outcome.events)})
    except Exception as error:
        raise ResultError(
            call.node.asset,
            f"the metadata cannot leave the worker process ({describe(error).reason}); use plain "
            "values, or declare timeout_seconds=None to run the function in the calling process",
            partition=call.node.partition,
        ) from error


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr, sys.__stdout__, sys.__stderr__):
        with contextlib.suppress(Exception):  # the function may have closed or replaced them
            stream.flush()  # type: ignore[union-attr]
    with contextlib.suppress(ImportError, OSError, AttributeError):
        import ctypes  # noqa: PLC0415 - not in every build of Python

        ctypes.CDLL(None).fflush(None)  # what libraries in C printed


if __name__ == "__main__":
    main()
