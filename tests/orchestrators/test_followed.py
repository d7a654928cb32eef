"""The logs of jobs, copied to our own stdout while they grow."""

import os
import threading

import pytest

from examlops_dagster.orchestrators.followed import FollowedLog


@pytest.fixture
def target(tmp_path):
    path = tmp_path / "target"
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    yield path, descriptor
    os.close(descriptor)


def grow(path, piece):
    with path.open("ab") as file:
        file.write(piece)


def test_a_log_without_a_label_is_copied_byte_for_byte(tmp_path, target):
    copy, descriptor = target
    log = FollowedLog(tmp_path / "log", descriptor)
    assert not log.forward()  # it is not there yet
    grow(tmp_path / "log", b"ha")
    assert log.forward()
    assert copy.read_bytes() == b"ha"
    grow(tmp_path / "log", b"lf\nno end \xff")
    log.finish()
    assert copy.read_bytes() == b"half\nno end \xff"


def test_a_label_stands_before_each_line_which_is_whole(tmp_path, target):
    copy, descriptor = target
    log = FollowedLog(tmp_path / "log", descriptor, "model[2026-01-05]")
    grow(tmp_path / "log", b"one\ntw")
    log.forward()
    assert copy.read_bytes() == b"[model[2026-01-05]] one\n"
    grow(tmp_path / "log", b"o\n\nthree")
    log.forward()
    log.finish()
    lines = copy.read_text().splitlines()
    assert [line.removeprefix("[model[2026-01-05]] ") for line in lines] == [
        "one",
        "two",
        "",
        "three",
    ]


def test_a_line_without_an_end_is_not_held_for_ever(tmp_path, target):
    copy, descriptor = target
    log = FollowedLog(tmp_path / "log", descriptor, "a")
    grow(tmp_path / "log", b"x" * (1 << 17))
    log.forward()
    assert copy.stat().st_size == len("[a] ") + (1 << 17)


def test_lines_of_many_logs_do_not_mix(tmp_path, target):
    copy, descriptor = target

    def follow(name):
        path = tmp_path / name
        log = FollowedLog(path, descriptor, name)
        for n in range(50):
            grow(path, f"{name} says {n}".encode())
            log.forward()
            grow(path, b"\n")
            log.forward()
        log.finish()

    threads = [threading.Thread(target=follow, args=(f"a{n}",)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    lines = copy.read_text().splitlines()
    assert len(lines) == 8 * 50
    for line in lines:
        label, _, said = line.partition("] ")
        assert said.startswith(f"{label[1:]} says ")
