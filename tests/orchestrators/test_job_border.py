"""What crosses the border to a job and back, and what does not."""

import job_functions as functions
import pytest
from job_requests import Mock, Scripted, job_request, leave_exit, run_scripted, status
from needs import library

from examlops_dagster.core.declarations import NodeType, Upstream
from examlops_dagster.errors import AssetBuildError, ResultError
from examlops_dagster.formats import decode


def test_the_job_has_neither_dagster_nor_a_database(mock, tmp_path, monkeypatch):
    locked = tmp_path / "locked"
    locked.mkdir(mode=0o500)
    mock.environment["PLATFORM_DB"] = str(locked / "platform.db")
    assert decode(mock.run(functions.loaded).value) == ["dagster_pipes"]
    assert list(locked.iterdir()) == []


def test_tables_cross_both_ways(mock):
    pandas = library("pandas")
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


def test_versions_of_thousands_of_keys_arrive(mock):
    many = {f"2026-01-05-{n:06}": n for n in range(9000)}
    value = decode(mock.run(functions.versions, {"PM100": many}).value)
    assert value["upstream"] == {"PM100": many}
