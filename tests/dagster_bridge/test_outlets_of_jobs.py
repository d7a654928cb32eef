"""Events of functions that run in a worker process or as a batch job."""

from seed_three import SEED


def test_the_worker_process_hands_events_back(home):
    module = home.module(SEED.replace(", timeout_seconds=None", ""))
    assert home.exa(module, "my_task", "to_both").ok
    assert len(home.emissions("my-task-outputs")) == len(home.emissions("out2")) == 1


def test_a_batch_job_hands_events_back_and_gets_those_of_its_inlets(home, monkeypatch):
    monkeypatch.setenv("EXAMLOPS_HPC_SCHEDULER", "mock")
    monkeypatch.setenv("EXAMLOPS_ASSET_JOB_DIR", str(home.folder / "jobs"))
    monkeypatch.setenv("EXAMLOPS_HPC_WORKDIR", str(home.folder / "spool"))
    module = home.module(SEED.replace(", timeout_seconds=None", ""))
    assert home.exa(module, "to_both", "yielding", "my_task", orchestrator="scheduler").ok
    assert len(home.emissions("my-task-outputs")) == len(home.emissions("out2")) == 1
    assert home.exa(module, "by_dataset", orchestrator="scheduler").ok
    assert home.value(module, "by_dataset") == [{"k": "v"}]


def test_a_program_of_a_job_appends_lines_to_the_file_of_its_outlets(home, monkeypatch):
    monkeypatch.setenv("EXAMLOPS_HPC_SCHEDULER", "mock")
    monkeypatch.setenv("EXAMLOPS_ASSET_JOB_DIR", str(home.folder / "jobs"))
    monkeypatch.setenv("EXAMLOPS_HPC_WORKDIR", str(home.folder / "spool"))
    module = home.module(
        """\
        from examlops_dagster import DatasetAlias, asset

        LINE = '{"dataset": "s3://x", "extra": {"rows": 3}, "alias": "out"}'


        @asset(
            outlets=DatasetAlias("out"),
            command=["sh", "-c", f"echo '{LINE}' >> $EXAMLOPS_OUTLET_EVENTS"],
        )
        def program(): ...
        """
    )
    assert home.exa(module, "program", orchestrator="scheduler").ok
    [event] = home.emissions("out")
    assert (event.uri, event.extra) == ("s3://x", {"rows": 3})
