"""That the fake `flux` answers like a real one: each test runs on both, where both are there."""

import json
import re
import textwrap

import pytest
from fluxes import ended_job
from waiting import wait_until


def test_ids_are_in_the_letters_of_the_locale(flux_command):
    assert flux_command("submit", "-n1", "true", LC_ALL="C.UTF-8").stdout.startswith("ƒ")
    assert flux_command("submit", "-n1", "true", LC_ALL="C").stdout.startswith("f")
    assert flux_command("job", "id", "--to=dec", "ƒ26wQeXcb").stdout == "2434038497280\n"
    assert (
        flux_command("job", "id", "--to=kvs", "2434038497280").stdout == "job.0000.0236.b800.0000\n"
    )


@pytest.mark.parametrize(
    ("argv", "code", "stderr"),
    [
        ("submit -n1 --queue=batch true", 1, "[Errno 22] 'batch' is not a valid queue\n"),
        ("batch s.sh", 1, "flux-batch: ERROR: No such file or directory: 's.sh'\n"),
        ("submit -n1 -m x sleep 60", 2, "usage: flux submit [OPTIONS...] COMMAND [ARGS...]\n"
         "flux submit: error: unrecognized arguments: -m\n"),
        ("submit -t 2:00:00 -n1 true", 1, "flux-submit: ERROR: invalid Flux standard duration\n"),
        ("submit -n1 -N2 true", 1,
         "flux-submit: ERROR: node count must not be greater than task count\n"),
        ("submit -n2 -x true", 1,
         "flux-submit: ERROR: exclusive can only be set with a node count\n"),
        ("jobs --json f123", 1, "JobID f123 unknown\n"),
        ("cancel f123", 1, "flux-cancel: ERROR: ƒ23: unknown job id\n"),
        ("cancel notanid", 2, "usage: flux cancel [OPTIONS] [JOBID...]\n"
         "flux-cancel: error: argument JOBID...: invalid JobID value: 'notanid'\n"),
        ("job status f123", 1, "flux-job: f123: No such job\n"),
        ("job attach f123", 1, "flux-job: Failed to attach to f123: No such job\n"),
        ("job eventlog f123", 1, "flux-job: job f123 not found\n"),
    ],
)  # fmt: skip
def test_refusals_are_literal(flux_command, argv, code, stderr):
    found = flux_command(*argv.split(), LC_ALL="C.UTF-8")
    assert (found.returncode, found.stderr, found.stdout) == (code, stderr, "")


def test_a_running_and_an_ended_job_have_the_keys_of_flux(flux_command):
    one = ended_job(flux_command, "submit", "-n1", "bash", "-c", "exit 7")
    assert list(one) == [
        "t_depend", "t_priority", "t_sched", "t_run", "t_cleanup", "t_inactive", "duration",
        "name", "cwd", "ntasks", "ncores", "nnodes", "priority", "ranks", "nodelist", "success",
        "result", "waitstatus", "id", "t_submit", "state", "username", "userid", "urgency",
        "runtime", "status", "returncode", "dependencies", "jobid", "annotations", "exception",
    ]  # fmt: skip
    assert (one["waitstatus"], one["returncode"], one["result"]) == (1792, 7, "FAILED")
    assert one in json.loads(flux_command("jobs", "-a", "-c0", "--json").stdout)["jobs"]


def test_text_has_the_columns_of_flux(flux_command):
    number = flux_command("submit", "-n1", "sleep", "600", LC_ALL="C.UTF-8").stdout.strip()
    wait_until(lambda: " R " in flux_command("jobs", "-n", number).stdout)
    head, line = flux_command("jobs", number, LC_ALL="C.UTF-8").stdout.splitlines()
    flux_command("cancel", number)
    assert head == "       JOBID USER     NAME       ST NTASKS NNODES     TIME INFO"
    assert re.fullmatch(rf" *{number} \w+ +sleep +R +1 +1 +[\d.]+s \S+", line)
    assert line.startswith(f"{number:>12} ")


def test_attach_tells_output_and_end(flux_command):
    number = flux_command(
        "submit", "-n1", "bash", "-c", "echo to-kvs; echo e >&2; exit 7"
    ).stdout.strip()
    found = flux_command("job", "attach", number)
    assert (found.returncode, found.stdout) == (7, "to-kvs\n")
    assert sorted(found.stderr.splitlines()) == ["e", "flux-job: task(s) exited with exit code 7"]


def test_a_flux_line_anywhere_in_a_script_is_an_option(flux_command, tmp_path):
    script = tmp_path / "d2.sh"
    script.write_text("#!/bin/sh\n# flux: --bogus\n")
    found = flux_command("batch", "-n1", str(script))
    assert found.returncode == 2
    assert "argument parsing failed at" in found.stderr


def test_a_script_runs_once_whatever_the_slots(flux_command, tmp_path):
    script = tmp_path / "s.sh"
    script.write_text(
        textwrap.dedent("""\
        #!/bin/sh
        echo "$1 ${FLUX_JOB_ID:-none} ${FLUX_ENCLOSING_ID:+nested}"
        """)
    )
    out = tmp_path / "out"
    one = ended_job(flux_command, "batch", "-n2", f"--output={out}", str(script), "a b")
    assert out.read_text() == "a b none nested\n"
    assert (one["ntasks"], one["nnodes"], one["ncores"]) == (1, 1, 2)
