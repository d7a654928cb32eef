"""Our launcher of batch jobs as Dagster Pipes clients, for assets and ops that are not ours."""

from __future__ import annotations

import hashlib
import json
import os
import shlex
import threading
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, TypeAlias

from dagster import AssetExecutionContext, Failure, MetadataValue, OpExecutionContext, PipesClient
from dagster._core.definitions.resource_annotation import TreatAsResourceParam
from dagster._core.pipes.client import PipesClientCompletedInvocation

from examlops_dagster.core.declarations import DEFAULT_TIMEOUT, Declaration
from examlops_dagster.core.jobs import HpcJob
from examlops_dagster.core.seams import BuildRequest
from examlops_dagster.dagster_bridge.pauses import launching, pause
from examlops_dagster.dagster_bridge.pipes_databases import Databases
from examlops_dagster.dagster_bridge.pipes_reader import HeardReader, session_of
from examlops_dagster.dagster_bridge.pipes_session import (
    Step,
    StepJobs,
    context_of,
    runs_of,
    was_meant,
)
from examlops_dagster.errors import AssetBuildError, ExamlopsError, UsageError
from examlops_dagster.ledger.jobs import HpcJobs
from examlops_dagster.orchestrators.ends import Patience
from examlops_dagster.orchestrators.scheduler import SchedulerOrchestrator
from examlops_dagster.schedulers.base import Scheduler
from examlops_dagster.schedulers.choose import make_scheduler
from examlops_dagster.schedulers.resources import merged
from examlops_dagster.schedulers.script import job_python, rerooted
from examlops_dagster.settings import HPC_SCHEDULER

Context: TypeAlias = AssetExecutionContext | OpExecutionContext


class PipesJobClient(PipesClient, TreatAsResourceParam):
    """Runs programs as batch jobs, from any asset, multi-asset or op of Dagster.

    A resource: ``Definitions(resources={"pipes_slurm": PipesSlurmClient()})``. A job succeeds when
    its exit file says so, the scheduler does not contradict, and Dagster Pipes, where the program
    opened it, was closed without an exception.

    Under `waiting_executor` the steps whose op requires it wait in a thread each, so that their
    jobs run side by side. Functions themselves are called one at a time, as by Dagster's
    in-process executor, and others are while one is in `run`; that is where an interrupt reaches
    it. The op tag ``examlops/waits`` set to ``false`` keeps a step in the main thread;
    ``true`` puts one there whose client is inside of another resource.

    Parameters
    ----------
    scheduler
        A scheduler or the name of one; None takes that of the class, or ``mock`` where
        ``EXAMLOPS_HPC_SCHEDULER`` says so.
    resources, env
        For every job; those of a call lie over them.
    patience
        How long to wait for what.
    """

    _scheduler_name: ClassVar[str]
    waits_by_pauses = True
    """Under `waiting_executor` its steps wait in a thread each, unless the tag of an op forbids it."""

    def __init__(
        self,
        scheduler: Scheduler | str | None = None,
        *,
        resources: Mapping[str, Any] | None = None,
        env: Mapping[str, str] | None = None,
        patience: Patience | None = None,
    ) -> None:
        self.resources = dict(resources or {})
        self.env = dict(env or {})
        self._scheduler = scheduler
        self._patience = patience
        self._orchestrator: SchedulerOrchestrator | None = None
        self._databases = Databases()
        self._lock = threading.Lock()
        self._calls: Counter[tuple[str, str, int, str]] = Counter()

    @classmethod
    def _is_dagster_maintained(cls) -> bool:
        return False

    def run(  # type: ignore[override]
        self,
        *,
        context: Context,
        command: str | Sequence[str] | None = None,
        script: str | Path | None = None,
        args: Sequence[str] = (),
        resources: Mapping[str, Any] | None = None,
        env: Mapping[str, str] | None = None,
        extras: Mapping[str, Any] | None = None,
        setup: str | Sequence[str] = (),
        timeout_seconds: float | None = None,
        name: str | None = None,
    ) -> PipesClientCompletedInvocation:
        """Run a program as a job and wait for its end.

        Parameters
        ----------
        context
            Of the step.
        command
            The program and its arguments; a text is split as a shell does it.
        script
            A Python file in its place, for the interpreter of jobs, with ``args``.
        resources
            What the job asks for, in the portable words: ``gpus``, ``time``, ``queue_time``, ...
        env
            Variables besides those of this process; they are in no file of the job.
        extras
            For `PipesContext.get_extra`. A step over a range of partitions adds
            ``partition_keys``.
        setup
            Lines of shell before the program (``module load ...``).
        timeout_seconds
            Limit of the running time, where ``resources["time"]`` states none.
        name
            Of the job, and what a retry of the step finds it by; else the asset's, and the
            command.

        Returns
        -------
        PipesClientCompletedInvocation
            As of Dagster's own clients; its metadata has the job's id, node and folder.

        Raises
        ------
        Failure
            When it did not succeed; with the last lines of its logs.
        UsageError
            When there is no program, or two.
        BaseException
            What interrupts the step. Terminate, or Ctrl-C of a run in this process, cancels the
            job and sees that it is gone; else it goes on, and a retry of the step takes it up.
        """
        # that of an asset warns where Dagster's own session reads its run
        context = context.op_execution_context
        argv = _argv(command, script, args)
        wanted = merged(self.resources, resources or {})
        lines = [setup] if isinstance(setup, str) else list(setup)
        if lines:
            before = wanted.get("setup") or ()
            wanted["setup"] = [*([before] if isinstance(before, str) else before), *lines]
        step = context_of(context, name)
        fingerprints = self._fingerprints(context, step, argv, name)
        reader = HeardReader(context, step.node)
        session = session_of(context, reader, {**step.extras, **(extras or {})})
        request = BuildRequest(
            Declaration(step.node.asset, command=argv),
            step.node,
            step.retry_number + 1,
            "",
            {},
            {},
            DEFAULT_TIMEOUT if timeout_seconds is None else timeout_seconds,
            wanted,
            fingerprints[0],
            context.run_id,
            ends_job=was_meant(context),
            pause=pause,
            heard=reader,
            told=reader.said.tell,
            environment={**self.env, **(env or {})},
            pipes={**session.context_data, **step.range},
        )
        with launching(), self._databases.of(context.instance) as database:
            jobs = StepJobs(HpcJobs(database), fingerprints, again=step.is_again)
            result = self._run(request, jobs, reader)
        reader.hand_over()
        return PipesClientCompletedInvocation(
            session, {**{f"examlops/{k}": v for k, v in result.items()}, **_facts(jobs.last)}
        )

    def _run(self, request: BuildRequest, jobs: StepJobs, reader: HeardReader) -> Mapping[str, str]:
        try:
            return self._shared().over(jobs).run(request).provenance
        except AssetBuildError as error:
            reader.hand_over(failed=True)
            text = "\n".join(part for part in (error.reason, error.details) if part)
            raise Failure(text, metadata=_facts(jobs.last)) from error
        except ExamlopsError as error:
            raise Failure(str(error)) from error
        finally:
            reader.said.end()

    def _shared(self) -> SchedulerOrchestrator:
        """Give what asks and cancels for all calls, also of a thousand steps in threads."""
        with self._lock:
            if self._orchestrator is None:
                self._orchestrator = SchedulerOrchestrator(
                    None, self._made(), os.environ, patience=self._patience
                )
            return self._orchestrator

    def _made(self) -> Scheduler:
        found = self._scheduler
        if found is None:
            mock = os.environ.get(HPC_SCHEDULER, "").strip() == "mock"
            found = "mock" if mock else self._scheduler_name
        return make_scheduler(found) if isinstance(found, str) else found

    def _fingerprints(
        self, context: OpExecutionContext, step: Step, argv: Sequence[str], name: str | None
    ) -> list[str]:
        """Give what the job of this call is found by, in this run and in those that it retries.

        Equal calls of one step are told apart by their order.
        """
        call = json.dumps([step.key, name] if name else [step.key, None, *argv])
        with self._lock:
            counted = (context.run_id, step.key, step.retry_number, call)
            number = self._calls[counted]
            self._calls[counted] += 1
        return [
            hashlib.sha256(f"{run_id} {number} {call}".encode()).hexdigest()
            for run_id in runs_of(context)
        ]


class PipesSlurmClient(PipesJobClient):
    """Runs programs as Slurm jobs, from any asset, multi-asset or op of Dagster; a resource."""

    _scheduler_name = "slurm"


class PipesFluxClient(PipesJobClient):
    """Runs programs as Flux jobs, from any asset, multi-asset or op of Dagster; a resource."""

    _scheduler_name = "flux"


def _argv(
    command: str | Sequence[str] | None, script: str | Path | None, args: Sequence[str]
) -> tuple[str, ...]:
    if (command is None) == (script is None):
        raise UsageError('run(...) takes either command=["program", ...] or script="file.py"')
    if script is not None:
        path = rerooted(str(Path(script).absolute()), os.environ)
        return (job_python(os.environ), path, *map(str, args))
    assert command is not None
    argv = shlex.split(command) if isinstance(command, str) else list(map(str, command))
    if not argv:
        raise UsageError("run(command=...) names no program")
    return (*argv, *map(str, args))


def _facts(job: HpcJob | None) -> dict[str, Any]:
    """Give what is known of a job, as metadata."""
    if job is None:
        return {}
    facts: dict[str, Any] = {
        "examlops/hpc_job_id": job.job_id,
        "examlops/hpc_state": job.state,
        "examlops/hpc_folder": MetadataValue.path(job.folder),
    }
    if job.started_at is not None and job.ended_at is not None:
        facts["examlops/hpc_seconds"] = (job.ended_at - job.started_at).total_seconds()
    return facts
