"""The situation table of the first seed, and arrays, over a Flux that answers like 0.88.0."""

import os
import signal
import subprocess
import threading

import job_functions as functions
import pytest
from array_requests import by_key, key_requests
from fluxes import FakeFlux, has_real_flux
from job_requests import (
    IMPATIENT,
    MemoryJobs,
    Scripted,
    job_request,
    leave_exit,
    run_scripted,
    status,
)
from waiting import wait_until

from examlops_dagster.core.seams import LEFT_RUNNING
from examlops_dagster.errors import AssetBuildError, BuildCancelledError, BuildTimeoutError
from examlops_dagster.formats import decode
from examlops_dagster.ledger.jobs import OPEN_STATES
from examlops_dagster.orchestrators.scheduler import SchedulerOrchestrator
from examlops_dagster.schedulers.flux import FluxScheduler


class Asked(FluxScheduler):
    """May be asked at each look: what is tested is not how seldom."""

    is_free_to_ask = True


class Instance:
    def __init__(self, folder):
        self.environment = {
            **os.environ,
            "EXAMLOPS_ASSET_JOB_DIR": str(folder / "jobs"),
            "XDG_CACHE_HOME": str(folder / "cache"),
            "XDG_RUNTIME_DIR": "",
            "EXAMLOPS_HPC_SCHEDULER": "flux",
        }
        self.jobs = MemoryJobs()
        self.told = []

    def orchestrator(self):
        return SchedulerOrchestrator(
            self.jobs, Asked(), self.environment, patience=IMPATIENT, progress=self.told.append
        )

    def run(self, function, arguments=None, **how):
        return self.orchestrator().run(job_request(function, arguments, **how))

    def run_many(self, requests):
        return self.orchestrator().run_many(requests)

    def cancel(self, *ids):
        subprocess.run(["flux", "cancel", *ids], check=True, timeout=60, capture_output=True)


@pytest.fixture
def fake(tmp_path, monkeypatch):
    found = FakeFlux(tmp_path / "flux", monkeypatch)
    yield found
    found.close()


@pytest.fixture
def flux(awkward_path, request):
    if not has_real_flux():
        request.getfixturevalue("fake")
    found = Instance(awkward_path)
    yield found
    left = [row.job_id for row in found.jobs.rows.values() if row.state in OPEN_STATES]
    if left:
        subprocess.run(["flux", "cancel", *left], check=False, timeout=60, capture_output=True)


@pytest.fixture
def fake_flux(fake, awkward_path):
    return Instance(awkward_path)


def states(flux):
    return sorted(row.state for row in flux.jobs.rows.values())


# the situation table


def test_a_completed_job_gives_its_result_and_its_id(flux):
    result = flux.run(functions.versions)
    assert decode(result.value)["upstream"] == {"PM100": 3}
    assert result.provenance["scheduler"] == "flux"
    assert result.provenance["hpc_job_id"].isdigit()
    assert (flux.jobs.only.model, flux.jobs.only.state) == ("asset:numbers", "COMPLETED")


def test_a_failed_job_has_its_traceback_and_both_logs_in_the_error(flux):
    with pytest.raises(AssetBuildError, match=r"ended FAILED .*this is why") as caught:
        flux.run(functions.fails)
    for text in ("scheduler: flux", "on stdout before", 'raise ValueError("this is why")'):
        assert text in caught.value.details
    assert "last lines of stderr.log" in caught.value.details


def test_a_job_beyond_its_limit_timed_out(flux, tmp_path):
    arguments = {"folder": str(tmp_path), "seconds": 600}
    with pytest.raises(BuildTimeoutError, match="ended TIMEOUT"):
        flux.run(functions.sleeps, arguments, timeout_seconds=1.0)
    assert states(flux) == ["TIMEOUT"]


def test_a_job_that_somebody_cancels_is_a_cancelled_build(flux, tmp_path):
    def cancel():
        wait_until(lambda: list(tmp_path.glob("started-*")))
        flux.cancel(flux.jobs.only.job_id)

    thread = threading.Thread(target=cancel)
    thread.start()
    with pytest.raises(BuildCancelledError, match="ended CANCELLED"):
        flux.run(functions.sleeps, {"folder": str(tmp_path), "seconds": 600})
    thread.join()
    assert states(flux) == ["CANCELLED"]


@pytest.mark.parametrize(
    ("code", "signal_name", "word"), [(124, "HUP", "TIMEOUT"), (5, "TERM", "CANCELLED")]
)
def test_the_scheduler_says_why_a_program_got_a_signal(mock, code, signal_name, word):
    """A nested instance ends seconds after its program, whose code tells nothing of the limit."""
    scripted = Scripted(*[status("RUNNING")] * 3, status(word))
    scripted.on_submit = lambda s: leave_exit(s, code, result=False, signal=signal_name)
    with pytest.raises(AssetBuildError, match=f"ended {word}"):
        run_scripted(mock, scripted)


def test_of_several_nodes_the_scheduler_may_know_that_one_was_lost(mock):
    """The program on the first of them fails in its own way for that."""
    scripted = Scripted()

    def on_submit(submission):
        leave_exit(submission, 3 if not scripted.submissions[1:] else 0)
        told = status("NODE_FAIL", nodes="n2"), status("COMPLETED")
        scripted.statuses = [status("RUNNING"), told[len(scripted.submissions) - 1]]

    scripted.on_submit = on_submit
    run_scripted(mock, scripted, resources={"nodes": 2})
    assert scripted.submissions[1].resources["avoid_nodes"] == ["n2"]


def test_the_last_words_are_those_of_the_program_and_not_of_its_broker(flux):
    argv = ("sh", "-c", "echo this is why >&2; exit 3")
    with pytest.raises(AssetBuildError, match=r"ended FAILED \(exit code 3\): this is why$"):
        flux.run(functions.versions, command=argv, resources={"ntasks": 2})


def test_a_child_that_is_killed_for_memory_is_a_failure_that_says_so(flux):
    with pytest.raises(AssetBuildError, match=r"SIGKILL"):
        flux.run(functions.killed)
    assert states(flux) == ["FAILED"]


@pytest.mark.parametrize(
    ("resources", "why"),
    [({"partition": "nosuch"}, "queue"), ({"cpus_per_task": 4000}, "unsatisfiable request")],
)
def test_a_refusal_is_told_and_nothing_runs_here(flux, tmp_path, resources, why):
    arguments = {"folder": str(tmp_path), "seconds": 0}
    with pytest.raises(AssetBuildError, match=why):
        flux.run(functions.sleeps, arguments, resources=resources)
    assert states(flux) == ["REFUSED"]
    assert not list(tmp_path.glob("started-*"))


def test_a_job_that_the_instance_forgot_is_lost(fake, fake_flux, tmp_path):
    def forget():
        wait_until(lambda: list(tmp_path.glob("started-*")))
        for path in fake.folder.rglob("*.json"):
            path.unlink()

    thread = threading.Thread(target=forget)
    thread.start()
    with pytest.raises(AssetBuildError, match=r"ended LOST"):
        fake_flux.run(functions.talks, {"folder": str(tmp_path)})
    (tmp_path / "go on").touch()
    thread.join()
    assert len(fake_flux.jobs.rows) == 1


def started(folder):
    """Give how often jobs were started that note it."""
    found = [path.read_text().splitlines() or [""] for path in folder.glob("started-*")]
    return sum(map(len, found))


def lose_when(fake, host, folder, starts):
    """Lose a node after so many starts, and let the jobs end once some were started again."""

    def lose():
        wait_until(lambda: started(folder) == starts)
        fake.lose(host)
        wait_until(lambda: started(folder) > starts)
        (folder / "go on").touch()

    thread = threading.Thread(target=lose)
    thread.start()
    return thread


@pytest.mark.parametrize("constraint", [None, "rank:0|rank:1"])
def test_a_job_whose_node_is_lost_runs_on_another(fake, fake_flux, tmp_path, constraint):
    thread = lose_when(fake, "node1", tmp_path, 1)
    arguments = {"folder": str(tmp_path)}
    result = fake_flux.run(functions.talks, arguments, resources={"constraint": constraint})
    thread.join()
    assert result.provenance["node"] == "node2"
    assert states(fake_flux) == ["COMPLETED", "NODE_FAIL"]
    failed = next(row for row in fake_flux.jobs.rows.values() if row.state == "NODE_FAIL")
    assert (failed.hosts, failed.reason) == ("node1", "exec: node failure on node1 (rank 0)")


def test_where_no_other_node_is_the_error_says_which_one_was_avoided(fake, fake_flux, tmp_path):
    def lose():
        wait_until(lambda: list(tmp_path.glob("started-*")))
        fake.lose("node1")

    thread = threading.Thread(target=lose)
    thread.start()
    with pytest.raises(AssetBuildError, match=r"ended REFUSED .*away from node1, which failed"):
        fake_flux.run(
            functions.talks, {"folder": str(tmp_path)}, resources={"constraint": "host:node1"}
        )
    thread.join()
    assert states(fake_flux) == ["NODE_FAIL", "REFUSED"]


def test_without_an_instance_it_is_built_here_and_says_why(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    orchestrator = SchedulerOrchestrator(environment={"PATH": str(tmp_path)})
    result = orchestrator.run(job_request(functions.versions, timeout_seconds=None))
    assert result.provenance["fallback"].startswith("local (neither sbatch nor flux")


def test_a_lambda_is_built_here_and_says_why(flux):
    result = flux.run(functions.anonymous, timeout_seconds=None)
    assert "is not importable by a job" in result.provenance["fallback"]
    assert flux.jobs.rows == {}


# arrays


def test_many_keys_are_one_submission_with_an_id_each(flux):
    keys = [*(f"k{n}" for n in range(5)), "bad"]
    found = by_key(flux.run_many(key_requests(functions.of_key, keys)))
    error = found.pop("bad")
    assert "ValueError: bad is no good" in error.reason
    assert {k: decode(r.value)["task"] for k, r in found.items()} == {k: k for k in keys[:-1]}
    rows = list(flux.jobs.rows.values())
    assert len({row.token for row in rows}) == 1
    assert len({row.job_id for row in rows}) == 6
    assert all(row.job_id.isdigit() for row in rows)


def test_keys_of_more_than_one_task_are_a_batch_each(flux):
    resources = {"ntasks": 2}
    found = by_key(flux.run_many(key_requests(functions.of_key, "abc", resources=resources)))
    assert {k: decode(r.value)["task"] for k, r in found.items()} == {k: k for k in "abc"}
    assert len({row.token for row in flux.jobs.rows.values()}) == 1


def test_keys_of_a_lost_node_run_on_another_and_the_others_go_on(fake, fake_flux, tmp_path):
    thread = lose_when(fake, "node1", tmp_path, 4)
    requests = key_requests(
        functions.of_key_waiting, "abcd", lambda k: {"key": k, "folder": str(tmp_path)}
    )
    found = by_key(fake_flux.run_many(requests))
    thread.join()
    assert {k: decode(r.value) for k, r in found.items()} == {k: k for k in "abcd"}
    assert {r.provenance["node"] for r in found.values()} == {"node2"}
    assert states(fake_flux) == ["COMPLETED"] * 4 + ["NODE_FAIL"] * 2


def test_an_array_whose_waiter_died_is_taken_over(flux, tmp_path):
    def requests():
        return key_requests(
            functions.of_key_waiting,
            "abc",
            lambda k: {"key": k, "folder": str(tmp_path), "waits": k != "a"},
        )

    first = flux.run_many(requests())
    next(first)
    first.close()
    (tmp_path / "go on").touch()
    found = by_key(flux.run_many(requests()))
    assert {k: decode(found[k].value) for k in "bc"} == {"b": "b", "c": "c"}
    assert any("taking over 2 jobs on flux" in text for text in flux.told)


def test_ctrl_c_cancels_the_whole_array(flux, tmp_path):
    def interrupt():
        wait_until(lambda: len(list(tmp_path.glob("started-*"))) == 3)
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=interrupt)
    thread.start()
    requests = key_requests(
        functions.of_key_waiting, "abc", lambda k: {"key": k, "folder": str(tmp_path)}
    )
    with pytest.raises(KeyboardInterrupt) as caught:
        list(flux.run_many(requests))
    thread.join()
    assert getattr(caught.value, LEFT_RUNNING) is False
    assert states(flux) == ["CANCELLED"] * 3
