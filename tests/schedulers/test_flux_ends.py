"""How jobs end on the fake `flux` as on a real one: each test runs on both, where both are there."""

import json
import re

import pytest
from fluxes import ended_job
from limits import once_begun
from waiting import wait_until

from examlops_dagster.schedulers.flux import FluxScheduler


@pytest.mark.parametrize(
    ("argv", "told"),
    [
        (["submit", "-n1", "true"], ("COMPLETED", 0, 0, None)),
        (["submit", "-n1", "sh", "-c", "exit 255"], ("FAILED", 255, 65280, None)),
        (["submit", "-n1", "sh", "-c", "kill -9 $$"], ("FAILED", 137, 35072, None)),
        (["submit", "-n1", "sh", "-c", "kill $$"], ("FAILED", 143, 36608, None)),
        (["submit", "-n1", "/no/such/cmd"], ("FAILED", 127, 32512, "exec")),
        (["submit", "-n1", "/etc/passwd"], ("FAILED", 126, 32256, "exec")),
        (["submit", "-n1", "-t1s", "sleep", "600"], ("TIMEOUT", 142, 36352, "timeout")),
        (["batch", "-n1", "--output=/dev/null", "--wrap", "exit 3"], ("FAILED", 3, 768, None)),
        (["submit", "-n999", "true"], ("FAILED", 1, None, "alloc")),
    ],
)  # fmt: skip
def test_an_end_has_the_codes_of_flux(flux_command, argv, told):
    one = ended_job(flux_command, *argv)
    assert end_of(one) == told


def test_a_program_that_traps_the_limit_has_its_own_code(flux_command, tmp_path):
    def attempt(seconds):
        program = f"trap 'exit 5' ALRM; touch '{tmp_path}/begun'; sleep 600 & wait"
        one = ended_job(flux_command, "submit", "-n1", f"-t{seconds}s", "bash", "-c", program)
        return (tmp_path / "begun").exists() and one

    assert end_of(once_begun(attempt, 1)) == ("TIMEOUT", 5, 1280, "timeout")


def test_a_missing_folder_of_the_output_is_an_exception_of_the_shell(flux_command):
    one = ended_job(flux_command, "submit", "-n1", "--output=/no/such/folder/out", "true")
    assert end_of(one)[::3] == ("FAILED", "exec")
    assert one["exception"]["note"] == "shell_init: No such file or directory"


@pytest.mark.parametrize(
    ("program", "told"),
    [
        ("touch begun; exec sleep 600", ("CANCELED", 143, 36608, "cancel")),
        ("trap 'exit 5' TERM; touch begun; sleep 600 & wait", ("CANCELED", 5, 1280, "cancel")),
    ],
)
def test_a_cancelled_job_is_canceled_whatever_its_code(flux_command, tmp_path, program, told):
    argv = [f"--cwd={tmp_path}", "bash", "-c", program]
    number = flux_command("submit", "-n1", *argv).stdout.strip()
    wait_until((tmp_path / "begun").exists)
    wait_until(lambda: " R " in flux_command("jobs", "-n", number).stdout)
    done = flux_command("cancel", number)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    flux_command("job", "status", number)
    assert end_of(json.loads(flux_command("jobs", "--json", number).stdout)) == told
    again = flux_command("cancel", number)
    assert (again.returncode, again.stdout) == (1, "")
    assert again.stderr.endswith(": job is inactive\n")


def test_a_held_job_that_is_cancelled_never_ran(flux_command):
    number = flux_command("submit", "-n1", "--urgency=0", "true").stdout.strip()
    held = json.loads(flux_command("jobs", "--json", number).stdout)
    assert (held["state"], held["urgency"], "nnodes" in held) == ("SCHED", 0, False)
    flux_command("cancel", number)
    flux_command("job", "status", number)
    one = json.loads(flux_command("jobs", "--json", number).stdout)
    assert (*end_of(one), "t_run" in one) == ("CANCELED", -128, None, "cancel", False)


def test_a_killed_job_is_failed_and_not_canceled(flux_command, tmp_path):
    argv = [f"--cwd={tmp_path}", "bash", "-c", "touch begun; exec sleep 600"]
    number = flux_command("submit", "-n1", *argv).stdout.strip()
    wait_until((tmp_path / "begun").exists)
    wait_until(lambda: " R " in flux_command("jobs", "-n", number).stdout)
    assert flux_command("job", "kill", "-s", "TERM", number).returncode == 0
    flux_command("job", "status", number)
    one = json.loads(flux_command("jobs", "--json", number).stdout)
    assert end_of(one) == ("FAILED", 143, 36608, None)


def test_the_broker_of_a_nested_instance_adds_a_line_to_the_log(flux_command, tmp_path):
    out = tmp_path / "out"
    ended_job(flux_command, "batch", "-n1", f"--output={out}", "--wrap", "echo words; exit 3")
    said, broker = out.read_text().splitlines()
    assert said == "words"
    assert FluxScheduler.own_lines.match(broker)
    assert re.search(r" broker\.err\[0\]: rc2\.0: \S+script Exited \(rc=3\) [\d.]+s$", broker)


def test_many_jobs_of_one_submit_have_their_number_where_it_is_asked_for(flux_command, tmp_path):
    done = flux_command(
        "submit", "-n1", "--cc=0,2-3", "--job-name=many.{cc}", f"--output={tmp_path}/out.{{cc}}",
        "sh", "-c", "echo $FLUX_JOB_CC {cc}",
    )  # fmt: skip
    numbers = done.stdout.split()
    flux_command("job", "status", *numbers)
    told = json.loads(flux_command("jobs", "--json", *numbers).stdout)["jobs"]
    assert [one["name"] for one in told] == ["many.0", "many.2", "many.3"]
    assert (tmp_path / "out.2").read_text() == "2 2\n"


def end_of(one):
    kind = one["exception"].get("type")
    return one["result"], one["returncode"], one.get("waitstatus"), kind
