"""``exa data``, in a new process each time."""

import json
import os
import pty
import subprocess

import pytest
from homes import INSTANCE, PROGRAMS, run_program
from object_store import s3_environment


@pytest.fixture
def exa(tmp_path, files):
    """Give the command in a home of its own."""
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "dagster.yaml").write_text(INSTANCE)

    def run(*words, code=0, **environment):
        return run_program(
            folder, "exa", *words, code=code, XDG_CACHE_HOME=str(tmp_path / "cache"), **environment
        )

    run.folder = folder
    return run


def test_a_dataset_is_recorded_listed_and_compared(exa, files):
    folder = files.all({"a b": "1", "gone": "22"})
    first = exa("data", "snapshot", "PM100", "--path", folder)
    assert first.stdout.startswith("Snapshot recorded: PM100 @ ")
    assert first.stdout.endswith("(2 files, 3 B); PM100 is at v1 now\n")
    again = exa("data", "snapshot", "PM100", "--path", folder)
    assert again.stdout.endswith("already (v1) — nothing changed.\n")
    (folder / "gone").unlink()
    files.all({"a b": "1", "new\nline": "333"})
    exa("data", "snapshot", "PM100", "-p", folder, "-b", "local")
    told = exa("data", "list").stdout.splitlines()
    assert told[0].split() == [
        "Dataset",
        "Revision",
        "Version",
        "Files",
        "Size",
        "Rows",
        "Backend",
        "Recorded",
    ]
    assert [line.split()[2] for line in told[1:]] == ["1", "2"]
    assert exa("data", "diff", "PM100").stdout.splitlines()[1:] == [
        "  - gone (2 B)",
        '  + "new\\nline" (3 B)',
    ]
    assert exa("assets", "status").stdout.splitlines()[1].split() == ["PM100", "2", "fresh", "—"]


def test_json_names_every_fact(exa, files):
    done = exa("data", "snapshot", "PM100", "--path", files(a="1"), "--json")
    found = json.loads(done.stdout)
    assert (found["ok"], found["new"], found["dataset"], found["backend"]) == (
        True,
        True,
        "PM100",
        "local",
    )
    assert (found["file_count"], found["byte_count"], found["row_count"]) == (1, 1, None)
    [listed] = json.loads(exa("--json", "data", "list", "PM100").stdout)
    assert listed["revision_id"] == found["revision_id"]
    assert listed["version"] == 1


def test_a_difference_as_json_keeps_names_that_are_no_text(exa, files):
    folder = files(a="1")
    exa("data", "snapshot", "d", "--path", folder)
    (folder / os.fsdecode(b"\xff")).write_bytes(b"2")
    second = json.loads(exa("data", "snapshot", "d", "--path", folder, "--json").stdout)
    found = json.loads(exa("data", "diff", "d", second["revision_id"][:10], "--json").stdout)
    assert found["added"] == {}
    found = json.loads(exa("data", "diff", "d", "--json").stdout)
    assert {os.fsencode(name): size for name, size in found["added"].items()} == {b"\xff": 1}
    assert found["to"]["revision_id"] == second["revision_id"]


@pytest.mark.parametrize(
    ("words", "code", "told"),
    [
        (("snapshot", "d", "--path", "nosuch"), 2, "nosuch does not exist"),
        (("snapshot", "d", "--path", "s3://b/x"), 2, "is no path of this machine"),
        (("snapshot", "d", "--path", ".", "-b", "ftp"), 2, "none of local, minio"),
        (("snapshot", "d", "--path", ".", "-b", "minio"), 2, "EXAMLOPS_S3_BUCKET"),
        (("list", "nosuch"), 2, "No asset named 'nosuch' is declared"),
        (("diff", "nosuch"), 2, "no revision is called 'nosuch'"),
        (("checkout", "nosuch", "--to", "x"), 2, "no revision is called 'nosuch'"),
    ],
)
def test_what_cannot_work_is_told_without_a_traceback(exa, words, code, told):
    done = exa("data", *words, code=code)
    assert told in done.stderr
    assert "Traceback" not in done.stderr
    assert json.loads(exa("data", *words, "--json", code=code).stdout)["exit_code"] == code


def test_an_empty_folder_is_an_error_and_no_revision(exa, tmp_path):
    (tmp_path / "empty").mkdir()
    done = exa("data", "snapshot", "d", "--path", tmp_path / "empty", code=1)
    assert "holds no file" in done.stderr
    assert exa("data", "list").stdout.startswith("No revisions recorded. Use: exa data snapshot")


def test_files_go_to_a_store_and_come_back(exa, files, bucket, s3_address, tmp_path):
    folder = files.all({"a": "1", "x/b": "2"})
    settings = s3_environment(s3_address)
    done = exa(
        "data", "snapshot", "PM100", "--backend", "minio", "--bucket", "data", "--prefix", "p",
        "--path", folder, "--json", **settings,
    )  # fmt: skip
    assert json.loads(done.stdout)["uri"].startswith("s3://data/p/datasets/PM100/")
    out = tmp_path / "out"
    told = exa("data", "checkout", "PM100", "--to", out, **settings).stdout
    assert told.endswith("(2 files, 2 B)\n")
    assert (out / "x" / "b").read_text() == "2"


def test_names_are_completed(exa, files):
    recorded = json.loads(exa("data", "snapshot", "PM100", "--path", files(a="1"), "--json").stdout)
    done = exa(
        _EXA_COMPLETE="complete_bash", COMP_WORDS="exa data diff PM100@", COMP_CWORD="3",
        _TYPER_COMPLETE_ARGS="exa data diff PM100@",
    )  # fmt: skip
    assert done.stdout.split() == [f"PM100@{recorded['revision_id'][:12]}"]


def test_only_a_terminal_gets_a_progress_bar(exa, files, tmp_path):
    folder = files.all({"large": b"\0" * (64 << 20)})
    done = exa("data", "snapshot", "PM100", "--path", folder)
    assert done.stderr == ""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [PROGRAMS / "exa", "data", "snapshot", "other", "--path", folder],
        cwd=exa.folder,
        env={**os.environ, "XDG_CACHE_HOME": str(tmp_path / "fresh"), "TERM": "xterm"},
        stdout=subprocess.PIPE,
        stderr=theirs,
        text=True,
    )
    os.close(theirs)
    shown = b""
    with process, os.fdopen(ours, "rb", buffering=0) as terminal:
        try:
            while chunk := terminal.read(4096):
                shown += chunk
        except OSError:  # the terminal's other side is closed
            pass
        assert process.stdout.read().startswith("Snapshot recorded: other")
    assert b"hashing" in shown


def test_listing_imports_no_dagster(exa, files):
    exa("data", "snapshot", "PM100", "--path", files(a="1"))
    done = run_program(
        exa.folder, "python", "-X", "importtime", "-m", "examlops_dagster.cli", "data", "list"
    )
    modules = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines()}
    assert "examlops_dagster.cli" in modules
    assert not modules & {"dagster", "sqlalchemy", "rich", "s3fs", "pyarrow", "pydantic"}
