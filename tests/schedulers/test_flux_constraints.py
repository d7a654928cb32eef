"""That the fake `flux` reads constraints like a real one, and places jobs so: on both, if there."""

import json

import pytest
from fluxes import ended_job


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("-host:{0}", {"not": [{"hostlist": ["{0}"]}]}),
        ("not hosts:{0}", {"not": [{"hostlist": ["{0}"]}]}),
        ("(a|b) -host:{0},{1}", {"and": [{"or": [{"properties": ["a"]}, {"properties": ["b"]}]},
                                         {"not": [{"hostlist": ["{0},{1}"]}]}]}),
        ("a|b -host:{0}", {"or": [{"properties": ["a"]}, {"and": [
            {"properties": ["b"]}, {"not": [{"hostlist": ["{0}"]}]}]}]}),
        ("(rank:0 and (host:{0} or ^b)) -host:{1}", {"and": [
            {"ranks": ["0"]}, {"or": [{"hostlist": ["{0}"]}, {"properties": ["^b"]}]},
            {"not": [{"hostlist": ["{1}"]}]}]}),
    ],
)  # fmt: skip
def test_a_constraint_is_read_as_rfc_35_has_it(flux_command, query, found):
    """Terms side by side bind before an "or", so what a user asks for needs parentheses."""
    hosts = two_hosts(flux_command)
    number = flux_command(
        "submit", "-n1", f"--requires={query.format(*hosts)}", "true"
    ).stdout.strip()
    spec = json.loads(flux_command("job", "info", number, "jobspec").stdout)
    assert spec["attributes"]["system"]["constraints"] == filled(found, hosts)


@pytest.mark.parametrize(
    ("requires", "stderr"),
    [
        ("a|", "flux-submit: ERROR: --requires='a|': Unexpected end of input in 'a|'\n"),
        ("(a", "flux-submit: ERROR: --requires='(a': Unclosed parenthesis in position 0\n"),
        ("()", "flux-submit: ERROR: --requires='()': Invalid token ')' at position 1\n"),
        ("-(a|b)", "flux-submit: ERROR: --requires='-(a|b)': Invalid token '(' at position 1\n"),
        ("-host:", "flux-submit: ERROR: --requires='-host:': Missing argument to token 'host:'\n"),
        ("bogus:n1", "[Errno 1] unknown constraint operator 'bogus'\n"),
        ("-host:nohost",
         "[Errno 1] host constraint contains invalid hosts: host 'nohost' not found\n"),
    ],
)  # fmt: skip
def test_a_constraint_that_cannot_be_read_is_refused(flux_command, requires, stderr):
    found = flux_command("submit", "-n1", f"--requires={requires}", "true")
    assert (found.returncode, found.stderr, found.stdout) == (1, stderr, "")


def test_a_refusal_of_a_batch_has_its_name(flux_command):
    found = flux_command("batch", "-n1", "--requires=-host:nohost", "--wrap", "true")
    assert (found.returncode, found.stderr) == (
        1,
        "flux-batch: ERROR: host constraint contains invalid hosts: host 'nohost' not found\n",
    )


def test_a_job_goes_to_a_node_that_its_constraint_leaves(flux_command):
    first, second = two_hosts(flux_command)
    for argv in (["submit", "-n1", "true"], ["batch", "-n1", "--wrap", "true"]):
        one = ended_job(flux_command, argv[0], f"--requires=-host:{first}", *argv[1:])
        assert (one["nodelist"], one["ranks"], one["result"]) == (second, "1", "COMPLETED")


@pytest.mark.parametrize(
    ("argv", "note"),
    [
        ("submit -n1 --requires=host:{0} --requires=-host:{0}",
         "need 1 slot(s) of 1 core(s), only 0 such slot(s) available (total cores: 0)"),
        ("submit -N1 --requires=nosuch", "need 1 exclusive node(s), only 0 eligible"),
        ("batch -N2 -n2 --requires=rank:1 --wrap",
         "need 2 node(s) with 1 cores each, only 1 eligible"),
        ("submit -n1 --cores-per-task=999 --nodes=1",
         "need 1 node(s) with 999 cores each, only 0 eligible"),
        ("submit -n2 -N2 --gpus-per-task=99",
         "need 2 node(s) with 1 cores and 99 GPUs each, only 0 eligible"),
    ],
)  # fmt: skip
def test_what_no_node_can_give_is_taken_and_ended_with_a_note(flux_command, argv, note):
    one = ended_job(flux_command, *argv.format(*two_hosts(flux_command)).split(), "true")
    assert one["exception"] == {
        "occurred": True,
        "severity": 0,
        "type": "alloc",
        "note": f"unsatisfiable request: {note}",
    }
    assert (one["result"], one["returncode"], "waitstatus" in one) == ("FAILED", 1, False)


def two_hosts(flux_command):
    """Give the hosts of ranks 0 and 1."""
    found = []
    for rank in (0, 1):
        one = ended_job(flux_command, "submit", "-n1", f"--requires=rank:{rank}", "true")
        found.append(one["nodelist"])
    return found


def filled(found, hosts):
    return json.loads(json.dumps(found).replace("{0}", hosts[0]).replace("{1}", hosts[1]))
