"""The executor that lets many steps wait for jobs, on a real instance and mock jobs that are processes."""

import json
import os
import signal
import threading
from contextlib import contextmanager

import pytest
from dagster import (
    AssetKey,
    DagsterEventType,
    Definitions,
    asset,
    failure_hook,
    in_process_executor,
    success_hook,
)
from dagster._utils.interrupts import capture_interrupts
from homes import Homestead, names_of
from waiting import PATIENCE_SECONDS, wait_until

from examlops_dagster import waiting_executor

JOBS = """\
from pathlib import Path

from examlops_dagster import asset

HERE = Path(__file__).parent


def job(name, wait, **more):
    line = f"cd '{HERE}'; date +%s.%N; touch 'runs {name}'; {wait}; date +%s.%N"
    @asset(name, command=["/bin/sh", "-c", line], orchestrator="scheduler", **more)
    def built(): ...
    return built


def sleeper(name, seconds, **more):
    return job(name, f"sleep {seconds}", **more)


def waiter(name):
    return job(name, "while [ ! -e go ]; do sleep 0.5; done")
"""


@pytest.fixture
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("EXAMLOPS_HPC_SCHEDULER", "mock")
    found = Homestead(tmp_path / "home", monkeypatch)
    yield found
    found.close()


def jobs(home, text):
    return home.module(JOBS + text)


@contextmanager
def let_go(home, count, look=lambda: None):
    """Let the waiters end once so many of them run."""

    def run_together():
        look()
        return len(list(home.folder.glob("runs *"))) >= count

    def wait():
        try:
            wait_until(run_together)
        finally:
            (home.folder / "go").touch()

    thread = threading.Thread(target=wait)
    thread.start()
    yield
    thread.join()


def run_times(home):
    """Give start and end of each job by asset, in seconds since the epoch."""
    rows = home.sql("SELECT asset, folder FROM hpc_jobs")
    found = {}
    for name, folder in rows:
        text = (home.folder / folder / "stdout.log").read_text()
        numbers = [float(line) for line in text.splitlines() if line.replace(".", "").isdigit()]
        found[name] = (numbers[0], numbers[-1])
    return found


def most_at_once(times):
    edges = sorted([(start, 1) for start, _ in times] + [(end, -1) for _, end in times])
    running = most = 0
    for _, step in edges:
        running += step
        most = max(most, running)
    return most


def run_with(home, module, names, config=None, **how):
    """Run assets as a job of Definitions under the executor, in this process."""
    from dagster._core.definitions.job_base import InMemoryJob
    from dagster._core.execution.api import execute_run_iterator

    definitions = home.definitions(module, executor=waiting_executor, **how)
    keys = {AssetKey(name) for name in names}
    repository = definitions.get_repository_def()
    job = repository.get_implicit_job_def_for_assets(list(keys)).get_subset(asset_selection=keys)
    run_config = {"execution": {"config": config}} if config else {}
    run = home.instance.create_run_for_job(job_def=job, asset_selection=keys, run_config=run_config)
    events = list(execute_run_iterator(InMemoryJob(job), run, home.instance))
    return home.instance.get_run_by_id(run.run_id), events


def run_with_hooks(home, module, hooks):
    """Run all assets of a module as a job with hooks."""
    from dagster import define_asset_job
    from dagster._core.definitions.job_base import InMemoryJob
    from dagster._core.execution.api import execute_run_iterator

    definitions = home.definitions(module, executor=waiting_executor)
    job = define_asset_job("all", hooks=hooks)
    repository = Definitions.merge(definitions, Definitions(jobs=[job])).get_repository_def()
    job_def = repository.get_job("all")
    run = home.instance.create_run_for_job(job_def=job_def)
    events = list(execute_run_iterator(InMemoryJob(job_def), run, home.instance))
    return home.instance.get_run_by_id(run.run_id), events


def kinds(events, step):
    return [e.event_type for e in events if e.step_key == step]


def test_independent_branches_wait_side_by_side(home):
    module = jobs(home, 'left = waiter("left")\nright = waiter("right")\n')
    with let_go(home, 2):
        report = home.exa(module, "left", "right")
    assert sorted(names_of(report.rebuilt)) == ["left", "right"]
    assert most_at_once(run_times(home).values()) == 2


def test_a_hundred_steps_wait_in_one_process(home):
    module = jobs(home, 'for n in range(100):\n    globals()[f"a{n}"] = waiter(f"a{n}")\n')
    threads = []
    with let_go(home, 100, lambda: threads.append(threading.active_count())):
        report = home.exa(module, *(f"a{n}" for n in range(100)))
    assert len(report.rebuilt) == 100
    assert max(threads) >= 100
    assert most_at_once(run_times(home).values()) == 100
    assert home.versions(module)["a99"] == 1


def test_no_more_wait_at_once_than_the_config_says(home):
    module = jobs(home, 'for n in range(6):\n    globals()[f"a{n}"] = waiter(f"a{n}")\n')
    with let_go(home, 2):
        run, _ = run_with(home, module, [f"a{n}" for n in range(6)], {"max_concurrent": 2})
    assert run.is_success
    assert most_at_once(run_times(home).values()) == 2


def test_a_limit_of_0_is_refused(home):
    module = jobs(home, 'a = sleeper("a", 0)\n')
    with pytest.raises(Exception, match="max_concurrent of waiting_executor is 0"):
        run_with(home, module, ["a"], {"max_concurrent": 0})


def test_a_pool_of_1_lets_one_at_a_time(home):
    module = jobs(
        home, 'for n in range(3):\n    globals()[f"a{n}"] = sleeper(f"a{n}", 1, pool="license")\n'
    )
    home.instance.event_log_storage.set_concurrency_slots("license", 1)
    report = home.exa(module, "a0", "a1", "a2")
    assert len(report.rebuilt) == 3
    assert most_at_once(run_times(home).values()) == 1
    info = home.instance.event_log_storage.get_concurrency_info("license")
    assert (info.active_slot_count, info.pending_step_count) == (0, 0)


def test_a_failed_step_leaves_the_other_branches_going(home):
    module = home.module(
        """\
        from examlops_dagster import asset

        @asset(command=["false"], orchestrator="scheduler")
        def bad(): ...

        @asset(deps=["bad"], command=["true"], orchestrator="scheduler")
        def below(**upstream): ...

        @asset(command=["sleep", "1"], orchestrator="scheduler")
        def good(): ...

        @asset(deps=["good"], command=["true"], orchestrator="scheduler")
        def under_good(**upstream): ...
        """
    )
    report = home.exa(module, "below", "under_good")
    assert names_of(report.rebuilt) == ["good", "under_good"]
    assert [str(failed.node) for failed in report.failed] == ["bad"]
    assert home.versions(module)["below"] == 0


def test_retries_wait_their_time_while_others_go_on(home):
    module = home.module(
        """\
        from pathlib import Path
        from examlops_dagster import asset

        HERE = Path(__file__).parent

        @asset(command=["/bin/sh", "-c", f"date +%s.%N >> '{HERE}/tries'; test $(wc -l < '{HERE}/tries') = 3"],
               orchestrator="scheduler", retries=2, retry_backoff=1.0)
        def shaky(): ...

        @asset(command=["sleep", "0"], orchestrator="scheduler")
        def beside(): ...
        """
    )
    report = home.exa(module, "shaky", "beside")
    assert sorted(names_of(report.rebuilt)) == ["beside", "shaky"]
    first, second, third = map(float, (home.folder / "tries").read_text().split())
    assert second - first >= 1
    assert third - second >= 2
    assert home.endings("shaky") == ["failed", "failed", "succeeded"]


def test_functions_are_called_in_the_main_thread_while_jobs_wait(home):
    module = home.module(
        """\
        import threading
        from examlops_dagster import asset

        @asset(command=["sleep", "4"], orchestrator="scheduler")
        def job(): ...

        @asset(timeout_seconds=None)
        def here():
            return threading.current_thread() is threading.main_thread()

        @asset
        def in_a_worker():
            return 1
        """
    )
    report = home.exa(module, "job", "here", "in_a_worker")
    assert names_of(report.rebuilt) == ["job", "here", "in_a_worker"]
    values = home.project(module)
    assert json.loads(values.value(report.rebuilt[1])[0].payload) is True


def test_a_long_local_step_does_not_keep_the_next_job_from_being_submitted(home):
    module = home.module(
        """\
        import sqlite3
        import time
        from pathlib import Path
        from examlops_dagster import asset

        PLATFORM_DB = Path(__file__).with_name("platform.db")

        @asset(command=["sleep", "1"], orchestrator="scheduler")
        def first(): ...

        @asset(deps=["first"], command=["sleep", "1"], orchestrator="scheduler")
        def second(**upstream): ...

        def is_built(name):
            connection = sqlite3.connect(PLATFORM_DB)
            try:
                asked = "SELECT count(*) FROM builds WHERE asset = ? AND state = 'succeeded'"
                return connection.execute(asked, [name]).fetchone()[0] == 1
            finally:
                connection.close()

        @asset
        def local():
            deadline = time.monotonic() + 200
            while not is_built("second") and time.monotonic() < deadline:
                time.sleep(0.2)
        """
    )
    assert home.exa(module, "second", "local").ok
    ended = {b.node.asset: b.ended_at for n in ("second", "local") for b in home.builds(n)}
    assert ended["second"] < ended["local"]


def test_a_function_that_no_job_can_import_is_called_in_the_main_thread(home):
    module = home.module(
        """\
        import threading
        from examlops_dagster import asset

        def closed(name):
            @asset(name, orchestrator="scheduler", timeout_seconds=None)
            def built():
                return threading.current_thread() is threading.main_thread()
            return built

        a, job = closed("a"), None

        @asset(command=["sleep", "2"], orchestrator="scheduler")
        def waits(): ...
        """
    )
    report = home.exa(module, "a", "waits")
    assert "a" in names_of(report.fallbacks)
    [node] = [node for node in report.rebuilt if node.asset == "a"]
    assert json.loads(home.project(module).value(node)[0].payload) is True


def test_plain_assets_hooks_and_resources_work_in_the_same_run(home):
    called = []

    class Resource:
        def __init__(self):
            called.append("made")

    from dagster import ResourceDefinition

    module = jobs(home, 'built = sleeper("job", 2)\n')

    @asset(deps=["job"], required_resource_keys={"thing"})
    def plain(context):
        called.append((context.resources.thing.__class__.__name__,
                       threading.current_thread() is threading.main_thread()))  # fmt: skip
        return 1

    into = Definitions(
        assets=[plain],
        resources={"thing": ResourceDefinition(lambda _: Resource())},
    )
    run, events = run_with(home, module, ["job", "plain"], into=into)
    assert run.is_success
    assert called == ["made", ("Resource", True)]
    assert kinds(events, "plain")[-1] is DagsterEventType.STEP_SUCCESS


def test_hooks_are_called_for_steps_that_waited(home):
    called = []

    @success_hook
    def well(context):
        called.append(("well", context.op.name))

    @failure_hook
    def ill(context):
        called.append(("ill", context.op.name))

    module = home.module(
        """\
        from examlops_dagster import asset

        @asset(command=["true"], orchestrator="scheduler")
        def good(): ...

        @asset(command=["false"], orchestrator="scheduler")
        def bad(): ...
        """
    )
    run, events = run_with_hooks(home, module, {well, ill})
    assert sorted(called) == [("ill", "bad"), ("well", "good")]
    assert DagsterEventType.HOOK_COMPLETED in kinds(events, "good")
    assert run.is_failure


def test_an_interrupt_that_dagster_forgot_is_obeyed(home):
    """Who sets its handlers back clears what they noted."""

    @success_hook
    def forgets(context):
        del context
        with capture_interrupts():
            os.kill(os.getpid(), signal.SIGINT)

    module = jobs(home, 'quick = sleeper("quick", 0)\nlong = waiter("long")\n')
    at_last = threading.Timer(PATIENCE_SECONDS, (home.folder / "go").touch)
    at_last.start()
    run, events = run_with_hooks(home, module, {forgets})
    at_last.cancel()
    (home.folder / "go").touch()
    assert not run.is_success
    assert kinds(events, "quick")[-1] is DagsterEventType.HOOK_COMPLETED
    assert kinds(events, "long")[-1] is DagsterEventType.STEP_FAILURE


def test_events_come_as_under_dagsters_own_executor(home):
    module = home.module(
        """\
        from examlops_dagster import asset

        @asset(timeout_seconds=None)
        def a():
            return 1

        @asset(deps=["a"], timeout_seconds=None)
        def b(**upstream):
            raise ValueError("no")

        @asset(deps=["b"], timeout_seconds=None)
        def c(**upstream): ...
        """
    )
    run, events = run_with(home, module, ["a", "b", "c"])
    assert run.is_failure
    theirs = home.click(home.definitions(module, executor=in_process_executor), "a", "b", "c")
    for step in "abc":
        assert kinds(events, step) == kinds(theirs.all_events, step)
    assert [e.event_type for e in events][-2:] == [
        DagsterEventType.ENGINE_EVENT,
        DagsterEventType.RUN_FAILURE,
    ]
