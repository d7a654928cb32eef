"""An executor that lets many steps wait for jobs in one process.

Dagster's multiprocess executor starts an interpreter for each step, which takes seconds and 100 MB,
so that a thousand of them cannot wait. Here a step that waits for a job has a thread; all others
run as under Dagster's in-process executor.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

from dagster import DagsterEvent, Executor, Field, InitExecutorContext, Int, executor
from dagster._core.events import EngineEventData
from dagster._core.execution.api import ExecuteRunWithPlanIterable
from dagster._core.execution.context.system import PlanExecutionContext, PlanOrchestrationContext
from dagster._core.execution.context_creation_job import PlanExecutionContextManager
from dagster._core.execution.plan.plan import ExecutionPlan
from dagster._core.execution.retries import RetryMode, get_retries_config

from examlops_dagster.dagster_bridge.execution import execution_events
from examlops_dagster.errors import UsageError

MOST_STEPS = 1000
"""A thread each, and a job in the queue each: about what clusters let one user submit, and what
`benchmarks/jobs_1000.py` holds."""


class WaitingExecutor(Executor):
    """Runs the steps of a run in this process; those that wait for jobs in a thread each.

    Parameters
    ----------
    retries
        As of Dagster's executors.
    max_concurrent
        Steps at once, of any kind.
    """

    def __init__(self, retries: RetryMode, max_concurrent: int = MOST_STEPS) -> None:
        if max_concurrent < 1:
            raise UsageError(f"max_concurrent of waiting_executor is {max_concurrent} → at least 1")
        self._retries = retries
        self._max_concurrent = max_concurrent

    @property
    def retries(self) -> RetryMode:
        """Whether steps are tried again."""
        return self._retries

    def execute(
        self, plan_context: PlanOrchestrationContext, execution_plan: ExecutionPlan
    ) -> Iterator[DagsterEvent]:
        """Run the steps of a plan, and give their events."""
        keys = execution_plan.step_keys_to_execute
        yield DagsterEvent.engine_event(
            plan_context,
            f"Executing steps in process (pid: {os.getpid()}); up to {self._max_concurrent} at "
            "once wait for jobs",
            EngineEventData.in_process(os.getpid(), keys),
        )
        yield from ExecuteRunWithPlanIterable(
            execution_plan=execution_plan,
            iterator=self._events,
            execution_context_manager=PlanExecutionContextManager(
                job=plan_context.job,
                retry_mode=plan_context.retry_mode,
                execution_plan=execution_plan,
                run_config=plan_context.run_config,
                dagster_run=plan_context.dagster_run,
                instance=plan_context.instance,
                raise_on_error=plan_context.raise_on_error,
                output_capture=plan_context.output_capture,
                step_dependency_config=self.step_dependency_config,
            ),
        )
        yield DagsterEvent.engine_event(
            plan_context,
            f"Finished steps in process (pid: {os.getpid()})",
            EngineEventData.in_process(os.getpid(), keys),
        )

    def _events(
        self, execution_plan: ExecutionPlan, job_context: PlanExecutionContext
    ) -> Iterator[DagsterEvent]:
        return execution_events(job_context, execution_plan, max_concurrent=self._max_concurrent)


@executor(
    name="waiting",
    config_schema=Field(
        {
            "max_concurrent": Field(
                Int,
                default_value=MOST_STEPS,
                description="Steps at once. Each that waits for a job has a thread, and a job in "
                "the queue of the cluster.",
            ),
            "retries": get_retries_config(),  # type: ignore[no-untyped-call]
        },
        description="Run the steps in one process; those that wait for jobs in a thread each.",
    ),
)
def waiting_executor(init_context: InitExecutorContext) -> WaitingExecutor:
    """Let many steps wait for jobs in one process, so that independent branches run side by side.

    A step of ours that goes to a scheduler, to Prefect or to an orchestrator of another package
    waits in a thread, and so does a plain Dagster asset or op that requires one of our Pipes
    clients (`PipesSlurmClient` tells more, and how to switch it off). One that is built locally,
    and any other plain asset, run as under Dagster's in-process executor. Pools hold as under
    Dagster's executors.

    For ``build_definitions(executor=...)`` and ``Definitions``; ``exa`` uses it by itself. Config:
    ``execution: {config: {max_concurrent: 1000, retries: {enabled: {}}}}``.
    """
    config = init_context.executor_config
    return WaitingExecutor(
        RetryMode.from_config(config["retries"]),  # type: ignore[arg-type]
        config["max_concurrent"],  # type: ignore[arg-type]
    )
