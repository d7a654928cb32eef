"""One execution of a plan in one process: what may start, where it runs, and what it says.

The main thread hands out the steps, runs those of this process itself, and passes all events on;
Dagster's own state machine decides what may start.
"""

from __future__ import annotations

import contextvars
import queue
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field

from dagster import DagsterEvent, DagsterExecutionInterruptedError
from dagster._core.events import EngineEventData
from dagster._core.execution.compute_logs import create_compute_log_file_key
from dagster._core.execution.context.system import PlanExecutionContext, StepExecutionContext
from dagster._core.execution.plan.execute_plan import (
    _handle_compute_log_setup_error,
    _handle_compute_log_teardown_error,
    _trigger_hook,
    dagster_event_sequence_for_step,
)
from dagster._core.execution.plan.instance_concurrency_context import InstanceConcurrencyContext
from dagster._core.execution.plan.objects import ErrorSource
from dagster._core.execution.plan.plan import ExecutionPlan
from dagster._core.execution.plan.step import ExecutionStep

from examlops_dagster.dagster_bridge.interrupts import Signals, is_here, is_meant, noted_signals
from examlops_dagster.dagster_bridge.one_at_a_time import OneAtATime
from examlops_dagster.dagster_bridge.pauses import BUSY_THREADS, Stop, Waiter
from examlops_dagster.dagster_bridge.places import Place, Places
from examlops_dagster.dagster_bridge.steps import StepsByKind

_LOOK_SECONDS = 0.1
"""In which an interrupt, a step to be tried again and a free place in a pool are seen."""
_LEAVE_SECONDS = 10.0
"""For threads to leave their jobs when the execution breaks off."""

_Interrupt = (KeyboardInterrupt, DagsterExecutionInterruptedError)


def execution_events(
    context: PlanExecutionContext,
    plan: ExecutionPlan,
    *,
    max_concurrent: int,
) -> Iterator[DagsterEvent]:
    """Run the steps of a plan, and give their events.

    Parameters
    ----------
    context
        Of the run, with its resources.
    max_concurrent
        Steps at once.
    """
    logs = context.instance.compute_log_manager
    steps = [step.key for step in plan.get_steps_to_execute_in_topo_order()]
    with (
        InstanceConcurrencyContext(context.instance, context.dagster_run) as pools,
        StepsByKind(
            plan,
            retry_mode=context.retry_mode,
            max_concurrent=max_concurrent,
            instance_concurrency_context=pools,
            step_dependency_config=context.step_dependency_config,
        ) as active,
        noted_signals() as signals,
        ExitStack() as capture,
    ):
        file_key = create_compute_log_file_key()  # type: ignore[no-untyped-call]
        key = logs.build_log_key_for_run(context.run_id, file_key)
        try:
            captured = capture.enter_context(logs.capture_logs(key))
            yield DagsterEvent.capture_logs(context, steps, key, captured)
        except Exception:  # noqa: BLE001 - as Dagster does: a run without its log goes on
            yield from _handle_compute_log_setup_error(context, sys.exc_info())
        yield from _Execution(context, active, Places(context), signals).events()
        try:
            capture.close()
        except Exception:  # noqa: BLE001 - as above
            yield from _handle_compute_log_teardown_error(context, sys.exc_info())


@dataclass
class _Step:
    """A step in a thread, and what it said."""

    context: StepExecutionContext
    place: Place
    said: list[DagsterEvent] = field(default_factory=list)


@dataclass(frozen=True)
class _Ended:
    error: BaseException | None


class _AtRest:
    """No thread calls a function."""


class _Execution:
    def __init__(
        self,
        context: PlanExecutionContext,
        active: StepsByKind,
        places: Places,
        signals: Signals,
    ) -> None:
        self._context = context
        self._active = active
        self._places = places
        self._signals = signals
        self._stop = Stop()
        self._turns = threading.BoundedSemaphore(BUSY_THREADS)
        self._first_turns = threading.BoundedSemaphore(BUSY_THREADS)
        self._functions = OneAtATime(lambda: self._said.put(("", _AtRest())))
        self._running: dict[str, _Step] = {}
        self._said: queue.SimpleQueue[tuple[str, DagsterEvent | _Ended | _AtRest]] = (
            queue.SimpleQueue()
        )
        self._changed = True
        """Whether steps may have become ready since steps were started."""

    def events(self) -> Iterator[DagsterEvent]:
        try:
            while not self._active.is_complete:
                if self._is_interrupted():
                    raise DagsterExecutionInterruptedError
                if self._changed or self._active.has_to_look:
                    self._changed = False
                    yield from self._start()
                if not self._changed:
                    yield from self._hear(_LOOK_SECONDS)
        except _Interrupt:
            yield from self._interrupted()
            raise
        finally:
            self._leave()

    def _start(self) -> Iterator[DagsterEvent]:
        """Start all that waits for jobs, and one step of the others."""
        for step in self._active.take(lambda s: self._places.of(s) is Place.WAITING, None):
            self._start_thread(step, Place.WAITING)
        if not any(step.place is Place.HELPER for step in self._running.values()):
            with self._functions.claimed() as holds:
                places = {Place.HELPER, Place.MAIN} if holds else {Place.HELPER}
                for step in self._active.take(lambda s: self._places.of(s) in places, 1):
                    if self._running and self._places.of(step) is Place.HELPER:
                        self._start_thread(step, Place.HELPER)
                    else:
                        yield from self._run(step)
        yield from self._active.concurrency_event_iterator(self._context)

    def _run(self, step: ExecutionStep) -> Iterator[DagsterEvent]:
        """Run a step here, as Dagster's in-process executor does."""
        context = self._context.for_step(step, self._active.get_known_state())
        said: list[DagsterEvent] = []
        for event in dagster_event_sequence_for_step(context):
            said.append(event)
            if _is_interrupt(event):
                self._stop_all()
            yield event
            self._active.handle_event(event)
        self._signals.see()  # one that its function caught was for that
        yield from self._ended(context, said)

    def _start_thread(self, step: ExecutionStep, place: Place) -> None:
        context = self._context.for_step(step, self._active.get_known_state())
        self._running[step.key] = _Step(context, place)
        # Not joined at the exit of the interpreter: a second Ctrl-C ends at once
        here = contextvars.copy_context()  # a flow of Prefect, of which a build is a subflow
        threading.Thread(
            target=here.run,
            args=(self._run_in_thread, context, self._waiter(step, place)),
            name=step.key,
            daemon=True,
        ).start()

    def _run_in_thread(self, context: StepExecutionContext, waiter: Waiter) -> None:
        key = context.step.key
        ended = _Ended(None)
        try:
            with waiter.at_work():
                if not self._stop.is_asked:
                    for event in dagster_event_sequence_for_step(context):
                        self._said.put((key, event))
        except BaseException as error:  # noqa: BLE001 - the main thread judges it
            ended = _Ended(error)
        self._said.put((key, ended))

    def _waiter(self, step: ExecutionStep, place: Place) -> Waiter:
        if place is not Place.WAITING:
            return Waiter(self._stop)
        functions = None if self._places.is_ours(step) else self._functions
        return Waiter(
            self._stop, self._turns, self._first_turns, lambda: len(self._running), functions
        )

    def _hear(self, seconds: float) -> Iterator[DagsterEvent]:
        """Pass on what the threads said; wait for it, if there is nothing yet."""
        try:
            heard = self._said.get(timeout=seconds)
            while True:
                yield from self._heard(*heard)
                heard = self._said.get_nowait()
        except queue.Empty:
            return

    def _heard(self, key: str, what: DagsterEvent | _Ended | _AtRest) -> Iterator[DagsterEvent]:
        if isinstance(what, _AtRest):
            self._changed = True
            return
        step = self._running[key]
        if isinstance(what, DagsterEvent):
            step.said.append(what)
            yield what
            self._active.handle_event(what)
            return
        del self._running[key]
        if self._stop.is_asked:
            return
        if what.error is not None:
            raise what.error
        yield from self._ended(step.context, step.said)

    def _ended(
        self, context: StepExecutionContext, said: list[DagsterEvent]
    ) -> Iterator[DagsterEvent]:
        self._changed = True
        self._active.verify_complete(self._context, context.step.key)
        for event in self._active.plan_events_iterator(self._context):
            said.append(event)
            yield event
        yield from _trigger_hook(context, said)

    def _is_interrupted(self) -> bool:
        """Tell whether an interrupt came since the last call."""
        came = self._signals.see()  # first: Dagster's handler runs after the note is there
        return self._active.check_for_interrupts() or came

    def _interrupted(self) -> Iterator[DagsterEvent]:
        """Have the threads end their jobs, or leave them; a second interrupt waits for nobody."""
        self._stop_all()
        self._active.mark_interrupted()
        yield DagsterEvent.engine_event(
            self._context,
            self._interruption(),
            EngineEventData.interrupted(list(self._running)),
        )
        while self._running and not self._is_interrupted():
            yield from self._hear(_LOOK_SECONDS)

    def _interruption(self) -> str:
        if not self._running:
            return "interrupted"
        count = f"{len(self._running)} step{'' if len(self._running) == 1 else 's'} that waited"
        ends = "their jobs go on"
        if self._stop.is_meant:
            ends = "what they wait for is ended"
        elif self._stop.number == signal.SIGINT and is_here(self._context.dagster_run.tags):
            ends = "jobs of plain assets are ended, all others go on"
        return f"interrupted; {count}: {ends}"

    def _stop_all(self) -> None:
        """Interrupt the threads.

        What for is found out before anybody hears of it: who does may mark the run as cancelled.
        """
        if not self._stop.is_asked:
            self._signals.see()
            run, number = self._context.dagster_run, self._signals.number
            meant = is_meant(self._context.instance, run.run_id, run.tags, number)
            self._stop.ask(meant=meant, number=number)

    def _leave(self) -> None:
        """Have the threads leave their jobs, if an error broke the execution off."""
        if not self._running or self._stop.is_asked:
            return
        self._stop.ask(meant=False)
        deadline = time.monotonic() + _LEAVE_SECONDS
        with suppress(queue.Empty):
            while self._running:
                key, what = self._said.get(timeout=max(0.0, deadline - time.monotonic()))
                if isinstance(what, _Ended):
                    del self._running[key]


def is_interrupted(event: DagsterEvent) -> bool:
    """Tell whether an engine event says that the execution is interrupted."""
    return "steps_interrupted" in event.engine_event_data.metadata


def _is_interrupt(event: DagsterEvent) -> bool:
    return event.is_step_failure and event.step_failure_data.error_source is ErrorSource.INTERRUPT
