import os
import signal
import threading
import time

import job_functions as functions
import pytest
from build_requests import wait_until
from job_requests import IMPATIENT, Mock, Scripted, job_request, leave_exit, status

from examlops_dagster.core.declarations import NodeType, Upstream
from examlops_dagster.core.seams import AssetOrchestrator
from examlops_dagster.errors import (
    AssetBuildError,
    BuildCancelledError,
    BuildTimeoutError,
    LaunchError,
    ResultError,
)
from examlops_dagster.formats import decode
from examlops_dagster.orchestrators import submitting
from examlops_dagster.orchestrators.scheduler import SchedulerOrchestrator


@pytest.fixture
def mock(tmp_path):
    found = Mock(tmp_path)
    yield found
    found.orchestrator.close()


@pytest.fixture(autouse=True)
def short_delays(monkeypatch):
    monkeypatch.setattr(submitting, "SUBMIT_DELAY_SECONDS", 0.01)


def run_scripted(mock, scripted, function=functions.versions, **how):
    return mock.another(scripted).run(job_request(function, **how))


# the situation table of the first seed


def test_a_completed_job_gives_its_result_and_its_id(mock):
    result = mock.run(functions.versions)
    value = decode(result.value)
    assert value["upstream"] == {"PM100": 3}
    assert value["pid"] != os.getpid()
    assert result.provenance == {
        "orchestrator": "scheduler",
        "scheduler": "mock",
        "hpc_job_id": "1",
        "node": "localhost",
    }
    row = mock.jobs.only
    assert (row.state, row.model, row.job_id) == ("COMPLETED", "asset:numbers", "1")
    assert row.exit_code == 0
    assert row.started_at <= row.ended_at
    assert isinstance(mock.orchestrator, AssetOrchestrator)


def test_a_failed_job_is_an_error_with_its_traceback_and_both_logs(mock):
    with pytest.raises(AssetBuildError, match=r"ended FAILED .*this is why") as caught:
        mock.run(functions.fails)
    error = caught.value
    assert error.reason == "job 1 on mock ended FAILED (exit code 1): ValueError: this is why"
    for text in ("scheduler: mock", "job: 1", "state: FAILED", "on stdout before", "Traceback"):
        assert text in error.details
    assert 'raise ValueError("this is why")' in error.details
    assert "schedulers/job.py" not in error.details  # from the user's first frame on
    assert mock.jobs.only.state == "FAILED"


@pytest.mark.parametrize("timeout", [1.0, 1])
def test_a_job_is_ended_at_its_limit_to_the_second(mock, tmp_path, timeout):
    started = time.monotonic()
    with pytest.raises(BuildTimeoutError, match="ended TIMEOUT"):
        mock.run(
            functions.sleeps, {"folder": str(tmp_path), "seconds": 60}, timeout_seconds=timeout
        )
    assert time.monotonic() - started < 20
    assert mock.jobs.only.state == "TIMEOUT"


def test_a_cancelled_job_is_a_cancelled_build(mock, tmp_path):
    arguments = {"folder": str(tmp_path), "seconds": 60}
    caught = []

    def run():
        try:
            mock.run(functions.sleeps, arguments)
        except BuildCancelledError as error:
            caught.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    wait_until(lambda: list(tmp_path.glob("started-*")), 30)
    [ref] = mock.scheduler.find(mock.jobs.only.token, mock.jobs.only.submitted_at)
    mock.scheduler.cancel([ref])
    thread.join(30)
    assert isinstance(caught[0], BuildCancelledError)
    assert mock.jobs.only.state == "CANCELLED"


def test_a_lost_job_is_an_error(mock):
    unknown = status("UNKNOWN", reason="no such job")
    with pytest.raises(AssetBuildError, match=r"ended LOST \(nothing is known of it"):
        run_scripted(mock, Scripted(status("RUNNING"), unknown))
    assert mock.jobs.only.state == "LOST"


def test_a_refused_job_is_an_error_and_runs_nowhere(mock, tmp_path):
    scripted = Scripted(status("UNKNOWN"), submit=[LaunchError("Invalid account")])
    with pytest.raises(AssetBuildError, match="slurm refused the job of numbers: Invalid account"):
        run_scripted(
            mock, scripted, functions.sleeps, arguments={"folder": str(tmp_path), "seconds": 0}
        )
    assert not list(tmp_path.glob("started-*"))
    assert mock.jobs.only.state == "REFUSED"


def test_without_a_scheduler_it_is_built_locally_and_says_why(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    orchestrator = SchedulerOrchestrator(environment={"PATH": str(tmp_path)})
    result = orchestrator.run(job_request(functions.versions, timeout_seconds=None))
    assert decode(result.value)["pid"] == os.getpid()
    assert result.provenance["orchestrator"] == "local"
    assert result.provenance["fallback"].startswith("local (neither sbatch nor flux is on PATH")


@pytest.mark.parametrize(
    ("function", "why"),
    [
        (functions.inner, "is not importable by a job"),
        (functions.anonymous, "is not importable by a job"),
        (functions.wrapper, "resolves to a different object"),
    ],
)
def test_what_a_job_cannot_import_is_built_locally_and_says_why(mock, function, why):
    result = mock.run(function, timeout_seconds=None)
    assert why in result.provenance["fallback"]
    assert mock.folders == []
    mock.environment["EXAMLOPS_ASSET_FALLBACK"] = "refuse"
    with pytest.raises(AssetBuildError, match=why):
        mock.run(function, timeout_seconds=None)


def test_a_name_that_is_gone_does_not_resolve(mock, monkeypatch):
    function = functions.versions
    monkeypatch.delattr(functions, "versions")
    assert "does not resolve" in mock.run(function, timeout_seconds=None).provenance["fallback"]


def test_a_misspelt_scheduler_is_an_error(tmp_path):
    orchestrator = SchedulerOrchestrator(environment={"EXAMLOPS_HPC_SCHEDULER": "slrum"})
    with pytest.raises(Exception, match="slurm"):
        orchestrator.run(job_request(functions.versions))


def test_without_a_function_there_is_nothing_to_run(mock):
    with pytest.raises(LaunchError, match="no production function"):
        mock.run(None)


# what crosses the border


def test_the_job_has_neither_dagster_nor_a_database(mock, tmp_path, monkeypatch):
    locked = tmp_path / "locked"
    locked.mkdir(mode=0o500)
    mock.environment["PLATFORM_DB"] = str(locked / "platform.db")
    assert decode(mock.run(functions.loaded).value) == ["dagster_pipes"]
    assert list(locked.iterdir()) == []


def test_tables_cross_both_ways(mock):
    pandas = pytest.importorskip("pandas")
    table = pandas.DataFrame({"x": [1, 2]})
    upstreams = (Upstream("table", parameter="table"),)
    request = job_request(functions.frame, {"table": table})
    declaration = request.declaration
    object.__setattr__(declaration, "upstreams", upstreams)
    result = mock.orchestrator.run(request)
    assert result.value.format == "parquet"
    assert decode(result.value)["twice"].tolist() == [2, 4]


def test_a_value_above_the_limit_is_an_error_that_advises(mock):
    mock.environment["EXAMLOPS_HPC_MAX_VALUE"] = "10"
    with pytest.raises(ResultError, match=r"EXAMLOPS_HPC_MAX_VALUE.*deps"):
        mock.run(functions.versions)


def test_a_result_may_say_more(mock):
    result = mock.run(functions.says_more)
    assert result.data_version == "v7"
    assert result.metadata == {"rows": 3, "when": (1, 2)}
    assert decode(mock.run(functions.sees, node_type=NodeType.SENSOR).value) == (True, "new")
    assert mock.run(functions.sees, node_type=NodeType.SENSOR).update_detected is True
    assert mock.run(functions.returns_nothing).value is None


def test_what_cannot_be_kept_says_so(mock):
    with pytest.raises(ResultError, match="cannot be kept as json"):
        mock.run(functions.unusable, serializer="json")


def test_pipes_of_the_job_are_heard(mock, caplog):
    result = mock.run(functions.logs_to_pipes, partition="2026-01-05")
    assert result.metadata == {"loss": 0.5}
    assert result.data_version == "p1"
    assert decode(result.value) == {"partition": "2026-01-05"}
    assert "numbers: from the job" in caplog.text
    methods = [method for method, _ in mock.heard]
    assert methods == ["opened", "log", "report_asset_materialization", "closed"]


def test_a_command_is_a_job_without_our_package(mock, tmp_path):
    target = tmp_path / "it's here"
    argv = ("sh", "-c", 'echo "$EXAMLOPS_ASSET $EXAMLOPS_UPSTREAM" > "$1"', "sh", str(target))
    result = mock.run(functions.versions, command=argv)
    assert result.value is None
    assert target.read_text() == 'numbers {"PM100": 3}\n'
    with pytest.raises(AssetBuildError, match=r"exit code 3.*: gone"):
        mock.run(functions.versions, command=("sh", "-c", "echo gone >&2; exit 3"))


def test_output_of_the_job_is_passed_on(mock, capfd):
    with pytest.raises(AssetBuildError):
        mock.run(functions.fails)
    found = capfd.readouterr()
    assert "on stdout before" in found.out
    assert "ValueError: this is why" in found.err


def test_hostile_names_and_paths_arrive_byte_for_byte(awkward_path, monkeypatch):
    name = "a\"b'c$(touch owned)`touch owned`\n#SBATCH --wrap=x\\"
    mock = Mock(awkward_path)
    monkeypatch.chdir(awkward_path)
    result = mock.run(functions.where, name=name)
    cwd, asset, _ = decode(result.value)
    assert (cwd, asset) == (str(awkward_path), name)
    assert not (awkward_path / "owned").exists()
    [folder] = mock.folders
    script = (folder / "run.sh").read_text()
    assert not [line for line in script.splitlines()[3:] if line.startswith(("#SBATCH", "#FLUX"))]
    assert (folder / "run.sh").stat().st_mode & 0o777 == 0o700
    assert folder.stat().st_mode & 0o777 == 0o700


def test_no_secret_of_the_environment_is_in_a_file(tmp_path):
    mock = Mock(tmp_path, API_SECRET="hush-hush-hush", OTHER="shown")
    mock.environment["EXAMLOPS_HPC_ENV_EXCLUDE"] = "OTHER"
    mock.run(functions.versions)
    for path in tmp_path.rglob("*"):
        if path.is_file():
            assert b"hush-hush" not in path.read_bytes(), path


def test_resources_that_cannot_be_used_are_named(mock):
    with pytest.raises(AssetBuildError, match="mem"):
        mock.run(functions.versions, resources={"mem": "plenty"})
    assert mock.folders == []


def test_the_limit_that_nobody_stated_is_not_inherited(mock):
    scripted = Scripted(status("COMPLETED"))
    scripted.on_submit = leave_exit
    run_scripted(mock, scripted)
    run_scripted(mock, scripted, timeout_seconds=20.0)
    run_scripted(mock, scripted, timeout_seconds=20.0, resources={"time": "1:00:00"})
    assert [s.time_limit_seconds for s in scripted.submissions] == [None, 20.0, 3600.0]


# proof of success


@pytest.mark.parametrize("word", ["OUT_OF_MEMORY", "TIMEOUT", "NODE_FAIL", "CANCELLED", "FAILED"])
def test_the_state_outranks_an_exit_code_of_0(mock, word):
    mock.environment["EXAMLOPS_HPC_INFRA_RETRIES"] = "0"
    scripted = Scripted(status(word))
    scripted.on_submit = leave_exit
    with pytest.raises(AssetBuildError, match=f"ended {word}"):
        run_scripted(mock, scripted)


@pytest.mark.parametrize("word", ["RUNNING", "UNKNOWN", "COMPLETING"])
def test_a_scheduler_that_has_forgotten_or_lags_does_not_contradict(mock, word):
    scripted = Scripted(status(word))
    scripted.on_submit = leave_exit
    assert run_scripted(mock, scripted).provenance["hpc_job_id"] == "101"


def test_an_exit_of_another_attempt_proves_nothing(mock):
    scripted = Scripted(status("COMPLETED"))
    scripted.on_submit = lambda submission: leave_exit(submission, token="older")
    with pytest.raises(AssetBuildError, match="nothing proves its success"):
        run_scripted(mock, scripted)


def test_a_child_killed_for_memory_is_no_success(mock):
    scripted = Scripted(status("RUNNING"))
    scripted.on_submit = lambda submission: leave_exit(submission, oom_kills=2)
    with pytest.raises(AssetBuildError, match="ended OUT_OF_MEMORY"):
        run_scripted(mock, scripted)


@pytest.mark.parametrize(
    ("lines", "why"),
    [
        (["opened"], "never closed"),
        (["opened", "closed with error"], "it broke"),
    ],
)
def test_pipes_that_were_opened_must_be_closed_without_an_exception(mock, lines, why):
    scripted = Scripted(status("COMPLETED"))
    texts = {
        "opened": '{"__dagster_pipes_version": "0.1", "method": "opened", "params": {}}\n',
        "closed with error": '{"__dagster_pipes_version": "0.1", "method": "closed", '
        '"params": {"exception": {"message": "it broke"}}}\n',
    }

    def ends(submission):
        (submission.folder / "messages.jsonl").write_text("".join(texts[line] for line in lines))
        leave_exit(submission)

    scripted.on_submit = ends
    with pytest.raises(AssetBuildError, match=why):
        run_scripted(mock, scripted)


def test_a_process_killed_from_outside_is_a_failure(mock):
    with pytest.raises(
        AssetBuildError, match=r"ended by SIGKILL .out of memory.., exit code 137\)$"
    ):
        mock.run(functions.killed)


def test_an_exit_in_the_function_is_a_failure(mock):
    with pytest.raises(AssetBuildError, match="SystemExit: no more"):
        mock.run(functions.exits)


# waiting, refusing, trying again


def test_a_request_that_can_never_start_is_refused_and_cancelled(mock):
    waits = status("PENDING", reason="PartitionTimeLimit", never_starts=True)
    scripted = Scripted(waits)
    with pytest.raises(AssetBuildError, match=r"ended REFUSED .*PartitionTimeLimit"):
        run_scripted(mock, scripted)
    assert len(scripted.cancelled) == 1


def test_the_time_in_the_queue_has_a_limit_of_its_own(mock):
    scripted = Scripted(status("PENDING", reason="Priority"))
    with pytest.raises(BuildTimeoutError, match=r"in the queue .*Priority"):
        run_scripted(mock, scripted, resources={"queue_time": "1s"})
    assert len(scripted.cancelled) == 1


def test_a_node_failure_is_tried_again_elsewhere_with_a_token_of_its_own(mock):
    failed = status("NODE_FAIL", nodes="n7")
    scripted = Scripted(failed)

    def second(submission):
        if len(scripted.submissions) > 1:
            leave_exit(submission)
            scripted.statuses = [status("COMPLETED")]

    scripted.on_submit = second
    result = run_scripted(mock, scripted)
    assert result.provenance["hpc_job_id"] == "102"
    first, again = scripted.submissions
    assert first.token != again.token
    assert first.folder != again.folder
    assert again.resources["slurm"] == {"exclude": "n7"}
    assert sorted(row.state for row in mock.jobs.rows.values()) == ["COMPLETED", "NODE_FAIL"]


def test_the_budget_of_node_failures_is_kept_and_a_lost_job_has_none(mock):
    scripted = Scripted(status("BOOT_FAIL"))
    with pytest.raises(AssetBuildError, match="ended BOOT_FAIL"):
        run_scripted(mock, scripted)
    assert len(scripted.submissions) == 2
    lost = Scripted(status("UNKNOWN"))
    with pytest.raises(AssetBuildError, match="ended LOST"):
        run_scripted(mock, lost)
    assert len(lost.submissions) == 1


def test_no_answer_is_no_evidence(mock):
    silence = LaunchError("Connection refused", transient=True)
    scripted = Scripted(*[silence] * 40, status("COMPLETED"))
    timer = threading.Timer(1.0, lambda: leave_exit(scripted.submissions[0]))
    timer.start()
    assert run_scripted(mock, scripted).provenance["hpc_job_id"] == "101"
    timer.join()


# exactly once


def test_a_lost_reply_is_looked_up_before_anything_is_submitted_again(mock):
    lost = LaunchError("Socket timed out", transient=True)
    scripted = Scripted(status("COMPLETED"), submit=[lost], found=[["77"]])
    scripted.on_submit = leave_exit
    assert run_scripted(mock, scripted).provenance["hpc_job_id"] == "77"
    assert len(scripted.submissions) == 1


def test_a_submit_that_did_not_arrive_is_tried_again(mock):
    lost = LaunchError("Socket timed out", transient=True)
    scripted = Scripted(status("COMPLETED"), submit=[lost, None], found=[[]])
    scripted.on_submit = lambda s: leave_exit(s) if len(scripted.submissions) > 1 else None
    assert run_scripted(mock, scripted).provenance["hpc_job_id"] == "102"
    first, again = scripted.submissions
    assert first.token == again.token


def test_while_nobody_knows_whether_it_was_taken_nothing_is_submitted(mock):
    lost = LaunchError("Socket timed out", transient=True)
    scripted = Scripted(status("UNKNOWN"), submit=[lost], found=[lost] * 4)
    with pytest.raises(AssetBuildError, match="does not say whether it took the job"):
        run_scripted(mock, scripted, fingerprint="f")
    assert len(scripted.submissions) == 1
    assert mock.jobs.only.state == "SUBMITTING"
    again = Scripted(status("COMPLETED"), found=[["78"]])
    leave_exit(scripted.submissions[0])
    assert run_scripted(mock, again, fingerprint="f").provenance["hpc_job_id"] == "78"
    assert again.submissions == []


def test_the_token_is_on_disk_before_the_submit(mock):
    seen = []
    scripted = Scripted(status("COMPLETED"))

    def look(submission):
        seen.append((submission.folder / "submit.json").exists())
        seen.append(mock.jobs.only.state)
        leave_exit(submission)

    scripted.on_submit = look
    run_scripted(mock, scripted)
    assert seen == [True, "SUBMITTING"]


def test_a_job_that_ran_and_was_forgotten_is_adopted_from_its_folder(mock):
    lost = LaunchError("Socket timed out", transient=True)
    scripted = Scripted(status("UNKNOWN"), submit=[lost], found=[[]])
    scripted.on_submit = leave_exit
    result = run_scripted(mock, scripted)
    assert decode(result.value) == 1
    assert len(scripted.submissions) == 1


# re-attachment


def test_a_job_that_still_runs_is_taken_over(mock, tmp_path):
    arguments = {"folder": str(tmp_path), "seconds": 2}

    class Died(BaseException):
        pass

    def dies(text):
        if "RUNNING" in text:
            raise Died

    first = SchedulerOrchestrator(
        mock.jobs, mock.scheduler, mock.environment, patience=IMPATIENT, progress=dies
    )
    with pytest.raises(Died):
        first.run(job_request(functions.sleeps, arguments, fingerprint="f"))
    result = mock.run(functions.sleeps, arguments, fingerprint="f")
    assert decode(result.value) == "slept"
    assert result.provenance["hpc_job_id"] == "1"
    assert len(mock.folders) == 1
    assert len(list(tmp_path.glob("started-*"))) == 1
    assert any("taking over job 1" in text for text in mock.told)


def test_a_job_that_ended_meanwhile_is_adopted_and_another_fingerprint_is_not(mock):
    scripted = Scripted(status("RUNNING"))

    class Died(BaseException):
        pass

    def dies(submission):
        leave_exit(submission)
        raise Died

    scripted.on_submit = dies
    with pytest.raises(Died):
        run_scripted(mock, scripted, fingerprint="f")
    after = Scripted(status("COMPLETED"), found=[["55"]])
    after.on_submit = leave_exit
    assert run_scripted(mock, after, fingerprint="g").provenance["hpc_job_id"] == "101"
    assert run_scripted(mock, after, fingerprint="f").provenance["hpc_job_id"] == "55"
    assert len(after.submissions) == 1


def test_a_failure_that_nobody_saw_is_told_once(mock):
    scripted = Scripted(status("FAILED"), submit=[KeyError("died")])
    scripted.on_submit = lambda submission: leave_exit(submission, 1, result=False)
    with pytest.raises(KeyError):
        run_scripted(mock, scripted, fingerprint="f")
    after = Scripted(status("FAILED"), found=[["55"]])
    with pytest.raises(AssetBuildError, match="job 55 on slurm ended FAILED"):
        run_scripted(mock, after, fingerprint="f")
    after.on_submit = leave_exit
    after.statuses = [status("COMPLETED")]
    assert run_scripted(mock, after, fingerprint="f").provenance["hpc_job_id"] == "101"


def test_what_was_cancelled_meanwhile_is_submitted_again(mock):
    scripted = Scripted(status("CANCELLED"), submit=[KeyError("died")])
    with pytest.raises(KeyError):
        run_scripted(mock, scripted, fingerprint="f")
    after = Scripted(status("CANCELLED"), status("COMPLETED"), found=[["55"]])
    after.on_submit = leave_exit
    assert run_scripted(mock, after, fingerprint="f").provenance["hpc_job_id"] == "101"


# interrupts


@pytest.mark.parametrize(("number", "cancelled"), [(signal.SIGINT, True), (signal.SIGTERM, False)])
def test_ctrl_c_cancels_and_sees_it_gone_and_a_sigterm_leaves_it(mock, tmp_path, number, cancelled):
    class Interrupted(BaseException):
        pass

    def interrupt(*_):
        raise Interrupted

    former = {n: signal.signal(n, interrupt) for n in (signal.SIGINT, signal.SIGTERM)}

    def send():
        wait_until(lambda: list(tmp_path.glob("started-*")), 30)
        os.kill(os.getpid(), number)

    thread = threading.Thread(target=send)
    thread.start()
    try:
        with pytest.raises(Interrupted):
            mock.run(functions.sleeps, {"folder": str(tmp_path), "seconds": 3}, fingerprint="f")
    finally:
        for n, handler in former.items():
            signal.signal(n, handler)
        thread.join()
    row = mock.jobs.only
    [ref] = mock.scheduler.find(row.token, row.submitted_at)
    state = mock.scheduler.poll([ref])[ref].state.word
    if cancelled:
        assert (state, row.state) == ("CANCELLED", "CANCELLED")
    else:
        assert (state, row.state) == ("RUNNING", "RUNNING")
        mock.run(functions.sleeps, {"folder": str(tmp_path), "seconds": 3}, fingerprint="f")
        assert len(mock.folders) == 1


def test_the_request_decides_what_an_interrupt_means(mock, tmp_path):
    import dataclasses

    asked = []

    def meant(number):
        asked.append(number)
        return False

    def interrupt(text):
        if "RUNNING" in text:
            raise KeyboardInterrupt

    orchestrator = SchedulerOrchestrator(
        mock.jobs, mock.scheduler, mock.environment, patience=IMPATIENT, progress=interrupt
    )
    request = job_request(functions.sleeps, {"folder": str(tmp_path), "seconds": 1})
    with pytest.raises(KeyboardInterrupt):
        orchestrator.run(dataclasses.replace(request, ends_job=meant))
    assert asked == [None]
    assert mock.jobs.only.state == "RUNNING"
    row = mock.jobs.only
    [ref] = mock.scheduler.find(row.token, row.submitted_at)
    wait_until(lambda: mock.scheduler.poll([ref])[ref].state.final, 30)


def test_versions_of_thousands_of_keys_arrive(mock):
    many = {f"2026-01-05-{n:06}": n for n in range(9000)}
    value = decode(mock.run(functions.versions, {"PM100": many}).value)
    assert value["upstream"] == {"PM100": many}


def test_many_jobs_wait_at_once_in_threads(mock):
    results = {}

    def run(n):
        results[n] = decode(mock.run(functions.versions, {"PM100": n}).value)["upstream"]

    threads = [threading.Thread(target=run, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert results == {n: {"PM100": n} for n in range(8)}
    assert len({row.job_id for row in mock.jobs.rows.values()}) == 8
