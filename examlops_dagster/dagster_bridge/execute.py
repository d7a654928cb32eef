"""A plan as Dagster runs, from the command line: visible in the UI, with state and logs."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import FrameType
from typing import Any

from dagster import AssetKey, DagsterEvent, DagsterEventType, Definitions
from dagster._core.definitions.job_base import InMemoryJob
from dagster._core.execution.api import execute_run_iterator
from dagster._core.execution.plan.objects import ErrorSource, StepFailureData
from dagster._core.instance import DagsterInstance
from dagster._core.storage.dagster_run import DagsterRun, DagsterRunStatus
from dagster_shared.record import copy

from examlops_dagster.clock import utc_now
from examlops_dagster.core.nodes import Nodes
from examlops_dagster.core.plan import Action, Plan, Step, slices
from examlops_dagster.core.records import BuildState, Node
from examlops_dagster.core.seams import Progress
from examlops_dagster.core.snapshot import Snapshot
from examlops_dagster.dagster_bridge.body_step import error_file
from examlops_dagster.dagster_bridge.definitions import definitions_of, keys_of
from examlops_dagster.dagster_bridge.event_batches import events_in_batches
from examlops_dagster.dagster_bridge.execution import is_interrupted
from examlops_dagster.dagster_bridge.executor import waiting_executor
from examlops_dagster.dagster_bridge.overrides import overrides_tag
from examlops_dagster.dagster_bridge.report import Failed, Report
from examlops_dagster.dagster_bridge.runtime import Location
from examlops_dagster.dagster_bridge.slices import slice_tags
from examlops_dagster.dagster_bridge.translator import slug
from examlops_dagster.errors import UsageError
from examlops_dagster.governance.request_rows import Request
from examlops_dagster.ledger.tags import (
    ACTOR_TAG,
    IN_PROCESS_TAG,
    ORCHESTRATOR_TAG,
    PROCESS_TAG,
    process_tag,
)
from examlops_dagster.ledger.watermark import held_open
from examlops_dagster.project import Project

CANCEL_POLL_SECONDS = 1.0

LEAVE_SECONDS = 10.0
"""For whoever looks for a Terminate to see that the run has ended; a storage may keep it."""

_INTERRUPTED = (BuildState.CANCELLED, BuildState.RUNNING)
"""How a build stands that an interrupt ended, or whose job it left running."""


def execute(
    project: Project,
    plan: Plan,
    *,
    orchestrator: str | None = None,
    in_process: bool = False,
    resources: Mapping[str, Any] | None = None,
    request: Request | None = None,
    progress: Progress | None = None,
) -> Report:
    """Build the steps of a plan, as one Dagster run for each slice.

    A failure ends the request after the slice in which it happened: what is above it stays
    recorded, what is below it is not tried. ``request`` is what policy was asked before, for
    which the runs act.
    """
    report = Report(plan.targets, skipped=list(plan.skipped))
    tell = progress or _tell_nobody
    project.make_home()
    if plan.targets:  # somebody asks for these; what is merely due keeps to its budget
        project.ledger.lift(step.node for step in plan.steps)
    for step in plan.steps:
        if step.action is Action.ADOPT:
            project.adopt_source(step.node)
            report.rebuilt.append(step.node)
            tell(f"adopted {step.node}")
    nodes = Nodes(project.graph, Snapshot(utc_now(), dynamic=project.dynamic_keys()))
    location = Location(project.graph, project.code_versions, os.environ, project.code_is_older)
    location.progress = progress
    tags = {ACTOR_TAG: project.home.actor, PROCESS_TAG: process_tag()}
    if orchestrator is not None:
        tags[ORCHESTRATOR_TAG] = orchestrator.strip().lower()
    if in_process:
        tags[IN_PROCESS_TAG] = "true"
    tags.update(overrides_tag(resources or {}, [node.asset for node in plan.targets]))
    run = _Runs(project, location, report, tell, tags, request)
    try:
        for part in slices(project.graph, nodes, plan):
            run.run(list(part.steps), nodes)
            if not report.ok:
                return report
    finally:
        location.close()
        project.event_log.sync()
        failed_sinks = project.failed_sinks()
        for node in report.rebuilt:
            report.failed_sinks.extend(failed_sinks.get(node, ()))
    return report


@dataclass
class _Runs:
    project: Project
    location: Location
    report: Report
    tell: Progress
    tags: dict[str, str]
    request: Request | None = None
    names: dict[str, str] = field(default_factory=dict)

    def run(self, steps: list[Step], existing: Nodes) -> None:
        log = self.project.event_log
        nodes = [step.node for step in steps]
        self.names = {slug(node.asset): node.asset for node in nodes}
        keys = {log.key(node.asset) for node in nodes}
        job = self._job(keys)
        tags = {**self.tags, **slice_tags(steps, existing)}
        with events_in_batches(log.instance):  # one is planned for each partition
            run = log.instance.create_run_for_job(
                job_def=job,
                asset_selection=keys,
                tags=tags,
                run_config={"loggers": {"console": {"config": {"log_level": "CRITICAL"}}}},
            )
        self.report.runs.append(run.run_id)
        self.location.admitted[run.run_id] = ""
        self.project.governor.acts_for(self.request, run.run_id)
        with (
            held_open(self.project.home.folder, run.run_id),
            _terminate_is_obeyed(log.instance, run.run_id, lambda: self.report.cancelled),
            _hang_up_terminates(),
        ):
            for event in execute_run_iterator(InMemoryJob(job), run, log.instance):
                self._event(event, run)
        self._ended(run, nodes)

    def _job(self, keys: set[AssetKey]) -> Any:
        repository = self._definitions().get_repository_def()
        job = repository.get_implicit_job_def_for_assets(list(keys))
        if job is None:
            names = ", ".join(sorted(key.to_user_string() for key in keys))
            raise UsageError(f"Dagster cannot run {names} in one job")
        return job.get_subset(asset_selection=keys)

    def _definitions(self) -> Definitions:
        """Give the definitions with an executor that runs here.

        The user's own, where a loaded module holds them with our assets in them; they may have
        resources and plain assets that ours read.
        """
        for module in self.project.modules:
            for thing in vars(module).values():
                if isinstance(thing, Definitions) and self._holds_ours(thing):
                    return copy(thing, executor=waiting_executor)
        return definitions_of(self.project, self.location, executor=waiting_executor)

    def _holds_ours(self, definitions: Definitions) -> bool:
        declared = self.project.graph.declarations.items()
        ours = {self.project.event_log.key(n) for n, d in declared if d.function is not None}
        return ours <= keys_of(definitions)

    def _event(self, event: DagsterEvent, run: DagsterRun) -> None:
        kind = event.event_type
        if kind is DagsterEventType.STEP_START:
            self.tell(f"building {self._shown(event)}")
        elif kind is DagsterEventType.STEP_UP_FOR_RETRY:
            self.tell(f"{self._shown(event)} failed, and is tried again")
        elif kind is DagsterEventType.STEP_FAILURE:
            data = event.step_failure_data
            if data.error_source is ErrorSource.INTERRUPT:
                self._cancel(run)
        elif kind is DagsterEventType.ENGINE_EVENT and is_interrupted(event):
            self._cancel(run)
            self.tell(event.message or "")

    def _shown(self, event: DagsterEvent) -> str:
        """Give the name of the asset that a step builds; its key is a slug of that."""
        key = event.step_key or ""
        return self.names.get(key, key)

    def _cancel(self, run: DagsterRun) -> None:
        """Let Dagster end the run as CANCELED, where it would say FAILURE to a Ctrl-C."""
        if self.report.cancelled:
            return
        self.report.cancelled = True
        instance = self.project.event_log.instance
        current = instance.get_run_by_id(run.run_id)
        if current is not None and current.status is not DagsterRunStatus.CANCELING:
            instance.report_run_canceling(run, "Interrupted from the command line.")

    def _ended(self, run: DagsterRun, nodes: list[Node]) -> None:
        """Read in `builds` what became of each node."""
        instance = self.project.event_log.instance
        finished = instance.get_run_by_id(run.run_id)
        if finished is not None and finished.status is DagsterRunStatus.CANCELED:
            self.report.cancelled = True
        ended = self.project.ledger.of_run(run.run_id)
        for node in nodes:
            build = ended.get(node)
            if build is None:
                continue
            if build.provenance.get("fallback"):
                self.report.fallbacks[node] = build.provenance["fallback"]
            if build.state is BuildState.SUCCEEDED:
                self.report.rebuilt.append(node)
            elif build.state is BuildState.UNCHANGED:
                self.report.unchanged.append(node)
            elif self.report.cancelled and build.state in _INTERRUPTED:
                continue
            else:
                path = error_file(instance, run.run_id, node)
                log = str(path) if path.exists() else ""
                self.report.failed.append(Failed(node, build.error, log))
        if finished is not None and finished.status is DagsterRunStatus.FAILURE:
            self._failed_without_build(run, nodes)

    def _failed_without_build(self, run: DagsterRun, nodes: list[Node]) -> None:
        """Name the failures that came before an attempt could be written down."""
        if self.report.failed or self.report.cancelled:
            return
        log = self.project.event_log
        records = log.instance.get_records_for_run(run.run_id).records
        for record in records:
            event = record.event_log_entry.dagster_event
            if event is not None and event.event_type is DagsterEventType.STEP_FAILURE:
                data = event.step_failure_data
                text = _last_words(data)
                key = event.asset_key
                node = Node(log.name(key)) if key is not None else nodes[0]
                self.report.failed.append(Failed(node, text))
        if not self.report.failed:
            message = _finished_message(log.instance, run.run_id)
            self.report.failed.append(Failed(nodes[0], message))


def _last_words(data: StepFailureData) -> str:
    if data.user_failure_data is not None and data.user_failure_data.description:
        return data.user_failure_data.description.strip().splitlines()[-1]
    error = data.error
    while error is not None and error.cause is not None:
        error = error.cause
    return error.message.strip().splitlines()[-1] if error is not None else "failed"


def _finished_message(instance: DagsterInstance, run_id: str) -> str:
    """Give the last thing that Dagster says about a run that failed without a failed step."""
    for record in reversed(instance.get_records_for_run(run_id).records):
        event = record.event_log_entry.dagster_event
        if event is not None and event.event_type is DagsterEventType.RUN_FAILURE:
            return event.message or "the run failed"
    return "the run failed"


@contextmanager
def _terminate_is_obeyed(
    instance: DagsterInstance, run_id: str, is_interrupted: Callable[[], bool]
) -> Iterator[None]:
    """Interrupt this process when somebody presses Terminate in the UI.

    Nothing of Dagster can reach a run that executes in a process of the command line, so it has
    to look for itself. Once it is interrupted, the run is marked as such by ourselves.
    """
    ended = threading.Event()
    reference = instance.get_ref()

    def watch() -> None:
        with DagsterInstance.from_ref(reference) as own:
            while not ended.wait(CANCEL_POLL_SECONDS):
                run = own.get_run_by_id(run_id)
                if is_interrupted():
                    return
                if run is not None and run.status is DagsterRunStatus.CANCELING:
                    os.kill(os.getpid(), signal.SIGINT)
                    return

    watcher = threading.Thread(target=watch, name="examlops-terminate", daemon=True)
    watcher.start()
    try:
        yield
    finally:
        ended.set()
        watcher.join(LEAVE_SECONDS)


@contextmanager
def _hang_up_terminates() -> Iterator[None]:
    """Take the end of the terminal for a SIGTERM: what is waited for is left, and told."""

    def terminate(number: int, frame: FrameType | None) -> None:
        del number, frame
        os.kill(os.getpid(), signal.SIGTERM)

    in_main = threading.current_thread() is threading.main_thread()
    former = signal.getsignal(signal.SIGHUP)
    if not in_main or former is not signal.SIG_DFL:  # nohup ignores it
        yield
        return
    signal.signal(signal.SIGHUP, terminate)
    try:
        yield
    finally:
        signal.signal(signal.SIGHUP, former)


def _tell_nobody(text: str) -> None:
    del text
