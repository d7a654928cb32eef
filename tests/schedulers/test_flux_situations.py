"""Situations of Flux: the fake's own, and others that a scripted `flux` plays (facts/flux.md)."""

import json
import os
import stat
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from fluxes import run_flux
from scheduler_kit import NAME, SUBMITTED_AT, TOKEN, ended, reaches
from waiting import wait_until

from examlops_dagster.errors import LaunchError
from examlops_dagster.schedulers.base import FailureClass, JobRef, JobState, Submission
from examlops_dagster.schedulers.commands import Answer
from examlops_dagster.schedulers.flux import FluxScheduler

DOWN = "flux-jobs: ERROR: Unable to connect to Flux: broker socket /run/flux/local was not found\n"
JOB = JobRef("flux", "446190059520", TOKEN, SUBMITTED_AT)


class Says:
    """A runner that gives answers in order, the last one again and again."""

    def __init__(self, *answers):
        self.answers = list(answers)
        self.argvs = []

    def __call__(self, argv, *, environment=None, extra=None):
        self.argvs.append(list(argv))
        out, err, code = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        return Answer(tuple(argv), code, out, err)


def told(**keys):
    job = {"id": int(JOB.job_id), "name": NAME, "state": "INACTIVE", "urgency": 16,
           "exception": {"occurred": False}}  # fmt: skip
    return json.dumps(job | keys)


def look(*answers):
    return FluxScheduler(Says(*answers)).poll([JOB])[JOB]


def submission(tmp_path, **settings):
    settings.setdefault("folder", tmp_path)
    return Submission(TOKEN, NAME, tmp_path / "run.sh", **settings)


def test_one_task_is_a_flux_submit_that_avoids_the_traps(tmp_path):
    """stdin, PMI, templates, times in seconds, decimal ids (facts/flux.md 11; flux-core#3199, B60)."""
    says = Says(("fCioHgfh\n", "", 0))
    (job,) = FluxScheduler(says).submit(
        submission(tmp_path, resources={"gpus": 1, "cpus_per_task": 4}, time_limit_seconds=5400)
    )
    assert (job.job_id, job.token) == ("446190059520", TOKEN)
    assert says.argvs == [
        [
            "flux", "submit", f"--job-name={NAME}", f"--setattr=user.examlops_token={TOKEN}",
            "--input=/dev/null", f"--output={tmp_path}/stdout.log", f"--error={tmp_path}/stderr.log",
            f"--cwd={tmp_path}", "--setopt=pmi=off", "--time-limit=5400s", "--ntasks=1",
            "--cores-per-task=4", "--gpus-per-task=1", "--", f"{tmp_path}/run.sh",
        ]
    ]  # fmt: skip


def test_more_tasks_are_a_flux_batch_of_one_constant_line(tmp_path):
    says = Says(("ƒCioHgfh\n", "", 0))
    script = tmp_path / "run it's.sh"
    FluxScheduler(says).submit(
        replace(submission(tmp_path, resources={"nodes": 2, "ntasks": 4, "gpus": 8}), script=script)
    )
    (argv,) = says.argvs
    assert argv[:2] == ["flux", "batch"]
    assert argv[8:] == [
        "--nodes=2", "--nslots=4", "--gpus-per-slot=2", "--wrap",
        f"exec '{tmp_path}/run it'\"'\"'s.sh'",
    ]  # fmt: skip


def test_templates_in_a_folder_are_refused(tmp_path):
    """Flux expands {{id}} and knows no escape (facts/flux.md 2.2)."""
    says = Says(("", "", 0))
    for settings in ({"folder": Path("/a{{id}}")}, {"folder": Path("/a{cc}"), "array": 2}):
        with pytest.raises(LaunchError, match="expand"):
            FluxScheduler(says).submit(submission(tmp_path, **settings))
    assert says.argvs == []


@pytest.mark.parametrize(
    ("keys", "state", "code"),
    [
        ({"result": "COMPLETED", "returncode": 0, "waitstatus": 0}, JobState.COMPLETED, 0),
        ({"result": "FAILED", "returncode": 7, "waitstatus": 1792}, JobState.FAILED, 7),
        ({"result": "FAILED", "returncode": 137, "waitstatus": 35072}, JobState.FAILED, 137),
        ({"result": "FAILED", "returncode": -9, "waitstatus": 9}, JobState.FAILED, 137),
        ({"result": "CANCELED", "returncode": 5, "waitstatus": 1280}, JobState.CANCELLED, None),
        ({"result": "CANCELED", "returncode": -128}, JobState.CANCELLED, None),
        ({"result": "TIMEOUT", "returncode": 142, "waitstatus": 36352}, JobState.TIMEOUT, None),
        ({"state": "CLEANUP", "waitstatus": 0}, JobState.COMPLETING, None),
        ({"state": "DEPEND"}, JobState.PENDING, None),
        ({"state": "SCHED", "urgency": 0}, JobState.STUCK, None),
        ({"state": "RUN"}, JobState.RUNNING, None),
        ({"result": "EXPLODED"}, JobState.UNKNOWN, None),
        ({}, JobState.UNKNOWN, None),
    ],
)
def test_the_result_decides(keys, state, code):
    """A timeout marked completed (nextflow#5736, B61); CLEANUP for ever (flux-core#5579, B63)."""
    found = look((told(**keys), "", 0))
    assert (found.state, found.exit_code) == (state, code)


def test_a_request_that_cannot_be_met_is_refused_with_the_note():
    note = "unsatisfiable request: need 1000 slot(s) of 1 core(s), only 16 such slot(s) available"
    raised = {"occurred": True, "severity": 0, "type": "alloc", "note": note}
    found = look((told(result="FAILED", returncode=1, exception=raised), "", 0))
    assert (found.state, found.never_starts, found.exit_code) == (JobState.REFUSED, True, None)
    assert found.reason == f"alloc: {note}"


@pytest.mark.parametrize(
    ("kind", "severity", "note", "state", "nodes"),
    [
        ("exec", 0, "node failure on n2 (rank 1)", JobState.NODE_FAIL, "n2"),
        ("exec", 0, "job shell exec error on broker n2 (rank 1): Cannot allocate memory",
         JobState.NODE_FAIL, "n2"),
        ("exec", 0, "sdexec service is not loaded on n2 (rank 1)", JobState.NODE_FAIL, "n2"),
        ("node-failure", 2, "node failure on n2 (shell rank 1)", JobState.NODE_FAIL, "n2"),
        ("node-failure", 2, "lost contact with job shell", JobState.NODE_FAIL, "n[1-2]"),
        ("prolog", 0, "prolog exited with code=1 on n2 (rank 1)", JobState.BOOT_FAIL, "n2"),
        ("prolog", 0, "prolog timed out on n[2-3] (rank 1-2)", JobState.BOOT_FAIL, "n[2-3]"),
    ],
)  # fmt: skip
def test_a_node_that_failed_is_no_fault_of_the_program(kind, severity, note, state, nodes):
    """It is the one of the job's nodes that a further attempt has to do without."""
    raised = {"occurred": True, "severity": severity, "type": kind, "note": note}
    found = look(
        (told(result="FAILED", returncode=143, nodelist="n[1-2]", exception=raised), "", 0)
    )
    assert (found.state, found.nodes, found.exit_code) == (state, nodes, None)
    assert found.state.failure is FailureClass.INFRASTRUCTURE
    assert found.reason == f"{kind}: {note}"


def test_a_program_that_speaks_of_nodes_fails_by_itself():
    note = "task 0 (host n2): start failed: /node failure on n2 (rank 1): No such file or directory"
    raised = {"occurred": True, "severity": 0, "type": "exec", "note": note}
    found = look((told(result="FAILED", returncode=127, nodelist="n2", exception=raised), "", 0))
    assert (found.state, found.exit_code) == (JobState.FAILED, 127)


@pytest.mark.parametrize(
    ("severity", "kind"), [(3, "deprecated"), (2, "node-failure"), (2, "epilog")]
)
def test_an_exception_that_is_not_fatal_changes_nothing(severity, kind):
    raised = {"occurred": True, "severity": severity, "type": kind, "note": "x"}
    found = look((told(result="COMPLETED", returncode=0, waitstatus=0, exception=raised), "", 0))
    assert (found.state, found.reason) == (JobState.COMPLETED, "")


@pytest.mark.parametrize(
    "answer",
    [("", DOWN, 1), ("", "", 1), ("garbage", "", 0), ('{"x": 1}', "", 0), ("", "", -9)],
)
def test_a_command_that_failed_says_nothing_of_the_jobs(answer):
    """`flux jobs` exits 1 with '' (nextflow#3419, B62); rc 1 means many things."""
    with pytest.raises(LaunchError) as caught:
        look(answer)
    assert caught.value.transient is True


def test_a_job_that_the_instance_forgot_is_no_failure():
    """Purge limits and restarts drop finished jobs (flux-core#4719, B67)."""
    found = look(("", f"JobID {JOB.job_id} unknown\n", 1))
    assert found.state is JobState.UNKNOWN
    assert found.seen_at is not None


def test_another_instance_has_the_same_ids():
    assert (
        look((told(name="asset-other-99999999", result="FAILED"), "", 0)).state is JobState.UNKNOWN
    )


def test_a_thousand_jobs_are_one_question():
    jobs = [replace(JOB, job_id=str(n)) for n in range(1, 1001)]
    says = Says(
        (json.dumps({"jobs": [json.loads(told(id=n, state="RUN")) for n in range(1, 1001)]}), "", 0)
    )
    found = FluxScheduler(says).poll(jobs)
    assert {status.state for status in found.values()} == {JobState.RUNNING}
    assert len(says.argvs) == 1


@pytest.mark.parametrize(
    "answer", [("", DOWN, 1), ("", "", 0), ("f5\n", "oops\n", 1), ("", "", -9)]
)
def test_a_lost_reply_may_be_a_job(tmp_path, answer):
    with pytest.raises(LaunchError) as caught:
        FluxScheduler(Says(answer)).submit(submission(tmp_path))
    assert caught.value.transient is True


@pytest.mark.parametrize(
    "said",
    ["[Errno 22] 'batch' is not a valid queue", "[Errno 1] Invalid queue 'nosuch' specified",
     "[Errno 22] requested duration (3h) exceeds policy limit of 2h for queue batch"],
)  # fmt: skip
def test_a_refusal_is_told_in_fluxs_words(tmp_path, said):
    with pytest.raises(LaunchError, match="Flux refused the job: ") as caught:
        FluxScheduler(Says(("", said + "\n", 1))).submit(submission(tmp_path))
    assert caught.value.transient is False
    assert said in str(caught.value)


def test_an_array_of_which_some_were_taken_may_be_all(tmp_path):
    says = Says(("f5\n", "", 0), (told(name=f"{NAME}.0", state="RUN"), "", 0))
    with pytest.raises(LaunchError, match="1 of 3 tasks") as caught:
        FluxScheduler(says).submit(submission(tmp_path, array=3))
    assert caught.value.transient is True


def test_tasks_of_an_array_with_nested_instances_are_one_batch_each(flux, work):
    job = work('echo "task $index"', array=2, resources={"ntasks": 2})
    jobs = flux.submit(job)
    assert [ref.index for ref in jobs] == [0, 1]
    assert {status.state for status in ended(flux, *jobs)} == {JobState.COMPLETED}
    assert (job.folder / "stdout.1.log").read_text() == "task 1\n"
    assert [ref.job_id for ref in flux.find(job.token, SUBMITTED_AT)] == [j.job_id for j in jobs]


def test_a_cancel_that_finds_one_ended_reaches_the_others():
    says = Says(("", "flux-cancel: ERROR: f5: job is inactive\n", 1))
    FluxScheduler(says).cancel([JOB, replace(JOB, job_id="7")])
    assert says.argvs == [["flux", "cancel", JOB.job_id, "7"]]


def test_a_cancel_that_did_not_get_through_is_told():
    with pytest.raises(LaunchError) as caught:
        FluxScheduler(Says(("", DOWN.replace("jobs", "cancel"), 1))).cancel([JOB])
    assert caught.value.transient is True


def test_the_time_limit_ends_the_job(flux, work):
    (ref,) = flux.submit(work("sleep 600", time_limit_seconds=1))
    (status,) = ended(flux, ref)
    assert (status.state, status.exit_code) == (JobState.TIMEOUT, None)
    assert "expired" in status.reason


def test_too_much_is_refused_after_it_was_taken(flux, work):
    (ref,) = flux.submit(work("true", resources={"cpus_per_task": 9999}))
    (status,) = ended(flux, ref)
    assert (status.state, status.never_starts) == (JobState.REFUSED, True)
    assert "unsatisfiable request" in status.reason


def test_a_held_job_is_stuck_until_it_is_released(flux, work):
    (ref,) = flux.submit(work("true", resources={"flux": {"urgency": 0}}))
    status = reaches(flux, ref, JobState.STUCK)
    assert (status.reason, status.never_starts) == ("held", False)
    subprocess.run(["flux", "job", "urgency", ref.job_id, "16"], check=True, timeout=60)
    assert ended(flux, ref)[0].state is JobState.COMPLETED


def test_a_program_that_cannot_be_started_is_failed(flux, work):
    job = work("true")
    (ref,) = flux.submit(replace(job, script=job.folder / "nosuch.sh"))
    (status,) = ended(flux, ref)
    assert (status.state, status.exit_code) == (JobState.FAILED, 127)
    assert "start failed" in status.reason


def test_jobs_wait_for_room_and_then_run(fake_flux, work):
    (first,) = fake_flux.submit(work("sleep 600", resources={"ntasks": 2, "cpus_per_task": 8}))
    reaches(fake_flux, first, JobState.RUNNING)
    (second,) = fake_flux.submit(work("true", resources={"cpus_per_task": 8}))
    assert fake_flux.poll([second])[second].state is JobState.PENDING
    fake_flux.cancel([first])
    assert ended(fake_flux, second)[0].state is JobState.COMPLETED


def test_a_lost_node_ends_its_jobs_and_is_told(fake_instance, fake_flux, work):
    ends = {
        "node1": work("sleep 600", resources={"constraint": "rank:0"}),
        "node2": work("sleep 600", resources={"constraint": "host:node2"}),
    }
    refs = {node: fake_flux.submit(job)[0] for node, job in ends.items()}
    for node, ref in refs.items():
        assert reaches(fake_flux, ref, JobState.RUNNING).nodes == node
    fake_instance.lose("node2")
    (status,) = ended(fake_flux, refs["node2"])
    assert (status.state, status.nodes) == (JobState.NODE_FAIL, "node2")
    assert status.reason == "exec: node failure on node2 (rank 1)"
    assert fake_flux.poll([refs["node1"]])[refs["node1"]].state is JobState.RUNNING


@pytest.mark.parametrize(("code", "state"), [(0, JobState.COMPLETED), (3, JobState.NODE_FAIL)])
def test_a_nested_instance_goes_on_without_its_second_node(
    fake_instance, fake_flux, work, code, state
):
    """It is told as an exception that is not fatal; only a failure is put down to it."""
    job = work(f"while [ ! -e go ]; do sleep 0.1; done; exit {code}", resources={"nodes": 2})
    (ref,) = fake_flux.submit(job)
    assert reaches(fake_flux, ref, JobState.RUNNING).nodes == "node[1-2]"
    fake_instance.lose("node2")
    wait_until(lambda: exception_of(ref)["occurred"])
    assert fake_flux.poll([ref])[ref].state is JobState.RUNNING
    (job.folder / "go").touch()
    assert ended(fake_flux, ref)[0].state is state


def exception_of(ref):
    return json.loads(run_flux("jobs", "--json", ref.job_id).stdout)["exception"]


def test_without_an_instance_nothing_is_known(fake_flux, work, monkeypatch):
    monkeypatch.delenv("FAKE_FLUX")
    for ask in (
        lambda: fake_flux.submit(work("true")),
        lambda: fake_flux.poll([JOB]),
        lambda: fake_flux.find(TOKEN, SUBMITTED_AT),
        lambda: fake_flux.cancel([JOB]),
    ):
        with pytest.raises(LaunchError, match="Unable to connect") as caught:
            ask()
        assert caught.value.transient is True


def test_a_broker_that_hangs_is_not_waited_for(tmp_path, monkeypatch):
    """submit, jobs and cancel wait without limit (facts/flux.md 8)."""
    program = tmp_path / "flux"
    program.write_text("#!/bin/sh\nsleep 600 & wait\n")
    program.chmod(stat.S_IRWXU)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("EXAMLOPS_SLURM_CMD_TIMEOUT", "0.5")
    with pytest.raises(LaunchError, match=r"flux gave no answer within 0\.5 s") as caught:
        FluxScheduler().poll([JOB])
    assert caught.value.transient is True


def test_a_purged_job_of_the_instance_is_unknown(fake_flux, work):
    (ref,) = fake_flux.submit(work("true"))
    ended(fake_flux, ref)
    subprocess.run(
        ["flux", "job", "purge", "-f", ref.job_id],
        check=True,
        timeout=60,
        stdout=subprocess.DEVNULL,
    )
    assert fake_flux.poll([ref])[ref].state is JobState.UNKNOWN
    assert fake_flux.find(ref.token, SUBMITTED_AT) == []
