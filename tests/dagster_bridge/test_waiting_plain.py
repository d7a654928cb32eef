"""Plain Dagster assets that use our clients, under the executor in which they wait in threads."""

import signal
import threading
import time

import pipes_programs as programs
import pytest
import waiting_plain as plain
from dagster import (
    DagsterEventType,
    RetryPolicy,
    asset,
    job,
    op,
)
from slurms import need_slurm
from started_runs import end, running, start
from waiting import wait_until
from waiting_plain import COUNT, together

from examlops_dagster import PipesSlurmClient, waiting_executor


@pytest.fixture(autouse=True)
def mock_cluster(tmp_path, monkeypatch):
    monkeypatch.setenv("EXAMLOPS_HPC_SCHEDULER", "mock")
    monkeypatch.setenv("EXAMLOPS_HPC_WORKDIR", str(tmp_path / "spool"))
    monkeypatch.setenv("EXAMLOPS_ASSET_JOB_DIR", str(tmp_path / "jobs"))


@pytest.fixture
def folder(tmp_path, monkeypatch):
    found = tmp_path / "together"
    found.mkdir()
    (found / "together.py").write_text(plain.TOGETHER)
    monkeypatch.setenv("TOGETHER_FOLDER", str(found))
    monkeypatch.setattr(plain, "guard", plain.Guard())
    monkeypatch.setattr(plain, "threads", {})
    yield found
    (found / "go").touch()


def test_the_jobs_of_twenty_plain_assets_run_at_one_time(home, folder):
    client = PipesSlurmClient()
    names = [f"a{n}" for n in range(COUNT)]
    found = plain.definitions([together(name) for name in names], client)
    run = plain.execute(home.instance, found)
    assert run.is_success
    for name in names:
        [event] = home.events(name)
        assert event.tags["dagster/data_version"] == name
    assert len({event.metadata["pid"].value for n in names for event in home.events(n)}) == COUNT
    assert [row.state for row in programs.jobs_of(home)] == ["COMPLETED"] * COUNT
    assert client._databases._open == {}


def test_functions_are_called_one_at_a_time_those_of_the_main_thread_too(home, folder):
    @asset
    def by_itself():
        with plain.guard:
            time.sleep(0.5)

    found = plain.definitions([by_itself, *(together(f"a{n}", 1) for n in range(8))])
    assert plain.execute(home.instance, found).is_success
    assert len(set(plain.threads.values())) == 8
    assert not plain.guard.met


def test_a_function_of_the_main_thread_is_called_while_jobs_wait(home, folder):
    @asset
    def lets_them_go():
        wait_until(lambda: len(list(folder.glob("started-*"))) == 3)
        (folder / "go").touch()

    found = plain.definitions([lets_them_go, *(together(f"a{n}", 99) for n in range(3))])
    assert plain.execute(home.instance, found).is_success


def test_a_tag_keeps_a_step_in_the_main_thread_and_another_puts_one_into_a_thread(home, folder):
    seen = {}

    @asset(op_tags={"examlops/waits": "true"})
    def without_a_client():
        seen["thread"] = threading.current_thread()

    @asset
    def by_itself():
        seen["main"] = threading.current_thread()

    found = plain.definitions([
        together("off", 1, op_tags={"examlops/waits": "false"}),
        together("misspelt", 1, op_tags={"examlops/waits": "no"}),
        without_a_client,
        by_itself,
    ])  # fmt: skip
    run = plain.execute(home.instance, found)
    assert run.is_success
    main = threading.main_thread()
    assert plain.threads["off"] is main
    assert seen["main"] is main
    assert plain.threads["misspelt"] is not main
    assert seen["thread"] is not main
    said = programs.text_of(home, run)
    assert "misspelt: the tag examlops/waits is 'no' → true or false; it is left out" in said


def test_an_async_function_stays_in_the_main_thread(home, folder):
    seen = []

    @asset
    async def later(context, pipes_slurm: PipesSlurmClient):
        seen.append(threading.current_thread())
        return pipes_slurm.run(context=context, command="true").get_materialize_result()

    @asset
    async def latest(context, pipes_slurm: PipesSlurmClient):
        return pipes_slurm.run(context=context, command="true").get_materialize_result()

    assert plain.execute(home.instance, plain.definitions([later, latest])).is_success
    assert seen == [threading.main_thread()]


def test_no_more_wait_at_once_than_the_config_says(home, folder):
    found = plain.definitions([together(f"a{n}", 2) for n in range(2)])
    (folder / "go").touch()
    run = plain.execute(home.instance, found, config={"max_concurrent": 1})
    assert run.is_success
    first, second = sorted(programs.jobs_of(home), key=lambda row: row.submitted_at)
    assert second.submitted_at >= first.ended_at


def test_one_that_fails_and_one_that_is_tried_again_leave_the_others_going(home, folder):
    line = "test -e again && exit 0; touch again; exit 1"

    @asset(retry_policy=RetryPolicy(max_retries=1))
    def shaky(context, pipes_slurm: PipesSlurmClient):
        done = pipes_slurm.run(context=context, command=["sh", "-c", line])
        return done.get_materialize_result()

    @asset
    def bad(context, pipes_slurm: PipesSlurmClient):
        pipes_slurm.run(context=context, command=["sh", "-c", "echo this is why >&2; exit 3"])

    @asset(deps=[bad])
    def below(context, pipes_slurm: PipesSlurmClient):
        return pipes_slurm.run(context=context, command="true").get_materialize_result()

    found = plain.definitions([shaky, bad, below, together("good", 1)])
    run = plain.execute(home.instance, found)
    assert run.is_failure
    assert [len(home.events(name)) for name in ("shaky", "bad", "below", "good")] == [1, 0, 0, 1]
    failed = home.instance.all_logs(run.run_id, of_type=DagsterEventType.STEP_FAILURE)
    [event] = [entry.get_dagster_event() for entry in failed]
    assert "this is why" in event.step_failure_data.user_failure_data.description


def test_ops_of_a_job_wait_side_by_side_too(home, folder):
    script = folder / "together.py"

    @op
    def left(context, pipes_slurm: PipesSlurmClient):
        pipes_slurm.run(context=context, script=script, args=[folder, 2])

    @op
    def right(context, pipes_slurm: PipesSlurmClient):
        pipes_slurm.run(context=context, script=script, args=[folder, 2])

    @job(resource_defs={"pipes_slurm": PipesSlurmClient()}, executor_def=waiting_executor)
    def both():
        left()
        right()

    from dagster._core.definitions.job_base import InMemoryJob
    from dagster._core.execution.api import execute_run_iterator

    run = home.instance.create_run_for_job(job_def=both)
    for _ in execute_run_iterator(InMemoryJob(both), run, home.instance):
        pass
    assert home.instance.get_run_by_id(run.run_id).is_success


def test_jobs_of_a_real_slurm_run_at_one_time(home, folder, monkeypatch):
    need_slurm()
    monkeypatch.delenv("EXAMLOPS_HPC_SCHEDULER")
    monkeypatch.setenv("XDG_RUNTIME_DIR", "")
    assert plain.execute(home.instance, plain.definitions([together("a", 2), together("b", 2)]))
    assert {row.scheduler for row in programs.jobs_of(home)} == {"slurm"}
    assert len(home.events("a") + home.events("b")) == 2


# Interrupts, in a process of its own


@pytest.mark.parametrize("how", ["launched", "here"])
def test_terminate_and_ctrl_c_of_a_run_here_cancel_all_jobs(home, folder, how):
    assert home.instance
    process, found = start(home, plain, folder, how, count=COUNT)
    if how == "launched":
        home.instance.report_run_canceling(found)
    end(process, signal.SIGINT)
    wait_until(lambda: running(folder) == 0)
    assert {row.state for row in programs.jobs_of(home)} == {"CANCELLED"}


@pytest.mark.parametrize(
    ("how", "number"), [("launched", signal.SIGINT), ("launched", signal.SIGTERM),
                        ("here", signal.SIGTERM)],
)  # fmt: skip
def test_a_stop_of_dagster_and_sigterm_leave_all_jobs(home, folder, how, number):
    assert home.instance
    process, _ = start(home, plain, folder, how, count=COUNT)
    end(process, number)
    assert running(folder) == COUNT
    assert not {row.state for row in programs.jobs_of(home)} & {"CANCELLED", "COMPLETED"}
