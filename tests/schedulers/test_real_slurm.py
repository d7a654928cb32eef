"""What only a real Slurm shows: limits, holds, lost nodes, accounting."""

import itertools
import os
import shutil
import subprocess
import time
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path

import pytest
from needs import lack
from scheduler_kit import ended, reaches
from waiting import wait_until

from examlops_dagster.errors import LaunchError
from examlops_dagster.schedulers.base import FailureClass, JobState
from examlops_dagster.schedulers.commands import Answer, run_command
from examlops_dagster.schedulers.slurm import SlurmScheduler

pytestmark = pytest.mark.usefixtures("real_slurm")


def scontrol(*argv):
    return subprocess.run(
        ["scontrol", *argv], check=False, timeout=60, capture_output=True, text=True
    )


class SmallArrays:
    """The real commands, of a Slurm that claims another MaxArraySize."""

    def __init__(self, limit):
        self.limit = limit
        self.submits = 0

    def __call__(self, argv, *, environment=None, extra=None):
        if list(argv) == ["scontrol", "show", "config"]:
            return Answer(tuple(argv), 0, f"MaxArraySize            = {self.limit}\n", "")
        self.submits += argv[0] == "sbatch"
        return run_command(argv, environment=environment, extra=extra)


class Forgetful:
    """The real commands, of a Slurm whose squeue and scontrol forgot every job (MinJobAge)."""

    def __call__(self, argv, *, environment=None, extra=None):
        if argv[0] == "squeue":
            return Answer(tuple(argv), 0, "", "")
        if list(argv[:2]) == ["scontrol", "-o"]:
            return Answer(tuple(argv), 1, "", "slurm_load_jobs error: Invalid job id specified\n")
        return run_command(argv, environment=environment, extra=extra)


def test_a_split_array_has_one_log_a_task_under_the_index_of_the_submission(work):
    runner = SmallArrays(10)
    scheduler = SlurmScheduler(runner)
    job = work('echo "task $index"; [ $index != 13 ] || exit 5', array=23)
    refs = scheduler.submit(job)
    assert runner.submits == 3
    assert [ref.index for ref in refs] == list(range(23))
    found = ended(scheduler, *refs)
    assert [n for n, status in enumerate(found) if status.state is JobState.FAILED] == [13]
    for index in range(23):
        assert (job.folder / f"stdout.{index}.log").read_text() == f"task {index}\n"
    again = scheduler.find(job.token, refs[0].submitted_at)
    assert [(ref.job_id, ref.index, ref.offset) for ref in again] == [
        (ref.job_id, ref.index, ref.offset) for ref in refs
    ]


def test_a_task_of_a_later_part_is_cancelled_alone(work):
    scheduler = SlurmScheduler(SmallArrays(10))
    refs = scheduler.submit(work("sleep 600", array=12))
    reaches(scheduler, refs[11], JobState.RUNNING)
    scheduler.cancel([refs[11]])
    assert ended(scheduler, refs[11])[0].state is JobState.CANCELLED
    assert scheduler.poll(refs)[refs[1]].state is JobState.RUNNING
    scheduler.cancel(refs)
    assert {status.state for status in ended(scheduler, *refs)} == {JobState.CANCELLED}


def test_a_held_job_is_stuck_and_goes_on_when_released(real_slurm, work):
    (ref,) = real_slurm.submit(work("true", resources={"slurm": {"hold": True}}))
    status = reaches(real_slurm, ref, JobState.STUCK)
    assert (status.reason, status.never_starts) == ("JobHeldUser", False)
    scontrol("release", ref.job_id)
    assert ended(real_slurm, ref)[0].state is JobState.COMPLETED


@pytest.mark.parametrize(
    ("resources", "reasons"),
    [
        ({"partition": "short", "time": "1h"}, {"PartitionTimeLimit", "PartitionConfig"}),
        ({"cpus_per_task": 999}, {"PartitionConfig"}),
        ({"slurm": {}}, {"DependencyNeverSatisfied"}),
    ],
)
def test_a_request_that_can_never_start_is_told(real_slurm, work, resources, reasons):
    if "slurm" in resources:
        (failed,) = real_slurm.submit(work("exit 1"))
        ended(real_slurm, failed)
        resources = {"slurm": {"dependency": f"afterok:{failed.job_id}"}}
    (ref,) = real_slurm.submit(work("true", resources=resources))
    wait_until(lambda: real_slurm.poll([ref])[ref].never_starts, step=0.3)
    status = real_slurm.poll([ref])[ref]
    assert status.state is JobState.PENDING
    assert status.reason in reasons
    real_slurm.cancel([ref])
    assert ended(real_slurm, ref)[0].state is JobState.CANCELLED


def test_a_folder_that_the_node_cannot_open_is_told_in_words(real_slurm, work):
    job = work("true")
    gone = job.folder / "gone"
    (ref,) = real_slurm.submit(replace(job, folder=gone))
    (status,) = ended(real_slurm, ref)
    assert (status.state, status.exit_code) == (JobState.FAILED, None)
    assert "0:53" in status.reason


@pytest.mark.slow
def test_the_time_limit_of_slurm_is_a_timeout(real_slurm, work):
    (ref,) = real_slurm.submit(work("sleep 600", time_limit_seconds=60))
    reaches(real_slurm, ref, JobState.RUNNING)
    scontrol("update", f"jobid={ref.job_id}", "EndTime=now+2")
    (status,) = ended(real_slurm, ref)
    assert (status.state, status.exit_code) == (JobState.TIMEOUT, None)
    assert status.state.failure is FailureClass.LIMIT


def test_a_lost_node_is_the_fault_of_the_cluster(real_slurm, work):
    (ref,) = real_slurm.submit(work("sleep 600", resources={"partition": "spare"}))
    node = reaches(real_slurm, ref, JobState.RUNNING).nodes
    try:
        scontrol("update", f"nodename={node}", "state=down", "reason=test")
        (status,) = ended(real_slurm, ref)
    finally:
        scontrol("update", f"nodename={node}", "state=resume")
    assert status.state is JobState.NODE_FAIL
    assert status.state.failure is FailureClass.INFRASTRUCTURE


def test_nobody_can_start_it_a_second_time(real_slurm, work):
    (ref,) = real_slurm.submit(work("sleep 600"))
    reaches(real_slurm, ref, JobState.RUNNING)
    assert scontrol("requeue", ref.job_id).returncode == 1
    real_slurm.cancel([ref])


def test_a_suspended_job_goes_on(real_slurm, work):
    job = work("while [ ! -e go ]; do sleep 0.1; done")
    (ref,) = real_slurm.submit(job)
    reaches(real_slurm, ref, JobState.RUNNING)
    scontrol("suspend", ref.job_id)
    assert reaches(real_slurm, ref, JobState.SUSPENDED).native == "SUSPENDED"
    scontrol("resume", ref.job_id)
    (job.folder / "go").touch()
    assert ended(real_slurm, ref)[0].state is JobState.COMPLETED


def test_a_controller_that_is_not_there_is_no_answer(tmp_path, work, monkeypatch):
    lines = Path(os.environ["SLURM_CONF"]).read_text(encoding="utf-8").splitlines()
    kept = [line for line in lines if not line.startswith(("SlurmctldPort", "MessageTimeout"))]
    elsewhere = tmp_path / "slurm.conf"
    elsewhere.write_text("\n".join([*kept, "SlurmctldPort=9", "MessageTimeout=2"]))
    monkeypatch.setenv("SLURM_CONF", str(elsewhere))
    scheduler = SlurmScheduler()
    with pytest.raises(LaunchError, match="Unable to contact slurm controller") as caught:
        scheduler.submit(work("true"))
    assert caught.value.transient is True


def test_a_thousand_jobs_are_submitted_and_asked_about_quickly(real_slurm, work):
    def seconds(**how):
        job = work("true", resources={"slurm": {"hold": True}}, **how)
        times = [time.monotonic()]
        refs = real_slurm.submit(job)
        times.append(time.monotonic())
        found = real_slurm.poll(refs)
        times.append(time.monotonic())
        real_slurm.cancel(refs)
        times.append(time.monotonic())
        assert len(found) == how.get("array", 1)
        assert {status.state for status in found.values()} == {JobState.STUCK}
        return [after - before for before, after in itertools.pairwise(times)]

    one, thousand = seconds(), seconds(array=1000)
    for what, alone, together in zip(("submit", "poll", "cancel"), one, thousand, strict=True):
        print(f"{what}: 1 job {alone:.3f} s, 1,000 tasks {together:.3f} s")
        assert together < 200 * alone  # one by one: 1,000 times as long


@pytest.mark.accounting
class TestAccounting:
    """What sacct knows after the queue forgot it."""

    @pytest.fixture(autouse=True)
    def accounting(self):
        if shutil.which("sacct") is None or run_command(["sacct", "-n", "-X"]).code:
            lack("this Slurm has no accounting")

    @pytest.mark.parametrize(
        ("body", "state", "code"),
        [
            ("true", JobState.COMPLETED, 0),
            ("exit 4", JobState.FAILED, 4),
            ("kill -9 $$", JobState.FAILED, 137),
        ],
    )
    def test_the_end_of_a_job_comes_from_accounting(self, real_slurm, work, body, state, code):
        (ref,) = real_slurm.submit(work(body))
        ended(real_slurm, ref)
        (status,) = ended(SlurmScheduler(Forgetful()), ref)
        assert (status.state, status.exit_code) == (state, code)
        assert status.ended_at is not None

    def test_a_cancelled_job_is_read_from_cancelled_by_uid(self, real_slurm, work):
        (ref,) = real_slurm.submit(work("sleep 600"))
        reaches(real_slurm, ref, JobState.RUNNING)
        real_slurm.cancel([ref])
        (status,) = ended(SlurmScheduler(Forgetful()), ref)
        assert status.state is JobState.CANCELLED
        assert status.reason.startswith("by ")

    def test_an_array_and_its_tokens_are_found_in_accounting(self, work):
        scheduler = SlurmScheduler(SmallArrays(10))
        job = work("[ $index != 11 ] || exit 3", array=12)
        refs = scheduler.submit(job)
        ended(scheduler, *refs)
        forgetful = SlurmScheduler(Forgetful())
        found = ended(forgetful, *refs)
        assert [status.exit_code for status in found] == [0] * 11 + [3]
        again = forgetful.find(job.token, refs[0].submitted_at)
        assert [ref.index for ref in again] == list(range(12))

    def test_another_token_finds_nothing(self):
        since = datetime.now(timezone.utc)
        assert SlurmScheduler(Forgetful()).find("0123456789abcdef", since) == []

    @pytest.mark.parametrize(
        ("resources", "words"),
        [({"account": "nosuch"}, "Invalid account"), ({"qos": "nosuch"}, "Invalid qos"),
         ({"qos": "tiny", "time": "1h"}, "QOS")],
    )  # fmt: skip
    def test_a_bad_account_or_qos_is_refused(self, real_slurm, work, resources, words):
        with pytest.raises(LaunchError, match=words) as caught:
            real_slurm.submit(work("true", resources=resources))
        assert caught.value.transient is False
