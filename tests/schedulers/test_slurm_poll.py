"""Situations around squeue, sacct and scontrol, played by scripted commands (facts/hpc.md 3 and 5)."""

import logging

import pytest
from scheduler_kit import NAME, TOKEN, a_job, account, queue

from examlops_dagster.errors import LaunchError
from examlops_dagster.schedulers.base import FailureClass, JobState
from examlops_dagster.schedulers.slurm import SlurmScheduler

INVALID_ID = "slurm_load_jobs error: Invalid job id specified\n"
DOWN = "slurm_load_jobs error: Unable to contact slurm controller (connect failure)\n"


class Seconds:
    def __init__(self):
        self.now = 0.0

    def __call__(self):
        return self.now


def look(scheduler=None, job=None):
    job = job or a_job()
    return (scheduler or SlurmScheduler()).poll([job])[job]


@pytest.mark.parametrize(
    ("word", "state"),
    [
        ("PENDING", JobState.PENDING),
        ("CONFIGURING", JobState.PENDING),
        ("RUNNING", JobState.RUNNING),
        ("SUSPENDED", JobState.SUSPENDED),
        ("STOPPED", JobState.SUSPENDED),
        ("RESIZING", JobState.RUNNING),
        ("SIGNALING", JobState.RUNNING),
        ("STAGE_OUT", JobState.COMPLETING),
        ("COMPLETING", JobState.COMPLETING),
        ("REQUEUED", JobState.PENDING),
        ("REQUEUE_FED", JobState.PENDING),
        ("REQUEUE_HOLD", JobState.STUCK),
        ("SPECIAL_EXIT", JobState.STUCK),
        ("RESV_DEL_HOLD", JobState.STUCK),
        ("REVOKED", JobState.UNKNOWN),
        ("COMPLETED", JobState.COMPLETED),
        ("TIMEOUT", JobState.TIMEOUT),
        ("DEADLINE", JobState.DEADLINE),
        ("OUT_OF_MEMORY", JobState.OUT_OF_MEMORY),
        ("CANCELLED", JobState.CANCELLED),
        ("BOOT_FAIL", JobState.BOOT_FAIL),
        ("NODE_FAIL", JobState.NODE_FAIL),
    ],
)
def test_every_word_of_squeue_has_its_meaning(slurm_plays, word, state):
    """COMPLETING is no end, OUT_OF_MEMORY and NODE_FAIL are known, REQUEUED is no KeyError
    (smk-simple-slurm#29, nextflow#5276, reframe#1977; B17, B21, B27)."""
    slurm_plays.plays("squeue", queue("5", word))
    found = look()
    assert (found.state, found.native) == (state, word)
    if state.final and state is not JobState.COMPLETED:
        assert found.exit_code is None
        assert state.contradicts_success


def test_a_word_that_nobody_knows_is_unknown_and_told_once(slurm_plays, caplog):
    """The rule for unknown states: no end, no crash, loud once (reframe#833, gwf#251; B17, B27)."""
    slurm_plays.plays("squeue", queue("5", "TELEPORTING"))
    scheduler = SlurmScheduler()
    with caplog.at_level(logging.WARNING):
        assert look(scheduler).state is JobState.UNKNOWN
        assert "TELEPORTING" in look(scheduler).reason
    assert caplog.text.count("TELEPORTING (TELEPORTING)") == 1


def test_states_need_not_advance(slurm_plays):
    """RUNNING, then SUSPENDED, then PENDING is no failure (nextflow#226, B26)."""
    scheduler = SlurmScheduler()
    for word in ("RUNNING", "SUSPENDED", "PENDING", "RUNNING"):
        slurm_plays.plays("squeue", queue("5", word))
    assert [look(scheduler).state.word for _ in range(4)] == [
        "RUNNING", "SUSPENDED", "PENDING", "RUNNING",
    ]  # fmt: skip


def test_a_job_that_left_the_queue_is_looked_up_in_accounting(slurm_plays):
    """Gone from squeue between two looks, shown running for ever (Parsl#1588, fractal-server#1681; B1, B4)."""
    slurm_plays.plays("squeue", err=INVALID_ID, code=1)
    slurm_plays.plays("sacct", account("5", "COMPLETED"))
    found = look()
    assert (found.state, found.exit_code, found.nodes) == (JobState.COMPLETED, 0, "node1")


@pytest.mark.parametrize(
    "answer",
    [
        {"code": 1},
        {"err": DOWN, "code": 1},
        {"out": queue("6", "RUNNING"), "code": 1},
        {"err": DOWN, "code": 0},
    ],
)
def test_a_command_that_failed_says_nothing_of_the_jobs(slurm_plays, answer):
    """squeue exits non-zero, with no words or a partial answer: "all finished" (aiida-core#4326,
    #3404, fractal-server#2482; B2, B3)."""
    slurm_plays.plays("squeue", **answer)
    slurm_plays.plays("sacct", account("5", "COMPLETED"))
    with pytest.raises(LaunchError) as caught:
        look()
    assert caught.value.transient is True
    assert slurm_plays.calls("sacct") == []


def test_accounting_that_is_empty_just_after_the_submit_is_no_failure(slurm_plays):
    """sacct is empty for 5 s after sbatch: seen as failed, submitted again (smk-simple-slurm#9, B5)."""
    slurm_plays.plays("squeue", "").plays("sacct", "")
    found = look()
    assert found.state is JobState.UNKNOWN
    assert found.seen_at is not None


def test_without_accounting_an_absent_job_is_unknown_and_sacct_not_asked_again(slurm_plays):
    """ "Slurm accounting storage is disabled" (snakemake …#38, #33, galaxy PR 2403; B6, B7, B14)."""
    slurm_plays.plays("squeue", "")
    scheduler = SlurmScheduler()
    assert look(scheduler).state is JobState.UNKNOWN
    assert look(scheduler).state is JobState.UNKNOWN
    assert len(slurm_plays.calls("sacct")) == 1
    assert len(slurm_plays.calls("scontrol")) == 2


def test_scontrol_answers_where_the_others_do_not(slurm_plays):
    slurm_plays.plays("squeue", "")
    slurm_plays.plays(
        "scontrol",
        f"JobId=5 JobName={NAME} UserId=root(0) Priority=1 JobState=FAILED Reason=NonZeroExitCode "
        "Dependency=(null) Requeue=0 Restarts=0 BatchFlag=1 Reboot=0 ExitCode=4:0 RunTime=0 \n",
        when="show job 5",
    )
    found = look()
    assert (found.state, found.exit_code) == (JobState.FAILED, 4)


def test_accounting_that_is_down_is_not_a_look(slurm_plays):
    slurm_plays.plays("squeue", queue("6", "RUNNING"))
    slurm_plays.plays(
        "sacct", err="sacct: error: Problem talking to the database: Connection refused\n", code=1
    )
    jobs = [a_job("5"), a_job("6")]
    found = SlurmScheduler().poll(jobs)
    assert found[jobs[0]].state is JobState.UNKNOWN
    assert found[jobs[0]].seen_at is None
    assert "Connection refused" in found[jobs[0]].reason
    assert found[jobs[1]].state is JobState.RUNNING


def test_accounting_is_asked_from_the_submit_on_for_every_attempt(slurm_plays):
    """The window of sacct begins at midnight (snakemake#1227, B8)."""
    slurm_plays.plays("squeue", "").plays("sacct", account("5", "COMPLETED"))
    look()
    (call,) = slurm_plays.calls("sacct")
    argv = call["argv"]
    assert argv[argv.index("-S") + 1] == "2026-11-30T11:00:00"
    assert {"-D", "-X", "-P"} <= set(argv)
    assert "State%30" in argv[argv.index("-o") + 1]


@pytest.mark.parametrize("source", ["squeue", "sacct"])
def test_a_reused_id_is_another_job(slurm_plays, source):
    """An old row of the same id is read; the new job "failed" (submitit#1660, B9)."""
    slurm_plays.plays(
        "squeue", queue("5", "FAILED", name="asset-old-99999999") if source == "squeue" else ""
    )
    slurm_plays.plays("sacct", account("5", "FAILED", "1:0", name="asset-old-99999999"))
    assert look().state is JobState.UNKNOWN


def test_of_two_rows_of_an_id_ours_is_taken(slurm_plays):
    slurm_plays.plays("squeue", "")
    slurm_plays.plays(
        "sacct",
        account("5", "FAILED", "1:0", name="asset-old-99999999", submitted="2026-11-30T13:00:00")
        + account("5", "COMPLETED"),
    )
    assert look().state is JobState.COMPLETED


@pytest.mark.parametrize("word", ["RUNNING", "PENDING", "COMPLETING"])
def test_accounting_that_lags_behind_the_end_is_no_live_job(slurm_plays, word):
    """sacct says RUNNING after the end (gc3pie#524, aiida-core#4646; B10)."""
    slurm_plays.plays("squeue", "").plays("sacct", account("5", word))
    found = look()
    assert (found.state, found.native) == (JobState.UNKNOWN, word)
    assert "squeue does not show it" in found.reason


def test_a_job_that_died_at_once_is_failed_in_words(slurm_plays):
    """Output folder not writable: SUBMITTED for ever (nextflow#981, B12); Slurm says 0:53 alone."""
    slurm_plays.plays("squeue", queue("5", "FAILED", "JobLaunchFailure"), when="-o ")
    slurm_plays.plays("squeue", "5                       |4021            |\n", when="-O ")
    found = look()
    assert (found.state, found.exit_code) == (JobState.FAILED, None)
    assert "0:53" in found.reason
    assert "could not open its folder" in found.reason


@pytest.mark.parametrize(
    ("status", "code", "words"),
    [("768", 3, "exit code 3"), ("9", 137, "signal 9"), ("137:0", 137, "exit code 137")],
)
def test_the_exit_code_of_a_failed_job_is_asked_once(slurm_plays, status, code, words):
    slurm_plays.plays("squeue", queue("5", "FAILED", "NonZeroExitCode"), when="-o ")
    slurm_plays.plays("squeue", f"5        |{status}   |\n", when="-O ")
    found = look()
    assert found.exit_code == code
    assert words in found.reason


def test_a_failed_job_stays_failed_where_its_code_is_not_told(slurm_plays):
    slurm_plays.plays("squeue", queue("5", "FAILED", "NonZeroExitCode"), when="-o ")
    slurm_plays.plays(
        "squeue", "5   |\n", err="squeue: error: Invalid job format specification: exit_code\n",
        when="-O ",
    )  # fmt: skip
    found = look()
    assert (found.state, found.exit_code, found.reason) == (
        JobState.FAILED,
        None,
        "NonZeroExitCode",
    )


def test_no_question_names_a_partition(slurm_plays):
    """A job moved to another partition is invisible (nextflow#1151, B13)."""
    slurm_plays.plays("squeue", "")
    scheduler = SlurmScheduler()
    look(scheduler)
    scheduler.find(TOKEN, a_job().submitted_at)
    for call in slurm_plays.calls():
        assert not {"-p", "--partition", "-r0", "-a"} & set(call["argv"])


def test_a_child_that_was_killed_for_memory_outranks_the_exit_code(slurm_plays):
    """main exits 0, the state is OUT_OF_MEMORY: taken as success (qiita#3521, B16)."""
    slurm_plays.plays("squeue", "").plays("sacct", account("5", "OUT_OF_MEMORY", "0:125"))
    found = look()
    assert (found.state, found.exit_code) == (JobState.OUT_OF_MEMORY, None)
    assert found.state.failure is FailureClass.LIMIT


@pytest.mark.parametrize(
    ("word", "state", "reason"),
    [
        ("CANCELLED by 1000", JobState.CANCELLED, "by 1000"),
        ("CANCELLED+", JobState.CANCELLED, ""),
        ("OUT_OF_ME+", JobState.OUT_OF_MEMORY, ""),
        ("NODE_FAIL", JobState.NODE_FAIL, ""),
        ("TIMEOUT", JobState.TIMEOUT, ""),
    ],
)
def test_the_words_of_sacct_are_read_by_their_first_part(slurm_plays, word, state, reason):
    """ "CANCELLED by uid" and a cut OUT_OF_ME (galaxy PR 6007, B18); 0:0 beside them is no success."""
    slurm_plays.plays("squeue", "").plays("sacct", account("5", word))
    found = look()
    assert (found.state, found.reason, found.exit_code) == (state, reason, None)


def test_completed_with_another_code_is_no_success(slurm_plays):
    slurm_plays.plays("squeue", "").plays("sacct", account("5", "COMPLETED", "0:9"))
    assert look().state is JobState.FAILED


def test_step_rows_and_rows_of_other_jobs_are_not_the_job(slurm_plays):
    """With srun steps the parent is COMPLETED while step 0 is CANCELLED (cluster_utils#87, B15):
    the exit file decides; sacct is asked for the job alone."""
    slurm_plays.plays("squeue", "")
    slurm_plays.plays(
        "sacct",
        account("5.batch", "CANCELLED by 0") + account("5", "COMPLETED") + account("50", "FAILED"),
    )
    assert look().state is JobState.COMPLETED


def test_a_preempted_job_is_undecided_until_it_stays_so(slurm_plays):
    """PREEMPTED taken as done, or awaited for ever (submitit PR 1770, reframe#3608, NeMo DataDesigner
    PR 913; B23, B25)."""
    clock = Seconds()
    scheduler = SlurmScheduler(monotonic=clock)
    slurm_plays.plays("squeue", queue("5", "PREEMPTED")).plays("squeue", "")
    slurm_plays.plays("sacct", account("5", "PREEMPTED"))
    assert look(scheduler).state is JobState.UNKNOWN
    clock.now = 30
    assert look(scheduler).state is JobState.UNKNOWN
    clock.now = 61
    assert look(scheduler).state is JobState.PREEMPTED


def test_a_preempted_job_that_runs_again_is_followed(slurm_plays):
    """Slurm and the tool both started it again: two copies (snakemake …#109, B22)."""
    clock = Seconds()
    scheduler = SlurmScheduler(monotonic=clock)
    for word in ("PREEMPTED", "PENDING", "RUNNING", "PREEMPTED"):
        slurm_plays.plays("squeue", queue("5", word))
    states = []
    for _ in range(4):
        states.append(look(scheduler).state.word)
        clock.now += 50
    assert states == ["UNKNOWN", "PENDING", "RUNNING", "UNKNOWN"]


def test_of_the_attempts_of_a_job_the_newest_counts(slurm_plays):
    """`sacct -X` shows PREEMPTED after the second attempt completed; the same id is followed
    through its attempts (MFC#1311, tgen/jetstream#121; B24, B32)."""
    slurm_plays.plays("squeue", "")
    slurm_plays.plays(
        "sacct",
        account("5", "COMPLETED", submitted="2026-11-30T12:09:00")
        + account("5", "NODE_FAIL", submitted="2026-11-30T12:05:00")
        + account("5", "PREEMPTED", submitted="2026-11-30T12:00:00"),
    )
    assert look().state is JobState.COMPLETED


def test_requeued_and_never_seen_again_is_not_waited_for_as_a_live_job(slurm_plays):
    """A stale REQUEUED that never restarts (reframe#3703, B28): unknown, so the deadline runs."""
    slurm_plays.plays("squeue", "").plays("sacct", account("5", "REQUEUED"))
    assert look().state is JobState.UNKNOWN


@pytest.mark.parametrize(
    "reason",
    ["JobHeldUser", "JobHeldAdmin", "job requeued in held state", "launch failed requeued held",
     "launch_failed_requeued_held"],
)  # fmt: skip
def test_what_waits_for_a_person_is_stuck(slurm_plays, reason):
    """ "launch failed requeued held" shows PENDING: waits for ever (burrmill#15, B29)."""
    slurm_plays.plays("squeue", queue("5", "PENDING", reason))
    found = look()
    assert (found.state, found.reason, found.never_starts) == (JobState.STUCK, reason, False)


@pytest.mark.parametrize(
    "reason",
    ["DependencyNeverSatisfied", "BadConstraints", "PartitionNodeLimit", "PartitionTimeLimit",
     "PartitionConfig", "InvalidAccount", "InvalidQOS", "AccountNotAllowed",
     "AssocMaxWallDurationPerJobLimit", "QOSMaxWallDurationPerJobLimit", "QOSMaxCpuPerJobLimit"],
)  # fmt: skip
def test_what_never_clears_is_told(slurm_plays, reason):
    """The reason is hidden from the user (desispec#2682, aiida-core#4567; B52, B53)."""
    slurm_plays.plays("squeue", queue("5", "PENDING", reason))
    found = look()
    assert (found.state, found.reason, found.never_starts) == (JobState.PENDING, reason, True)


@pytest.mark.parametrize(
    "reason",
    ["Priority", "Resources", "None", "BeginTime", "Dependency", "PartitionDown", "JobArrayTaskLimit",
     "ReqNodeNotAvail, UnavailableNodes:node1", "QOSMaxJobsPerUserLimit", "AssocGrpCpuLimit",
     "Nodes required for job are DOWN, DRAINED or reserved for jobs in higher priority partitions"],
)  # fmt: skip
def test_what_looks_fatal_and_is_not_goes_on_waiting(slurm_plays, reason):
    """ReqNodeNotAvail during backfill: jobs killed wrongly (reframe#1049, #2411; B54)."""
    slurm_plays.plays("squeue", queue("5", "PENDING", reason, nodes=""))
    found = look()
    assert (found.state, found.never_starts) == (JobState.PENDING, False)
    assert found.reason == ("" if reason == "None" else reason)


def test_ranges_of_an_array_are_read_with_steps_and_throttle(slurm_plays):
    """`123_[9-10%2]` is not parsed: the array is complete early (reframe PR 3707, seff-array#15; B42)."""
    slurm_plays.plays(
        "squeue", queue("7_[0-6:3,9-10%2]", "PENDING", "Resources") + queue("7_1", "RUNNING")
    )
    jobs = [a_job("7", index=n) for n in (0, 1, 2, 3, 6, 9, 10)]
    found = SlurmScheduler().poll(jobs)
    assert [found[job].state.word for job in jobs] == [
        "PENDING", "RUNNING", "UNKNOWN", "PENDING", "PENDING", "PENDING", "PENDING",
    ]  # fmt: skip


def test_a_list_of_tasks_that_was_cut_short_covers_the_rest(slurm_plays):
    slurm_plays.plays("squeue", queue("7_[1,3,5,...]", "PENDING"))
    jobs = [a_job("7", index=n) for n in (2, 3, 99)]
    found = SlurmScheduler().poll(jobs)
    assert [found[job].state.word for job in jobs] == ["UNKNOWN", "PENDING", "PENDING"]
    assert slurm_plays.calls("squeue")[0]["environment"]["SLURM_BITSTR_LEN"] == "0"


def test_tasks_of_a_split_array_are_known_by_slurms_own_numbers(slurm_plays):
    slurm_plays.plays("squeue", queue("7_4", "COMPLETED", name=f"{NAME}.1000"))
    job = a_job("7", index=1004, offset=1000)
    assert look(job=job).state is JobState.COMPLETED


def test_a_thousand_jobs_are_one_question(slurm_plays):
    """One squeue a job: administrators warn (rwth sisyphus#108, toil#4431, #2323; B43)."""
    jobs = [a_job(str(n)) for n in range(1, 1001)]
    slurm_plays.plays("squeue", "".join(queue(job.job_id, "RUNNING") for job in jobs))
    found = SlurmScheduler().poll(jobs)
    assert {status.state for status in found.values()} == {JobState.RUNNING}
    assert [call["program"] for call in slurm_plays.calls()] == ["squeue"]


def test_more_ids_than_a_line_takes_are_cut_into_chunks(slurm_plays):
    """Too many ids on one sacct line (slurm-pipeline#45, B44)."""
    jobs = [a_job(str(n)) for n in range(1, 2501)]
    slurm_plays.plays("squeue", "").plays("sacct", "")
    SlurmScheduler().poll(jobs)
    assert len(slurm_plays.calls("squeue")) == 2
    assert len(slurm_plays.calls("sacct")) == 7
    assert len(slurm_plays.calls("scontrol")) == 10


def test_an_array_is_one_id_in_the_question(slurm_plays):
    slurm_plays.plays("squeue", "")
    SlurmScheduler().poll([a_job("7", index=n) for n in range(500)])
    argv = slurm_plays.calls("squeue")[0]["argv"]
    assert argv[argv.index("-j") + 1] == "7"


def test_one_purged_id_among_many_does_not_hide_the_others(slurm_plays):
    """Where one unknown id fails the whole command, all jobs of the user are asked for (AiiDA)."""
    slurm_plays.plays("squeue", err=INVALID_ID, code=1, when="-j")
    slurm_plays.plays("squeue", queue("6", "RUNNING"), when="--me")
    jobs = [a_job("5"), a_job("6")]
    found = SlurmScheduler().poll(jobs)
    assert [found[job].state.word for job in jobs] == ["UNKNOWN", "RUNNING"]


def test_names_may_hold_anything(slurm_plays):
    """`|`, blanks and newlines in a name: the job is dropped (firecrest-v2#148, simexpal PR 183; B55)."""
    slurm_plays.plays(
        "squeue",
        queue("4", "RUNNING", name="a|b c")
        + queue("44", "COMPLETING", name="two\nlines|RUNNING|x")
        + queue("5", "RUNNING", name=f"weird | name -{TOKEN[:8]}"),
    )
    assert look().state is JobState.RUNNING


def test_the_users_formats_change_nothing(slurm_plays, monkeypatch):
    """SQUEUE_FORMAT changes the columns (Parsl PR 2293, B57); a delimiter, no widths
    (ufs-weather-model#2379, B58)."""
    for name in (
        "SQUEUE_FORMAT",
        "SQUEUE_STATES",
        "SACCT_FORMAT",
        "SLURM_TIME_FORMAT",
        "SCANCEL_USER",
    ):
        monkeypatch.setenv(name, "x")
    monkeypatch.setenv("SLURM_CONF", "/etc/slurm.conf")
    slurm_plays.plays("squeue", queue("5", "COMPLETING"))
    assert look().state is JobState.COMPLETING
    environment = slurm_plays.calls("squeue")[0]["environment"]
    assert not {"SQUEUE_FORMAT", "SQUEUE_STATES", "SACCT_FORMAT", "SLURM_TIME_FORMAT"} & set(
        environment
    )
    assert (environment["SLURM_CONF"], environment["LC_ALL"]) == ("/etc/slurm.conf", "C")


def test_times_are_read_as_utc_whatever_the_zone(slurm_plays, monkeypatch):
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    slurm_plays.plays("squeue", queue("5", "RUNNING"))
    assert look().started_at.isoformat() == "2026-11-30T12:00:01+00:00"
    assert slurm_plays.calls("squeue")[0]["environment"]["TZ"] == "UTC"


def test_failed_with_0_0_is_read_again_before_it_is_believed(slurm_plays):
    """An outage of slurmdbd: FAILED 0:0, a little later 4:0 (facts/slurm.md 3.5)."""
    clock = Seconds()
    scheduler = SlurmScheduler(monotonic=clock)
    slurm_plays.plays("squeue", "")
    for code in ("0:0", "0:0", "4:0"):
        slurm_plays.plays("sacct", account("5", "FAILED", code))
    assert look(scheduler).state is JobState.UNKNOWN
    clock.now = 10
    assert look(scheduler).state is JobState.UNKNOWN
    clock.now = 15
    assert look(scheduler).exit_code == 4


def test_failed_with_0_0_that_stays_is_a_failure(slurm_plays):
    clock = Seconds()
    scheduler = SlurmScheduler(monotonic=clock)
    slurm_plays.plays("squeue", "").plays("sacct", account("5", "FAILED", "0:0"))
    look(scheduler)
    clock.now = 21
    found = look(scheduler)
    assert (found.state, found.exit_code) == (JobState.FAILED, None)


def test_bytes_that_are_no_text_harm_nobody(slurm_plays):
    """A multi-byte character split in two ends the job (submitit#1712, B59)."""
    slurm_plays.plays("squeue", queue("4", "RUNNING", name="\udce2\udc82") + queue("5", "RUNNING"))
    assert look().state is JobState.RUNNING
