"""The portable vocabulary, and how it is said to sbatch and to flux."""

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from examlops_dagster.core.checks import RESOURCES
from examlops_dagster.errors import UsageError
from examlops_dagster.schedulers.options import flux_request, sbatch_options
from examlops_dagster.schedulers.resources import (
    Resources,
    avoided,
    avoiding,
    merged,
    parse_resources,
    parse_time,
    resources_of_pairs,
)


def sbatch(limit=None, **resources):
    return sbatch_options(parse_resources(resources), limit)


def flux(limit=None, **resources):
    return flux_request(parse_resources(resources), limit).options


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("2:00:00", 7200),
        ("00:10:00", 600),
        ("1-02:03:04", 93784),
        ("100:00:00", 360000),
        ("90m", 5400),
        ("2h", 7200),
        ("1h30m", 5400),
        ("45s", 45),
        ("1d", 86400),
        (" 2H ", 7200),
        (timedelta(minutes=5), 300),
    ],
)
def test_a_time_has_a_unit(text, seconds):
    assert parse_time(text) == seconds


@pytest.mark.parametrize("value", [90, 1.5, "90", "1.5", True, None])
def test_a_bare_number_is_refused_since_it_is_minutes_to_some(value):
    with pytest.raises(ValueError, match="a bare number has no unit; write D-HH:MM:SS"):
        parse_time(value)


@pytest.mark.parametrize("value", ["10:00", "1:60:00", "h", "", "2 hours", "-1:00:00", "1h 30m"])
def test_a_time_of_another_form_is_refused(value):
    with pytest.raises(ValueError, match="write D-HH:MM:SS"):
        parse_time(value)


@pytest.mark.parametrize("value", ["0s", "00:00:00", timedelta(0)])
def test_a_time_of_nothing_is_refused(value):
    with pytest.raises(ValueError, match="above 0"):
        parse_time(value)


@given(st.integers(1, 10_000_000))
def test_every_length_survives_the_form_of_slurm(seconds):
    days, rest = divmod(seconds, 86400)
    text = f"{days}-{rest // 3600:02}:{rest % 3600 // 60:02}:{rest % 60:02}"
    assert parse_time(text) == seconds


def test_every_key_of_the_vocabulary_is_read():
    values = {
        "time": "2h", "queue_time": "1d", "mem": "4G", "gpus": 2, "nodes": 1, "ntasks": 1,
        "cpus_per_task": 4, "partition": "p", "account": "a", "qos": "q", "constraint": "c",
        "reservation": "r", "exclusive": True, "setup": "module load x", "slurm": {}, "flux": {},
    }  # fmt: skip
    assert set(values) | {"gpus_per_node"} == RESOURCES
    assert parse_resources(values).time_seconds == 7200
    assert parse_resources({"gpus_per_node": "a100:2"}).gpus_per_node.kind == "a100"
    assert parse_resources(dict.fromkeys(RESOURCES)) == Resources()


@pytest.mark.parametrize(
    ("resources", "message"),
    [
        ({"mem": 4}, "resource mem=4: write a number with a unit"),
        ({"mem": "4"}, "write a number with a unit"),
        ({"mem": "0G"}, "above 0"),
        ({"gpus": True}, "write a number, or a type"),
        ({"gpus": -1}, "write a number, or a type"),
        ({"nodes": 0}, "resource nodes=0: write a whole number above 0"),
        ({"ntasks": "two"}, "whole number"),
        ({"cpus_per_task": 1.5}, "whole number"),
        ({"partition": ""}, "write a text"),
        ({"account": "a\nb"}, "control characters"),
        ({"exclusive": "maybe"}, "write True or False"),
        ({"setup": 5}, "lines of shell"),
        ({"slurm": "--x"}, "a dict of long option names"),
        ({"slurm": {"p": "debug"}}, "'p' is not the long name"),
        ({"slurm": {"nice": object()}}, "no text, number"),
        ({"gpu": 1}, "no such resource; did you mean gpus?"),
        ({"zzz": 1}, "no such resource; known: account, "),
        ({"gpus": 1, "gpus_per_node": 1}, "give one of them"),
        ({"time": 5}, "resource time=5: a bare number has no unit"),
    ],
)
def test_what_is_wrong_is_named_with_what_is_allowed(resources, message):
    with pytest.raises(UsageError) as caught:
        parse_resources(resources)
    assert message in str(caught.value)


def test_every_problem_is_told_at_once():
    with pytest.raises(UsageError) as caught:
        parse_resources({"nodes": 0, "mem": 1, "gpus": 1})
    assert len(str(caught.value).splitlines()) == 2


def test_numbers_may_be_texts_as_the_command_line_gives_them():
    pairs = ["gpus=4", "nodes=2", "time=2h", "exclusive=true", "slurm.nice=5", "slurm.hold=true"]
    given_ = resources_of_pairs(pairs)
    assert given_["slurm"] == {"nice": "5", "hold": True}
    found = parse_resources(given_)
    assert (found.gpus.count, found.nodes, found.exclusive) == (4, 2, True)
    assert "--hold" in sbatch_options(found)


def test_one_text_may_hold_several_pairs():
    given_ = resources_of_pairs(["gpus=4, mem=8G,slurm.nodelist=n1,n2", "qos=high"])
    assert given_ == {"gpus": 4, "mem": "8G", "qos": "high", "slurm": {"nodelist": "n1,n2"}}


def test_counts_are_numbers_that_a_policy_can_compare_and_nothing_else_is():
    given_ = resources_of_pairs(["gpus=8,nodes=2", "gpus_per_node=a100:2,qos=1"])
    assert given_ == {"gpus": 8, "nodes": 2, "gpus_per_node": "a100:2", "qos": "1"}


@pytest.mark.parametrize("pair", ["gpus", "=4", "gpu=4", "slurm=x", "other.x=1"])
def test_a_text_that_is_no_pair_is_refused(pair):
    with pytest.raises(UsageError):
        resources_of_pairs([pair])


def test_one_build_changes_what_it_names():
    base = {"gpus": 1, "time": "1h", "slurm": {"nice": 1, "begin": "now"}}
    assert merged(base, {"gpus": 2, "slurm": {"nice": 3}}) == {
        "gpus": 2,
        "time": "1h",
        "slurm": {"nice": 3, "begin": "now"},
    }


def test_sbatch_gets_every_option():
    assert sbatch(
        time="1-00:00:00", mem="1.5G", gpus="a100:2", nodes=2, ntasks=4, cpus_per_task=8,
        partition="gpu", account="lab", qos="normal", constraint="a&b", reservation="r",
        exclusive=True, slurm={"mail_type": "END", "nice": 5, "hold": True, "overcommit": False},
    ) == [
        "--time=1440", "--nodes=2", "--ntasks=4", "--cpus-per-task=8", "--mem=1536M",
        "--gpus=a100:2", "--partition=gpu", "--account=lab", "--qos=normal", "--constraint=a&b",
        "--reservation=r", "--exclusive", "--mail-type=END", "--nice=5", "--hold",
    ]  # fmt: skip


@pytest.mark.parametrize(("limit", "minutes"), [(1, 1), (60, 1), (60.1, 2), (3601, 61)])
def test_minutes_of_slurm_are_rounded_up(limit, minutes):
    assert sbatch(limit) == [f"--time={minutes}"]


def test_the_limit_of_the_build_stands_for_that_of_the_resources():
    assert sbatch(120, time="1h") == ["--time=2"]
    assert flux(120, time="1h") == ["--time-limit=120s", "--ntasks=1"]


def test_what_the_orchestrator_and_the_script_keep_is_no_option():
    assert sbatch(queue_time="1h", setup=["module load x"], gpus=0, exclusive=False) == []


@pytest.mark.parametrize("option", ["job-name", "output", "array", "parsable", "export", "requeue"])
def test_options_of_ours_cannot_be_given(option):
    with pytest.raises(UsageError, match=f"{option} is set by this package"):
        sbatch(slurm={option: "x"})


def test_an_extra_that_has_a_portable_name_is_pointed_to_it():
    with pytest.raises(UsageError, match=r"say cpus-per-task as resources\['cpus_per_task'\]"):
        sbatch(slurm={"cpus_per_task": 4})
    with pytest.raises(UsageError, match=r"say queue as resources\['partition'\]"):
        flux(flux={"queue": "x"})


def test_extras_of_the_other_scheduler_do_nothing():
    assert sbatch(flux={"urgency": 20}) == []
    assert flux(slurm={"nice": 5}) == ["--ntasks=1"]


def test_nodes_that_failed_are_excluded_besides_what_the_user_excludes():
    assert sbatch(**avoiding({}, ["n7"])) == ["--exclude=n7"]
    asked = {"slurm": {"exclude": "n1,n2"}}
    assert sbatch(**avoiding(asked, ["n[7-8]"])) == ["--exclude=n1,n2,n[7-8]"]
    assert sbatch(**avoiding({"slurm": {"exclude": ["n1", "n2"]}}, ["n7"])) == [
        "--exclude=n1,n2,n7"
    ]


@pytest.mark.parametrize(
    ("constraint", "requires"),
    [
        (None, "-host:n7,n[8-9]"),
        ("big", "(big) -host:n7,n[8-9]"),
        ("a100|h100", "(a100|h100) -host:n7,n[8-9]"),
    ],
)
def test_nodes_that_failed_are_a_constraint_of_flux_besides_that_of_the_user(constraint, requires):
    asked = avoiding({"constraint": constraint}, ["n7", "n[8-9]"])
    assert flux(**asked) == ["--ntasks=1", f"--requires={requires}"]


def test_a_node_is_avoided_once_and_none_where_none_is_known():
    assert avoided(avoiding(avoiding({}, ["n7"]), ["n8", "n7", ""])) == ("n7", "n8")
    assert avoiding({"gpus": 1}, [""]) == {"gpus": 1}


def test_flux_gets_every_option_of_one_task():
    assert flux(
        time="90m", gpus=2, cpus_per_task=8, partition="batch", account="bank", constraint="big",
        exclusive=True, flux={"urgency": 20, "setopt": ["a=1", "b=2"]},
    ) == [
        "--time-limit=5400s", "--nodes=1", "--ntasks=1", "--cores-per-task=8", "--gpus-per-task=2",
        "--exclusive", "--queue=batch", "--bank=bank", "--requires=big", "--urgency=20",
        "--setopt=a=1", "--setopt=b=2",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("resources", "nested", "options"),
    [
        ({"nodes": 1, "ntasks": 1}, False, ["--nodes=1", "--ntasks=1"]),
        ({"nodes": 2}, True, ["--nodes=2", "--nslots=2"]),
        ({"ntasks": 4}, True, ["--nslots=4"]),
        ({"ntasks": 4, "gpus": 4}, True, ["--nslots=4", "--gpus-per-slot=1"]),
        ({"nodes": 2, "gpus_per_node": 4}, True, ["--nodes=2", "--nslots=2", "--gpus-per-slot=4"]),
    ],
)
def test_flux_batch_is_for_more_than_one_task(resources, nested, options):
    found = flux_request(parse_resources(resources))
    assert (found.nested, found.options) == (nested, options)


@pytest.mark.parametrize(
    ("resources", "message"),
    [
        ({"mem": "4G"}, "resource mem: Flux: it has no request for memory"),
        ({"qos": "x"}, "resource qos: Flux: "),
        ({"reservation": "x"}, "resource reservation: Flux: "),
        ({"gpus": "a100:1"}, "resource gpus: Flux: it has no types"),
        ({"exclusive": "user"}, "resource exclusive: Flux: "),
        ({"ntasks": 3, "gpus": 4}, "4 do not divide so"),
        ({"nodes": 4, "ntasks": 2}, "at least one task a node"),
    ],
)
def test_what_flux_cannot_express_is_refused_by_name(resources, message):
    with pytest.raises(UsageError) as caught:
        flux(**resources)
    assert message in str(caught.value)
