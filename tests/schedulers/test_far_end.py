"""Which jobs are of the cluster that the settings name: by host, port and user."""

import pytest

from examlops_dagster.errors import UsageError
from examlops_dagster.schedulers.far_end import HERE, FarEnd
from examlops_dagster.schedulers.folder import write_json
from examlops_dagster.schedulers.folders import check_far_end, far_end_of, remove_there

TUNNEL = FarEnd("localhost", "2201")


def settings(host="", port="", user=""):
    named = {"HOST": host, "PORT": port, "USER": user}
    return {f"EXAMLOPS_HPC_SSH_{name}": value for name, value in named.items() if value}


def submitted(folder, end):
    write_json(folder / "submit.json", {"token": folder.name, **end.written})
    return folder


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (HERE, HERE),
        (TUNNEL, FarEnd("localhost", "2201", "me")),
        (FarEnd("login", ""), FarEnd("login", "22")),
        (FarEnd("localhost", None), TUNNEL),
    ],
)
def test_ends_that_are_the_same_as_far_as_they_are_known(one, other):
    assert one.is_same(other)
    assert other.is_same(one)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (HERE, TUNNEL),
        (TUNNEL, FarEnd("localhost", "2202")),
        (TUNNEL, FarEnd("localhost", "")),
        (FarEnd("localhost", "2201", "me"), FarEnd("localhost", "2201", "you")),
        (FarEnd("localhost", None), FarEnd("login", None)),
    ],
)
def test_ends_that_are_not_the_same(one, other):
    assert not one.is_same(other)
    assert not other.is_same(one)


@pytest.mark.parametrize("end", [HERE, TUNNEL, FarEnd("login", ""), FarEnd("login", "22", "me")])
def test_what_the_folder_of_a_job_says_is_read_as_it_was_written(tmp_path, end):
    assert far_end_of(submitted(tmp_path, end)) == end


def test_a_folder_from_before_ports_were_written_down_is_of_any_port_of_its_host(tmp_path):
    write_json(tmp_path / "submit.json", {"token": "x", "ssh_host": "localhost"})
    assert far_end_of(tmp_path) == FarEnd("localhost", None)
    for port in ("", "2201"):
        check_far_end(tmp_path, settings("localhost", port))
    with pytest.raises(UsageError, match="over SSH to localhost → set EXAMLOPS_HPC_SSH_HOST="):
        check_far_end(tmp_path, settings("login"))


@pytest.mark.parametrize(
    ("was", "now", "told"),
    [
        (TUNNEL, settings("localhost", "2202"), "localhost:2201 → set EXAMLOPS_HPC_SSH_PORT=2201"),
        (TUNNEL, {}, "localhost:2201 → set EXAMLOPS_HPC_SSH_HOST=localhost EXAMLOPS_HPC_SSH_PORT=2201"),
        (FarEnd("localhost"), settings("localhost", "2202"), "localhost → unset EXAMLOPS_HPC_SSH_PORT"),
        (FarEnd("login", "", "me"), settings("login", "2", "you"), "me@login → set EXAMLOPS_HPC_SSH_USER=me and unset EXAMLOPS_HPC_SSH_PORT"),
        (TUNNEL, {**settings("localhost", "2201"), "EXAMLOPS_HPC_TRANSPORT": "local"}, "EXAMLOPS_HPC_SSH_PORT=2201 and unset EXAMLOPS_HPC_TRANSPORT"),
        (HERE, settings("login", "2202"), "on this host → unset EXAMLOPS_HPC_SSH_HOST"),
    ],
)  # fmt: skip
def test_the_refusal_says_what_to_set(tmp_path, was, now, told):
    with pytest.raises(UsageError) as caught:
        check_far_end(submitted(tmp_path, was), now)
    assert str(caught.value).endswith(told)


def test_the_copy_of_a_folder_is_not_looked_for_at_another_port(tmp_path):
    there = {"folder_there": f"/elsewhere/{tmp_path.name}"}
    write_json(tmp_path / "submit.json", {**TUNNEL.written, **there})
    assert not remove_there(tmp_path, settings("localhost", "2202"))
