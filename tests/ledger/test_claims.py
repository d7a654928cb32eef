"""Claims among processes, and of other hosts."""

import os
import signal
import socket

from attempts import A, put_claim
from waiting import wait_until

from examlops_dagster.ledger.claims import EXPIRY_SECONDS
from examlops_dagster.ledger.processes import process_started


def test_a_claim_is_exclusive_among_processes(claimer, real):
    held = real.claim(A, "ours")
    assert (held.pid, held.token, held.run_id) == (claimer.pid, "theirs", "their run")
    assert real.holds() == {}


def test_kill_9_of_the_claimer_frees_the_claim_at_once(claimer, real):
    claimer.send_signal(signal.SIGKILL)
    claimer.wait()
    assert real.claims() == {}
    assert real.claim(A, "ours") is None


def test_a_killed_claimer_that_nobody_waited_for_is_gone_too(claimer, real):
    claimer.send_signal(signal.SIGKILL)
    wait_until(lambda: not real.claims())
    assert claimer.returncode is None


def test_a_claim_of_another_host_is_alive_by_its_heartbeat(any_database, ledger, clock):
    put_claim(any_database, clock, age=EXPIRY_SECONDS - 1)
    assert ledger.claims()[A].host == "elsewhere"
    assert ledger.claim(A, "ours").token == "theirs"


def test_a_claim_of_another_host_expires_with_its_heartbeat(any_database, ledger, clock):
    put_claim(any_database, clock, age=EXPIRY_SECONDS + 1)
    assert ledger.claims() == {}
    assert ledger.claim(A, "ours") is None
    assert ledger.claims()[A].token == "ours"


def test_who_comes_back_late_cannot_release_the_claim_of_another(any_database, ledger, clock):
    put_claim(any_database, clock, age=EXPIRY_SECONDS + 1)
    ledger.claim(A, "ours")
    ledger.release(A, "theirs")
    assert ledger.claims()[A].token == "ours"


def test_a_pid_that_was_given_anew_is_not_the_claimer(any_database, ledger, clock):
    long_ago = process_started(os.getpid()) - 1000
    here = {"host": socket.gethostname(), "pid": os.getpid()}
    put_claim(any_database, clock, **here, pid_started=long_ago)
    assert ledger.claims() == {}


def test_a_clock_that_was_set_does_not_end_a_claim(any_database, ledger, clock):
    shifted = process_started(os.getpid()) + 2
    here = {"host": socket.gethostname(), "pid": os.getpid()}
    put_claim(any_database, clock, **here, pid_started=shifted)
    assert set(ledger.claims()) == {A}


def test_a_claim_of_this_host_lasts_as_long_as_its_process(any_database, ledger, clock):
    here = {"host": socket.gethostname(), "pid": os.getpid()}
    put_claim(any_database, clock, **here, pid_started=process_started(os.getpid()))
    clock.advance(seconds=100 * EXPIRY_SECONDS)  # it stood still, as after Ctrl-Z
    assert ledger.claim(A, "ours").token == "theirs"


def test_a_claim_whose_ledger_was_closed_expires_in_a_living_process(any_database, ledger, clock):
    ledger.claim(A, "ours")
    ledger.close()
    assert set(ledger.claims()) == {A}
    clock.advance(seconds=EXPIRY_SECONDS + 1)
    assert ledger.claims() == {}


def test_a_claim_is_ours_until_another_takes_it(any_database, ledger, clock):
    put_claim(any_database, clock, age=EXPIRY_SECONDS + 1)
    assert ledger.is_claimed(A, "theirs")
    ledger.claim(A, "ours")
    assert (ledger.is_claimed(A, "theirs"), ledger.is_claimed(A, "ours")) == (False, True)
    ledger.release(A, "ours")
    assert not ledger.is_claimed(A, "theirs")
