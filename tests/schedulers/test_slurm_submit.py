"""Situations around sbatch and scancel, played by scripted commands; the reports are facts/hpc.md 5."""

import os
import signal
from pathlib import Path

import pytest
from scheduler_kit import NAME, SUBMITTED_AT, TOKEN, a_job

from examlops_dagster.errors import LaunchError
from examlops_dagster.schedulers.base import Submission
from examlops_dagster.schedulers.slurm import SlurmScheduler

CONFIG = "MaxArraySize            = {}\n"


def submission(tmp_path, **settings):
    settings.setdefault("folder", tmp_path)
    return Submission(TOKEN, NAME, tmp_path / "run.sh", **settings)


def argv_of(slurm_plays, number=-1):
    return slurm_plays.calls("sbatch")[number]["argv"]


def test_the_options_are_arguments_and_the_token_is_in_name_and_comment(slurm_plays, tmp_path):
    """A space in #SBATCH --job-name ended all directives (Sherlock docs PR 19, B56)."""
    slurm_plays.plays("sbatch", "17\n")
    (job,) = SlurmScheduler().submit(
        submission(tmp_path, resources={"constraint": "a b&c", "gpus": 2}, time_limit_seconds=61)
    )
    assert (job.job_id, job.token, job.cluster) == ("17", TOKEN, "")
    assert argv_of(slurm_plays) == [
        "--parsable",
        f"--job-name={NAME}",
        f"--comment=examlops:{TOKEN}",
        "--no-requeue",
        "--export=ALL",
        f"--chdir={tmp_path}",
        f"--output={tmp_path}/stdout.log",
        f"--error={tmp_path}/stderr.log",
        "--open-mode=append",
        "--time=2",
        "--gpus=2",
        "--constraint=a b&c",
        str(tmp_path / "run.sh"),
    ]
    assert NAME == "asset-model-abcdef01"


@pytest.mark.parametrize(
    ("said", "job_id", "cluster"),
    [
        ("5\n", "5", ""),
        ("5;gpu\n", "5", "gpu"),
        ("Submitted batch job 5\n", "5", ""),
        ("Submitted batch job 5 on cluster 42\n", "5", "42"),
        ("Welcome to 2026\n* quota 80% *\n5\n", "5", ""),
        ("***\nSubmitted batch job 5\nHave fun with your 3 jobs\n", "5", ""),
        ("note: partition set\r\n5\r\n", "5", ""),
    ],
)
def test_the_id_is_found_in_what_wrappers_print(slurm_plays, tmp_path, said, job_id, cluster):
    """Only the id, a banner first, "on cluster X" (dask-jobqueue#209, #227, snakemake …#121; B37, B38)."""
    slurm_plays.plays("sbatch", said)
    (job,) = SlurmScheduler().submit(submission(tmp_path))
    assert (job.job_id, job.cluster) == (job_id, cluster)


def test_a_wrapper_that_knows_no_parsable_is_called_without(slurm_plays, tmp_path):
    """A site's wrapper rejects --parsable (batchtools#243, B38)."""
    slurm_plays.plays(
        "sbatch", err="sbatch: unrecognized option '--parsable'\n", code=1, when="--parsable"
    )
    slurm_plays.plays("sbatch", "Submitted batch job 8\n", when="^--job-name")
    scheduler = SlurmScheduler()
    assert scheduler.submit(submission(tmp_path))[0].job_id == "8"
    assert scheduler.submit(submission(tmp_path))[0].job_id == "8"
    assert len(slurm_plays.calls("sbatch")) == 3


@pytest.mark.parametrize(
    "said",
    [
        "sbatch: error: Batch job submission failed: Socket timed out on send/recv operation\n",
        "sbatch: error: Batch job submission failed: Unable to contact slurm controller (connect failure)\n",
        "sbatch: error: Munge encode failed: Failed to access\n",
        "sbatch: error: Batch job submission failed: Protocol authentication error\n",
        "sbatch: error: Batch job submission failed: Zero Bytes were transmitted or received\n",
        "",
    ],
)
def test_a_lost_reply_may_be_a_job(slurm_plays, tmp_path, said):
    """ "Socket timed out": the job may be queued; ask before a retry (submitit#1659, toil#2381, B33)."""
    slurm_plays.plays("sbatch", err=said, code=1)
    with pytest.raises(LaunchError) as caught:
        SlurmScheduler().submit(submission(tmp_path))
    assert caught.value.transient is True
    assert len(slurm_plays.calls("sbatch")) == 1


def test_a_submit_that_hangs_may_be_a_job(slurm_plays, tmp_path, monkeypatch):
    """The time limit of a command ends sbatch, whatever slurmctld has done by then (B33)."""
    monkeypatch.setenv("EXAMLOPS_SLURM_CMD_TIMEOUT", "1")
    slurm_plays.plays("sbatch", "9\n", seconds=30)
    with pytest.raises(LaunchError, match="no answer within 1 s") as caught:
        SlurmScheduler().submit(submission(tmp_path))
    assert caught.value.transient is True


@pytest.mark.parametrize(
    "answer", [{"out": "", "code": 0}, {"out": "queued!\n"}, {"signal": signal.SIGKILL}]
)
def test_a_reply_without_an_id_may_be_a_job(slurm_plays, tmp_path, answer):
    """The launch fails after sbatch; the token is the only handle (oumi PR 2671, B35)."""
    slurm_plays.plays("sbatch", **answer)
    with pytest.raises(LaunchError) as caught:
        SlurmScheduler().submit(submission(tmp_path))
    assert caught.value.transient is True


def test_an_id_beside_an_error_may_be_a_job(slurm_plays, tmp_path):
    slurm_plays.plays("sbatch", "12\n", err="wrapper: cannot write the log\n", code=1)
    with pytest.raises(LaunchError) as caught:
        SlurmScheduler().submit(submission(tmp_path))
    assert caught.value.transient is True


@pytest.mark.parametrize(
    ("said", "code"),
    [
        ("sbatch: error: invalid partition specified: nope\n"
         "sbatch: error: Batch job submission failed: Invalid partition name specified\n", 1),
        ("sbatch: error: Batch job submission failed: Invalid account or account/partition "
         "combination specified\n", 1),
        ("sbatch: error: QOSMaxSubmitJobPerUserLimit\nsbatch: error: Batch job submission failed: "
         "Job violates accounting/QOS policy (job submit limit, user's size and/or time limits)\n", 1),
        ("sbatch: error: Batch job submission failed: Requested time limit is invalid "
         "(missing or exceeds some limit)\n", 1),
        ("sbatch: unrecognized option '--no-such-option'\nTry \"sbatch --help\" for more "
         "information\n", 255),
    ],
)  # fmt: skip
def test_a_refusal_is_told_in_slurms_words_and_is_no_job(slurm_plays, tmp_path, said, code):
    """One refused job fails alone, with no id of a former one (snakemake …#320, executorlib PR 961; B36, B40)."""
    slurm_plays.plays("sbatch", "3\n").plays("sbatch", err=said, code=code)
    scheduler = SlurmScheduler()
    scheduler.submit(submission(tmp_path))
    with pytest.raises(LaunchError) as caught:
        scheduler.submit(submission(tmp_path))
    assert caught.value.transient is False
    assert said.splitlines()[0].removeprefix("sbatch: ") in str(caught.value)


def test_nothing_of_an_outer_job_reaches_sbatch(slurm_plays, tmp_path, monkeypatch):
    """SLURM_MEM_* of an outer job: "mutually exclusive" (snakemake#2230, #2912, B39)."""
    slurm_plays.plays("sbatch", "5\n")
    outer = {
        "SLURM_MEM_PER_NODE": "1", "SLURM_MEM_PER_CPU": "1", "SLURM_JOB_ID": "1", "SLURM_NTASKS": "9",
        "SBATCH_TIMELIMIT": "1", "SBATCH_EXPORT": "NONE", "SLURMD_NODENAME": "n", "SBATCH_REQUEUE": "1",
    }  # fmt: skip
    kept = {
        "SLURM_CONF": "/etc/slurm.conf", "SBATCH_ACCOUNT": "lab", "SBATCH_PARTITION": "debug",
        "SBATCH_QOS": "normal", "GREETING": "hello",

    }  # fmt: skip
    SlurmScheduler().submit(submission(tmp_path, environment={**os.environ, **outer, **kept}))
    got = slurm_plays.calls("sbatch")[0]["environment"]
    assert not set(outer) & set(got)
    assert kept.items() <= got.items()
    assert "LC_ALL" not in set(got) - set(os.environ)  # the job's locale is its own affair


def test_a_deleted_working_directory_is_no_trouble(slurm_plays, tmp_path, monkeypatch):
    """sbatch: error: getcwd failed (facts/slurm.md 4.1)."""
    slurm_plays.plays("sbatch", "5\n")
    gone = tmp_path / "gone"
    gone.mkdir()
    before = Path.cwd()
    try:
        os.chdir(gone)
        gone.rmdir()
        SlurmScheduler().submit(submission(tmp_path))
    finally:
        os.chdir(before)
    assert slurm_plays.calls("sbatch")[0]["cwd"] == "/"


def test_an_array_is_split_at_the_limit_of_the_index(slurm_plays, tmp_path):
    """The cap is on the index, so 1001-2000 is refused too (submitit#1624, sracha-rs PR 81; B41)."""
    slurm_plays.plays("scontrol", CONFIG.format(1001), when="show config")
    for number in ("5", "6", "7"):
        slurm_plays.plays("sbatch", f"{number}\n")
    jobs = SlurmScheduler().submit(submission(tmp_path, array=2500))
    assert [job.index for job in jobs] == list(range(2500))
    assert [(jobs[n].job_id, jobs[n].offset) for n in (0, 999, 1000, 2499)] == [
        ("5", 0), ("5", 0), ("6", 1000), ("7", 2000),
    ]  # fmt: skip
    calls = slurm_plays.calls("sbatch")
    assert [_option(call, "array") for call in calls] == ["0-999", "0-999", "0-499"]
    assert [_option(call, "export") for call in calls] == [
        "ALL", "ALL,EXAMLOPS_ARRAY_OFFSET=1000", "ALL,EXAMLOPS_ARRAY_OFFSET=2000",
    ]  # fmt: skip
    assert [_option(call, "output") for call in calls] == [
        f"{tmp_path}/stdout.%a.log", f"{tmp_path}/stdout.1%3a.log", f"{tmp_path}/stdout.2%3a.log",
    ]  # fmt: skip
    assert [_option(call, "job-name") for call in calls] == [NAME, f"{NAME}.1000", f"{NAME}.2000"]
    assert len(slurm_plays.calls("scontrol")) == 1


def test_an_array_that_fits_is_one_submission(slurm_plays, tmp_path):
    slurm_plays.plays("scontrol", CONFIG.format(4097), when="show config").plays("sbatch", "5\n")
    jobs = SlurmScheduler().submit(submission(tmp_path, array=4097))
    assert len(jobs) == 4097
    assert len(slurm_plays.calls("sbatch")) == 1


def test_a_part_of_an_array_that_is_lost_leaves_the_others_found(slurm_plays, tmp_path):
    slurm_plays.plays("scontrol", CONFIG.format(10), when="show config")
    slurm_plays.plays("sbatch", "5\n").plays("sbatch", err="Socket timed out\n", code=1)
    slurm_plays.plays("sbatch", "7\n")
    scheduler = SlurmScheduler()
    with pytest.raises(LaunchError) as caught:
        scheduler.submit(submission(tmp_path, array=25))
    assert caught.value.transient is True
    lines = "".join(f"5_{n}|examlops:{TOKEN}|{NAME}\n" for n in range(10))
    slurm_plays.plays("squeue", lines + f"6_3|examlops:{TOKEN}|{NAME}.10\n")
    found = scheduler.find(TOKEN, SUBMITTED_AT)
    assert [job.index for job in found] == [*range(10), 13]
    rest = submission(tmp_path, array=25, submitted=frozenset(job.index for job in found))
    jobs = scheduler.submit(rest)
    assert [job.index for job in jobs] == [10, 11, 12, *range(14, 25)]
    assert _option(slurm_plays.calls("sbatch")[2], "array") == "0-2,4-9"


def test_a_refused_part_is_told_as_unsure_since_others_are_queued(slurm_plays, tmp_path):
    slurm_plays.plays("scontrol", CONFIG.format(10), when="show config").plays("sbatch", "5\n")
    slurm_plays.plays("sbatch", err="sbatch: error: AssocMaxSubmitJobLimit\n", code=1)
    with pytest.raises(LaunchError, match="10 tasks of this array are in the queue") as caught:
        SlurmScheduler().submit(submission(tmp_path, array=20))
    assert caught.value.transient is True


@pytest.mark.parametrize("limit", [0, 1])
def test_a_cluster_without_arrays_is_told(slurm_plays, tmp_path, limit):
    slurm_plays.plays("scontrol", CONFIG.format(limit), when="show config")
    with pytest.raises(LaunchError, match=f"MaxArraySize={limit}"):
        SlurmScheduler().submit(submission(tmp_path, array=2))


def test_percent_signs_and_backslashes_of_a_folder_are_no_patterns(slurm_plays, tmp_path):
    """%j is expanded in directories too; a backslash ends all expansion (facts/slurm.md 6)."""
    slurm_plays.plays("sbatch", "5\n").plays("scontrol", CONFIG.format(100), when="config")
    scheduler = SlurmScheduler()
    scheduler.submit(submission(tmp_path, folder=Path("/a %j")))
    scheduler.submit(submission(tmp_path, folder=Path("/a\\b %j")))
    first, second = slurm_plays.calls("sbatch")
    assert _option(first, "output") == "/a %%j/stdout.log"
    assert _option(second, "output") == "/a\\\\b %j/stdout.log"
    with pytest.raises(LaunchError, match="backslash"):
        scheduler.submit(submission(tmp_path, folder=Path("/a\\b"), array=2))


def test_a_lost_submit_is_found_in_the_queue_among_jobs_of_all_states(slurm_plays):
    """Killed between sbatch and saving the id: submitted twice (aiida-core#3183, #2109; B34)."""
    slurm_plays.plays(
        "squeue",
        f"4|examlops:{TOKEN}x|{NAME}x\n"
        "5|(null)|asset-other|name\n"
        f"6|examlops:{TOKEN}|{NAME}\n"
        "7|(null)|two\nlines\n"
        "8|(null)|asset-model-abcdef012\n",
    )
    (job,) = SlurmScheduler().find(TOKEN, SUBMITTED_AT)
    assert (job.job_id, job.index, job.submitted_at) == ("6", None, SUBMITTED_AT)
    argv = slurm_plays.calls("squeue")[0]["argv"]
    assert argv[argv.index("-t") + 1] == "all"


def test_a_lost_submit_is_found_in_accounting_after_the_queue_forgot_it(slurm_plays):
    """Attach to a job that is already gone (psij-python#401, B11), from the submit on (B8)."""
    slurm_plays.plays("squeue", "")
    slurm_plays.plays("sacct", f"6|{NAME}\n21_[0-2]|{NAME}.1000\n9|other\n")
    found = SlurmScheduler().find(TOKEN, SUBMITTED_AT)
    assert [(job.job_id, job.index, job.offset) for job in found] == [
        ("6", None, 0), ("21", 1000, 1000), ("21", 1001, 1000), ("21", 1002, 1000),
    ]  # fmt: skip
    argv = slurm_plays.calls("sacct")[0]["argv"]
    assert argv[argv.index("-S") + 1] == "2026-11-30T11:00:00"
    assert slurm_plays.calls("sacct")[0]["environment"]["TZ"] == "UTC"


def test_another_job_with_the_letters_of_the_token_is_told_by_the_comment(slurm_plays):
    slurm_plays.plays("squeue", f"6|examlops:{TOKEN[:8]}99999999|{NAME}\n")
    assert SlurmScheduler().find(TOKEN, SUBMITTED_AT) == []


@pytest.mark.parametrize(
    ("program", "said"),
    [
        ("squeue", "slurm_load_jobs error: Unable to contact slurm controller (connect failure)\n"),
        ("sacct", "sacct: error: Problem talking to the database: Connection refused\n"),
    ],
)
def test_nothing_found_is_not_said_while_somebody_did_not_answer(slurm_plays, program, said):
    """An answer that is missing is no "never submitted", which would submit twice (B34)."""
    slurm_plays.plays(program, err=said, code=1)
    if program == "sacct":
        slurm_plays.plays("squeue", "")
    with pytest.raises(LaunchError) as caught:
        SlurmScheduler().find(TOKEN, SUBMITTED_AT)
    assert caught.value.transient is True


def test_without_accounting_the_queue_alone_answers(slurm_plays):
    slurm_plays.plays("squeue", "")
    assert SlurmScheduler().find(TOKEN, SUBMITTED_AT) == []


def test_many_jobs_are_cancelled_by_one_command_with_ids_alone(slurm_plays):
    """One scancel a job hung on Ctrl-C; `scancel "Submitted batch job 1"` (snakemake#2113, dask-jobqueue#44; B45, B50)."""
    jobs = [a_job(str(n)) for n in range(100, 400)]
    jobs += [a_job("7", index=n, offset=1000) for n in (1000, 1001, 1002, 1007)]
    SlurmScheduler().cancel(jobs)
    (call,) = slurm_plays.calls("scancel")
    assert call["argv"] == [*(str(n) for n in range(100, 400)), "7_[0-2,7]"]


def test_a_cancel_is_cut_into_chunks(slurm_plays):
    SlurmScheduler().cancel([a_job(str(n)) for n in range(1200)])
    assert [len(call["argv"]) for call in slurm_plays.calls("scancel")] == [500, 500, 200]


def test_the_cluster_is_named_only_where_it_is_known(slurm_plays):
    """`scancel --clusters=all` fails without slurmdbd (snakemake …#397, B49)."""
    SlurmScheduler().cancel([a_job("5"), a_job("6", cluster="gpu")])
    assert [call["argv"] for call in slurm_plays.calls("scancel")] == [["5"], ["-M", "gpu", "6"]]


@pytest.mark.parametrize(
    ("said", "code", "transient"),
    [
        ("scancel: error: Kill job error on job id 5: Unable to contact slurm controller (connect failure)\n", 8, True),
        ("scancel: error: Kill job error on job id 5: Protocol authentication error\n", 239, True),
        ("scancel: error: Kill job error on job id 5: Access/permission denied\n", 210, False),
    ],
)  # fmt: skip
def test_a_cancel_that_did_not_get_through_is_told(slurm_plays, said, code, transient):
    slurm_plays.plays("scancel", err=said, code=code)
    with pytest.raises(LaunchError) as caught:
        SlurmScheduler().cancel([a_job()])
    assert caught.value.transient is transient


def test_a_job_that_is_ending_already_is_cancelled_enough(slurm_plays):
    slurm_plays.plays(
        "scancel", err="scancel: error: Kill job error on job id 5: Job/step already completing or completed\n", code=1
    )  # fmt: skip
    SlurmScheduler().cancel([a_job()])


def _option(call, name):
    return next(a.split("=", 1)[1] for a in call["argv"] if a.startswith(f"--{name}="))
