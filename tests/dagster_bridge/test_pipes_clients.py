"""PipesSlurmClient and PipesFluxClient in plain Dagster assets, without our decorators."""

import signal
from pathlib import Path

import pipes_plain
import pipes_programs as programs
import pytest
from dagster import (
    AssetCheckSpec,
    AssetSpec,
    BackfillPolicy,
    Definitions,
    MetadataValue,
    PipesClient,
    ResourceParam,
    RetryPolicy,
    StaticPartitionsDefinition,
    asset,
    build_asset_context,
    job,
    multi_asset,
    op,
)
from dagster._utils.warnings import disable_dagster_warnings
from fluxes import FakeFlux, has_real_flux
from slurms import need_slurm
from started_runs import end, running, start
from waiting import wait_until

from examlops_dagster import PipesFluxClient, PipesSlurmClient, UsageError
from examlops_dagster.orchestrators.ends import Patience

IMPATIENT = Patience(settle=1.0, clean_settle=0.3, files=0.6, refuse=0.2)


@pytest.fixture(autouse=True)
def mock_cluster(tmp_path, monkeypatch):
    monkeypatch.setenv("EXAMLOPS_HPC_SCHEDULER", "mock")
    monkeypatch.setenv("EXAMLOPS_HPC_WORKDIR", str(tmp_path / "spool"))
    monkeypatch.setenv("EXAMLOPS_ASSET_JOB_DIR", str(tmp_path / "jobs"))


def run(home, *assets, client=None, partition=None, tags=None):
    definitions = Definitions(
        assets, resources={"pipes_slurm": client or PipesSlurmClient(patience=IMPATIENT)}
    )
    found = definitions.resolve_implicit_global_asset_job_def()
    return found.execute_in_process(
        instance=home.instance, raise_on_error=False, partition_key=partition, tags=tags
    )


def squares_of(home):
    script = programs.script(home, programs.DAGSTER_SLURM_SCRIPT)

    @asset(check_specs=[AssetCheckSpec("not_empty", asset="squares")])
    def squares(context, pipes_slurm: ResourceParam[PipesClient]):
        done = pipes_slurm.run(context=context, script=script, extras={"number": 4})
        return done.get_materialize_result()

    return squares


def test_a_script_written_for_dagster_slurm_runs_unchanged(home):
    event, _ = programs.assert_squares(home, run(home, squares_of(home)), "mock")
    assert event.metadata["examlops/hpc_job_id"] == MetadataValue.text("1")


def test_several_assets_and_foreign_ones(home):
    script = programs.script(
        home,
        """\
        from dagster_pipes import open_dagster_pipes

        with open_dagster_pipes() as pipes:
            for key in pipes.asset_keys:
                pipes.report_asset_materialization({"key": key}, asset_key=key)
            pipes._data["asset_keys"] = None
            pipes.report_asset_materialization({"key": "x"}, asset_key="nobodys")
        """,
    )

    @multi_asset(specs=[AssetSpec("one"), AssetSpec(["two", "parts"])])
    def several(context, pipes_slurm: PipesSlurmClient):
        yield from pipes_slurm.run(context=context, script=script).get_results()

    result = run(home, several)
    assert result.success
    assert home.events("two/parts")[0].metadata["key"].value == "two/parts"
    assert "nobodys is no asset of this step" in programs.text_of(home, result)


def test_an_op_gets_what_the_program_says(home):
    script = programs.script(
        home, programs.TELLS.replace("pipes.report_asset", "False and pipes.report")
    )
    seen = []

    @op
    def work(context, pipes_slurm: PipesSlurmClient):
        seen.extend(pipes_slurm.run(context=context, script=script).get_custom_messages())

    @job(resource_defs={"pipes_slurm": PipesSlurmClient()})
    def works():
        work()

    assert works.execute_in_process(instance=home.instance).success
    assert seen[0] == {"progress": 0.5, "epoch": 3}


def test_values_of_a_wrong_type_lose_nothing(home):
    script = programs.script(home, programs.STRANGE)

    @asset
    def odd(context, pipes_slurm: PipesSlurmClient):
        return pipes_slurm.run(context=context, script=script).get_materialize_result()

    result = run(home, odd)
    assert result.success
    assert home.events("odd")[0].metadata["bad"] == MetadataValue.text("x")
    assert "another is no asset of this step" in programs.text_of(home, result)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (programs.RAISES, "ValueError: this is why"),
        (programs.NEVER_CLOSES, "opened Dagster Pipes and never closed it"),
        (programs.CLOSES_WITH_EXCEPTION, "swallowed by the program"),
        ("import sys; sys.exit('on stderr')", "on stderr"),
    ],
)
def test_a_job_without_proof_of_success_fails_the_step(home, text, why):
    script = programs.script(home, text)

    @asset
    def bad(context, pipes_slurm: PipesSlurmClient):
        return pipes_slurm.run(context=context, script=script).get_materialize_result()

    result = run(home, bad)
    assert not result.success
    failure = programs.failure_of(result)
    assert why in failure.description
    assert failure.metadata["examlops/hpc_job_id"].value == "1"
    assert failure.metadata["examlops/hpc_state"].value == "FAILED"
    assert home.events("bad") == []


def test_a_command_has_its_resources_setup_and_environment(home):
    command = ["sh", "-c", 'echo "$FROM_SETUP $FROM_ENV $EXAMLOPS_PARTITION" > "$0"', "said"]

    @asset(partitions_def=StaticPartitionsDefinition(["a", "b"]))
    def told(context, pipes_slurm: PipesSlurmClient):
        return pipes_slurm.run(
            context=context,
            command=command,
            setup="export FROM_SETUP=1",
            env={"FROM_ENV": "hush-hush"},
            resources={"gpus": 2, "time": "10m"},
            name="a-name",
        ).get_materialize_result()

    assert run(home, told, partition="b").success
    assert (home.folder / "said").read_text() == "1 hush-hush b\n"
    [row] = programs.jobs_of(home)
    assert (row.node.asset, row.node.partition, row.gpus) == ("a-name", "b", 2)
    for path in Path(row.folder).rglob("*"):
        assert not path.is_file() or b"hush-hush" not in path.read_bytes(), path


def test_a_range_of_partitions_reaches_the_program(home):
    script = programs.script(
        home,
        """\
        from dagster_pipes import open_dagster_pipes

        with open_dagster_pipes() as pipes:
            named = pipes.partition_key_range
            keys = pipes.get_extra("partition_keys")
            pipes.report_asset_materialization({"said": f"{named['start']} {named['end']} {keys}"})
        """,
    )

    with disable_dagster_warnings():  # of a policy in beta

        @asset(
            partitions_def=StaticPartitionsDefinition(["a", "b", "c"]),
            backfill_policy=BackfillPolicy.single_run(),
        )
        def ranged(context, pipes_slurm: PipesSlurmClient):
            return pipes_slurm.run(context=context, script=script).get_materialize_result()

    tags = {"dagster/asset_partition_range_start": "a", "dagster/asset_partition_range_end": "c"}
    assert run(home, ranged, tags=tags).success
    assert home.events("ranged")[0].metadata["said"].value == "a c ['a', 'b', 'c']"


def test_equal_calls_of_one_step_are_two_jobs(home):
    @asset
    def twice(context, pipes_slurm: PipesSlurmClient):
        for _ in range(2):
            done = pipes_slurm.run(context=context, command="true")
        return done.get_materialize_result()

    assert run(home, twice).success
    assert len(programs.jobs_of(home)) == 2


def test_a_retry_takes_the_job_that_succeeded_and_not_one_that_failed(home):
    line = "test -e again && exit 0; touch again; exit 1"
    attempts = []

    @asset(retry_policy=RetryPolicy(max_retries=2))
    def tried(context, pipes_slurm: PipesSlurmClient):
        done = pipes_slurm.run(context=context, command=["sh", "-c", line])
        attempts.append(context.retry_number)
        if len(attempts) == 1:
            raise ValueError("after the job")
        return done.get_materialize_result()

    result = run(home, tried)
    assert result.success
    assert attempts == [1, 2]  # the first job failed, the second succeeded, and was taken again
    assert sorted(row.state for row in programs.jobs_of(home)) == ["COMPLETED", "FAILED"]


def test_without_a_program_or_with_two_it_says_how(home):
    @asset
    def wrong(context, pipes_slurm: PipesSlurmClient):
        with pytest.raises(UsageError, match="either command="):
            pipes_slurm.run(context=context)
        with pytest.raises(UsageError, match="either command="):
            pipes_slurm.run(context=context, command="true", script="x.py")
        return pipes_slurm.run(context=context, command="true").get_materialize_result()

    assert run(home, wrong).success


def test_resources_that_cannot_be_used_are_named(home):
    @asset
    def greedy(context, pipes_slurm: PipesSlurmClient):
        pipes_slurm.run(context=context, command="true", resources={"mem": "plenty"})

    assert "mem" in programs.failure_of(run(home, greedy)).description


def test_a_scheduler_may_be_given(home, monkeypatch):
    from examlops_dagster.schedulers.mock import MockScheduler

    monkeypatch.delenv("EXAMLOPS_HPC_SCHEDULER")

    @asset
    def given(context, pipes_slurm: PipesSlurmClient):
        return pipes_slurm.run(context=context, command="true").get_materialize_result()

    for scheduler in ("mock", MockScheduler()):
        client = PipesFluxClient(scheduler, resources={"gpus": 1})
        definitions = Definitions([given], resources={"pipes_slurm": client})
        found = definitions.resolve_implicit_global_asset_job_def()
        assert found.execute_in_process(instance=home.instance).success


def test_an_asset_may_be_called_by_itself_in_a_test(home):
    squares = squares_of(home)
    with build_asset_context(instance=home.instance) as context:
        done = squares(context, PipesSlurmClient())
    assert done.metadata["total"] == MetadataValue.int(14)
    assert [row.node.asset for row in programs.jobs_of(home)] == ["squares"]


# Interrupts, in a process of its own


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_retry_takes_up_a_job_that_outlived_its_run(home, slow, number):
    process, found = start(home, pipes_plain, slow, "launched")
    end(process, number)
    assert running(slow)
    if number is signal.SIGKILL:
        home.instance.report_run_failed(found)
    (slow / "go").touch()
    again = pipes_plain.execute(home.instance, parent=found.run_id)
    assert again.status.value == "SUCCESS"
    [started] = slow.glob("started-*")
    [event] = home.events("slow")
    assert event.metadata["pid"].value == int(started.name.partition("-")[2])
    [row] = programs.jobs_of(home)
    assert row.state == "COMPLETED"


@pytest.mark.parametrize("how", ["launched", "here"])
def test_terminate_and_ctrl_c_of_a_run_here_cancel_the_job(home, slow, how):
    process, found = start(home, pipes_plain, slow, how)
    if how == "launched":
        home.instance.report_run_canceling(found)
    end(process, signal.SIGINT)
    wait_until(lambda: not running(slow))
    assert programs.jobs_of(home)[0].state == "CANCELLED"


def test_ctrl_c_of_dagster_leaves_the_job(home, slow):
    process, _ = start(home, pipes_plain, slow, "launched")
    end(process, signal.SIGINT)
    assert running(slow)
    assert programs.jobs_of(home)[0].state not in ("CANCELLED", "COMPLETED")


# Other schedulers


@pytest.fixture
def a_flux(tmp_path, monkeypatch):
    """The real one where there is one, else the fake."""
    if not has_real_flux():
        FakeFlux(tmp_path / "flux", monkeypatch)
    return PipesFluxClient()


@pytest.fixture
def a_slurm(tmp_path, monkeypatch):
    need_slurm()
    monkeypatch.setenv("XDG_RUNTIME_DIR", "")
    return PipesSlurmClient()


@pytest.mark.parametrize("scheduler", ["flux", "slurm"])
def test_it_runs_over_other_schedulers(home, monkeypatch, request, scheduler):
    client = request.getfixturevalue(f"a_{scheduler}")
    monkeypatch.delenv("EXAMLOPS_HPC_SCHEDULER")
    assert run(home, squares_of(home), client=client).success
    [event] = home.events("squares")
    assert event.metadata["total"].value == 14
    assert event.metadata["examlops/scheduler"].value == scheduler
    assert event.metadata["examlops/hpc_job_id"].value.isdigit()
