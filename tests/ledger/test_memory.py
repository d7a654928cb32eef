from datetime import timedelta

from attempts import A, attempt

from examlops_dagster.core.records import BuildState, Node
from examlops_dagster.core.seams import Value
from examlops_dagster.ledger.memory import MemoryLedger


def test_attempts_are_kept_with_their_ends_oldest_first(clock):
    ledger = MemoryLedger(clock)
    for build_id in "12":
        ledger.begin(attempt(build_id=build_id))
    assert [state for _, state in ledger.attempts] == [BuildState.RUNNING] * 2
    ledger.fail(attempt(), BuildState.FAILED, "no")
    ledger.complete(attempt(build_id="2"), 1, "d", {})
    assert [(a.build_id, state) for a, state in ledger.attempts] == [
        ("1", BuildState.FAILED),
        ("2", BuildState.SUCCEEDED),
    ]


def test_what_others_report_is_a_record_whose_inputs_nobody_knows(clock):
    ledger = MemoryLedger(clock)
    found = ledger.report(A, "theirs")
    assert ledger.records() == {A: found}
    assert (found.version, found.built_from, found.build_id) == (1, None, "")
    assert found.built_at == clock()


def test_reports_are_numbered_with_builds(clock):
    ledger = MemoryLedger(clock)
    ledger.report(A, "theirs")
    ledger.begin(attempt())
    assert ledger.allot(attempt(), "ours") == 2
    assert ledger.report(A, "theirs").version == 1
    clock.advance(seconds=1)
    assert ledger.report(A, "more").version == 3


def test_values_are_kept_for_those_that_read_them(clock):
    ledger = MemoryLedger(clock)
    ledger.keep(A, Value("json", b"1"))
    assert ledger.value(A) == Value("json", b"1")
    assert ledger.value(Node("b")) is None


def test_a_copy_is_given_and_not_the_ledger_itself(clock):
    ledger = MemoryLedger(clock)
    ledger.report(A, "d")
    ledger.records().clear()
    assert ledger.records()[A].built_at - clock() == timedelta(0)
