"""What jobs write on another host comes here: as it grows, whole, and the exit file last."""

import io
import os
import threading
import time

import pytest
from sshd import SshServer
from waiting import PATIENCE_SECONDS

from examlops_dagster.errors import LaunchError
from examlops_dagster.schedulers import ssh_files
from examlops_dagster.schedulers.messages import MessageFile
from examlops_dagster.schedulers.ssh import SshRunner
from examlops_dagster.schedulers.ssh_files import Brought, Listed, Wanted, read_listing, wanted
from examlops_dagster.schedulers.ssh_mirror import INTERVAL_SECONDS, Mirror, MirroredFolder
from examlops_dagster.schedulers.ssh_settings import ssh_settings


@pytest.fixture
def server(tmp_path, monkeypatch):
    (tmp_path / "server").mkdir()
    found = SshServer(tmp_path / "server")
    for name, value in found.variables().items():
        monkeypatch.setenv(name, value)
    yield found
    found.stop()


@pytest.fixture
def world(server, awkward_path):
    runner = SshRunner(ssh_settings(os.environ))
    (awkward_path / "here").mkdir()
    yield World(runner, awkward_path)
    runner.close()


class World:
    """Folders here and there, and a mirror between them."""

    def __init__(self, runner, root):
        self.runner = runner
        self.root = root
        self.mirror = self.another()

    def another(self):
        """Give the mirror of another process."""
        return Mirror(self.runner, self.root / "here" / ".mirror.lock")

    def folder(self, name="job", mirror=None, index=None):
        here, there = self.root / "here" / name, self.root / "there" / name
        here.mkdir(exist_ok=True)
        there.mkdir(parents=True, exist_ok=True)
        return MirroredFolder(here, there, mirror or self.mirror, index)


def write(folder, name, text, *, mode="a"):
    path = folder.there / name
    path.parent.mkdir(exist_ok=True)
    with path.open(mode) as file:
        file.write(text)


def test_files_grow_here_as_they_grow_there_and_nothing_else_comes(world):
    folder = world.folder()
    for name in ("run.sh", "core.1234", "in/0.pickle", "out/.half", "data.log", "outs/x"):
        write(folder, name, "not ours")
    write(folder, "stdout.log", "one\n")
    folder.fetch()
    inode = folder.stdout.stat().st_ino
    write(folder, "stdout.log", "two\n")
    write(folder, "out/value's\n.json", "1")
    folder.fetch()
    assert folder.stdout.read_text() == "one\ntwo\n"
    assert folder.stdout.stat().st_ino == inode  # whoever follows it goes on
    assert (folder.outputs / "value's\n.json").read_text() == "1"
    assert sorted(p.name for p in folder.path.iterdir()) == ["mirror.json", "out", "stdout.log"]
    assert folder.outputs.stat().st_mode & 0o777 == 0o700


def test_an_attempt_that_is_started_again_replaces_the_files_of_the_former(world):
    folder = world.folder()
    messages = MessageFile(folder.messages)
    line = '{"__dagster_pipes_version": "0.1", "method": "%s", "params": {}}\n'
    write(folder, "messages.jsonl", line % "opened" + line % "log")
    write(folder, "out/result.json", "{}")
    folder.fetch()
    assert len(messages.read()) == 2
    (folder.there / "messages.jsonl").rename(folder.there / "messages.jsonl.before.0.1")
    (folder.there / "out").rename(folder.there / "out.before.0.1")
    write(folder, "messages.jsonl", line % "opened")
    folder.fetch()
    assert [m.method for m in messages.read()] == ["opened"]
    assert messages.attempt == 1
    assert not (folder.outputs / "result.json").exists()


def test_another_process_goes_on_where_one_stopped(world):
    folder = world.folder()
    write(folder, "stdout.log", "one\n")
    folder.fetch()
    with folder.stdout.open("a") as file:
        file.write("a half that was not noted")
    write(folder, "stdout.log", "two\n")
    world.folder(mirror=world.another()).fetch()
    assert folder.stdout.read_text() == "one\ntwo\n"


def test_the_exit_file_is_here_only_when_all_else_is(world):
    folder = world.folder()
    stop = threading.Event()

    def look():
        while not stop.is_set():
            folder.refresh()
            if folder.exit_file.exists():
                assert (folder.outputs / "value.bin").stat().st_size == 3_000_000
                assert folder.stderr.read_text().endswith("the end")
                seen.append(True)
                return

    seen = []
    thread = threading.Thread(target=look)
    thread.start()
    for _ in range(10):
        write(folder, "stderr.log", "more\n")
        time.sleep(0.1)
    write(folder, "out/value.bin", "x" * 3_000_000)
    write(folder, "stderr.log", "the end")
    write(folder, "exit.json", "{}")
    thread.join(PATIENCE_SECONDS)
    stop.set()
    assert seen == [True]


def test_many_jobs_take_one_look(world, server):
    folders = [world.folder(f"job {n}") for n in range(20)]
    for folder in folders:
        write(folder, "stdout.log", folder.path.name)
        folder.refresh()
    folders[0].fetch()
    for folder in folders:
        folder.fetch()
    before = server.sessions
    since = time.monotonic()
    while not all(folder.is_current(since) for folder in folders):
        for folder in folders:
            folder.refresh()
        time.sleep(0.05)
    assert all(f.stdout.read_text() == f.path.name for f in folders)
    looks = 1 + (time.monotonic() - since) / INTERVAL_SECONDS
    assert server.sessions - before <= 1 + looks  # twenty each, one by one


def test_a_host_that_is_not_reached_says_nothing(world, server, monkeypatch):
    monkeypatch.setattr("examlops_dagster.schedulers.ssh_mirror._LOOK_SECONDS", 1.0)
    folder = world.folder()
    server.stop()
    since = time.monotonic()
    with pytest.raises(LaunchError, match="cannot be looked at: the connection") as caught:
        assert not folder.has_run
    assert caught.value.transient
    assert not folder.is_current(since)
    server.start()
    monkeypatch.setattr("examlops_dagster.schedulers.ssh_mirror._LOOK_SECONDS", 180.0)
    assert not folder.has_run
    write(folder, "stdout.log", "")
    assert folder.has_run


def test_of_a_log_without_end_the_beginning_and_the_end_come(world, monkeypatch):
    monkeypatch.setattr(ssh_files, "LONGEST_LOG_BYTES", 100)
    monkeypatch.setattr(ssh_files, "_LOG_END_BYTES", 10)
    folder = world.folder(index=3)
    write(folder, "stdout.3.log", "a" * 150)
    folder.fetch()
    assert folder.stdout.read_text() == "a" * 100
    write(folder, "stdout.3.log", "b" * 150)
    folder.fetch()
    assert folder.stdout.stat().st_size == 100
    write(folder, "exit.3.json", "{}")
    folder.fetch()
    assert folder.exit_file.exists()
    assert folder.stdout.read_text() == (
        "a" * 100 + "\n[190 bytes are only in the log there]\n" + "b" * 10
    )


def test_an_exit_file_that_appeared_during_the_listing_waits_for_the_next():
    known = Listed({"exit.json": ("1", 5), "stdout.log": ("2", 3)})
    assert [piece.name for piece in wanted(known, {})] == ["stdout.log"]
    ended = Listed(known.files, frozenset({"exit.json"}))
    same = {"stdout.log": Brought("2", 3, 3)}
    assert [(p.name, p.offset) for p in wanted(ended, same)] == [("stdout.log", 3),
                                                                ("exit.json", 0)]  # fmt: skip
    assert wanted(ended, {**same, "exit.json": Brought("1", 5, 5)}) == []


def test_a_folder_that_is_not_there_is_no_empty_one():
    assert read_listing(b"") == {}
    told = b"E\x000\x00/f\x00\x00E\x001\x00/f\x00exit.json\x00F\x00/f\x007\x005\x00exit.json\x00"
    [(_, listed)] = read_listing(told).items()
    assert listed == Listed({"exit.json": ("7", 5)}, frozenset({"exit.json"}))


def test_a_stream_that_is_cut_is_no_file(tmp_path):
    piece = Wanted("stdout.log", "1", 0)
    for sent in (b"", b"1 3\nabc\n", b"0 3\nab", b"0 3\nabc", b"0 3\nabcd"):
        with pytest.raises(LaunchError):
            ssh_files.receive(io.BytesIO(sent), 0, tmp_path, piece, None)
    assert ssh_files.receive(io.BytesIO(b"0 -1\n\n"), 0, tmp_path, piece, None) is None
    assert ssh_files.receive(io.BytesIO(b"0 3\nabc\n"), 0, tmp_path, piece, None) == Brought(
        "1", 3, 3
    )


@pytest.mark.parametrize("index", [None, 3])
def test_a_job_that_was_given_up_is_marked_there(world, index):
    folder = world.folder(index=index)
    assert folder.withdraw()
    mark = "withdrawn" if index is None else f"withdrawn.{index}"
    assert [path.name for path in folder.there.iterdir()] == [mark]
    write(folder, "stdout.log" if index is None else f"stdout.{index}.log", "it began\n")
    assert not folder.withdraw()


def test_one_whose_folder_never_came_there_needs_no_mark(world):
    folder = world.folder()
    folder.there.rmdir()
    assert folder.withdraw()
    assert not folder.there.exists()


def test_one_of_which_the_other_host_says_nothing_is_not_given_up(world, server):
    folder = world.folder()
    server.stop()
    world.runner.close()
    with pytest.raises(LaunchError):
        folder.withdraw()
