"""Ticks of automation in this process: what it requests, and the runs that Dagster makes of it."""

import time

from dagster import AssetKey, DagsterRunStatus, build_schedule_context, build_sensor_context
from dagster._core.definitions.automation_tick_evaluation_context import (
    build_run_requests_with_backfill_policies,
)
from dagster._core.definitions.sensor_definition import SensorExecutionData
from dagster._core.execution.backfill import PartitionBackfill
from dagster._core.remote_origin import (
    InProcessCodeLocationOrigin,
    ManagedGrpcPythonEnvCodeLocationOrigin,
    RemoteInstigatorOrigin,
    RemoteJobOrigin,
    RemoteRepositoryOrigin,
)
from dagster._core.scheduler.instigation import (
    InstigatorState,
    InstigatorStatus,
    InstigatorType,
    ScheduleInstigatorData,
)
from dagster._core.storage.tags import BACKFILL_ID_TAG
from dagster._core.types.loadable_target_origin import LoadableTargetOrigin
from dagster._core.utils import make_new_backfill_id
from dagster._grpc.impl import get_external_sensor_execution

from examlops_dagster.dagster_bridge.due import schedule_name

FORMS = ("conditions", "sensor")
REPOSITORY = RemoteRepositoryOrigin(
    InProcessCodeLocationOrigin(LoadableTargetOrigin()), "__repository__"
)


def place(location_name):
    """Give the origin of the repository in a code location of a workspace."""
    target = LoadableTargetOrigin(module_name=location_name)
    origin = ManagedGrpcPythonEnvCodeLocationOrigin(target, location_name)
    return RemoteRepositoryOrigin(origin, "__repository__")


class Automation:
    """A location that is kept fresh in one of the forms, as Dagster's daemon does it."""

    def __init__(self, home, module, form, **how):
        self.home = home
        self.module = module
        self.instance = home.instance
        self.definitions = home.definitions(module, automation=form, **how)
        self.repository = self.definitions.get_repository_def()

    def requests(self):
        """Evaluate the sensor once; a plain dict of names to keys for each run or backfill."""
        return list(self.evaluate("keep_fresh").run_requests)

    def evaluate(self, sensor):
        with build_sensor_context(
            instance=self.instance, repository_def=self.repository, sensor_name=sensor
        ) as context:
            return self.repository.get_sensor_def(sensor).evaluate_tick(context)

    def requested(self):
        """Give the names of the assets that one tick requests, for each run or backfill."""
        found = []
        for request in self.requests():
            keys = request.asset_selection
            if request.requires_backfill_daemon():
                keys = request.asset_graph_subset.asset_keys
            found.append(sorted(key.to_user_string() for key in keys))
        return sorted(found)

    def tick(self):
        """Evaluate the sensor once, and execute what it requests; give the results of the runs."""
        results = []
        for request in self.requests():
            for run in self._runs(request):
                results.append(self.execute(run))
        return results

    def _runs(self, request):
        if not request.requires_backfill_daemon():
            return [request]
        made = build_run_requests_with_backfill_policies(
            list(request.asset_graph_subset.iterate_asset_partitions()),
            self.repository.asset_graph,
            self.instance,
        )
        return [run.with_replaced_attrs(tags={**run.tags, **request.tags}) for run in made]

    def job(self, keys):
        return self.repository.get_implicit_job_def_for_assets(list(keys)).get_subset(
            asset_selection=set(keys)
        )

    def execute(self, request):
        return self.job(request.asset_selection).execute_in_process(
            instance=self.instance, raise_on_error=False, tags=request.tags
        )

    def queue(self, request, status=DagsterRunStatus.QUEUED):
        """Let a requested run stand in the queue."""
        return self.instance.create_run_for_job(
            job_def=self.job(request.asset_selection),
            asset_selection=set(request.asset_selection),
            tags=request.tags,
            status=status,
            remote_job_origin=RemoteJobOrigin(REPOSITORY, "__ASSET_JOB"),
        )

    def start_backfill(self, request):
        """Let a requested backfill be taken up, as the sensor daemon does."""
        backfill = PartitionBackfill.from_asset_graph_subset(
            backfill_id=make_new_backfill_id(),
            backfill_timestamp=time.time(),
            tags=request.tags,
            dynamic_partitions_store=self.instance,
            asset_graph_subset=request.asset_graph_subset,
            title=None,
            description=None,
            run_config=None,
        )
        self.instance.add_backfill(backfill)
        return backfill

    def execute_backfill(self, backfill, request):
        for run in self._runs(request):
            tags = {**run.tags, BACKFILL_ID_TAG: backfill.backfill_id}
            self.execute(run.with_replaced_attrs(tags=tags))

    def evaluate_schedule(self, name, tick):
        """Evaluate the schedule of a sensor or task for a tick (an aware datetime)."""
        # a context that is not closed leaves its instance behind as that of the whole process
        with build_schedule_context(
            instance=self.instance,
            scheduled_execution_time=tick,
            repository_def=self.repository,
        ) as context:
            return self.repository.get_schedule_def(schedule_name(name)).evaluate_tick(context)

    def evaluate_in(self, location_name):
        """Evaluate the sensor as the code server of a location of that name does."""
        data = get_external_sensor_execution(
            repo_def=self.repository,
            code_location_origin=place(location_name).code_location_origin,
            instance_ref=self.instance.get_ref(),
            sensor_name="keep_fresh",
            last_tick_completion_timestamp=None,
            last_run_key=None,
            cursor=None,
            log_key=None,
            last_sensor_start_timestamp=None,
        )
        assert isinstance(data, SensorExecutionData), data
        return data.run_requests

    def turn_off(self, name, repository=REPOSITORY):
        """Turn a schedule off, as the switch in the UI does."""
        self.instance.add_instigator_state(
            InstigatorState(
                RemoteInstigatorOrigin(repository, name),
                InstigatorType.SCHEDULE,
                InstigatorStatus.STOPPED,
                ScheduleInstigatorData("0 * * * *"),
            )
        )

    def states(self):
        """Give the shown states by name, as the command line does."""
        return self.home.states(self.module)


def key(name):
    return AssetKey(name.split("/"))
