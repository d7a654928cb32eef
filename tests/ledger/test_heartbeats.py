"""The heartbeat that keeps a claim alive."""

import threading
import time
from contextlib import contextmanager

import pytest
from attempts import A, B
from waiting import wait_until

from examlops_dagster.errors import StoreError
from examlops_dagster.ledger import claims
from examlops_dagster.ledger.claims import EXPIRY_SECONDS
from examlops_dagster.store.engine import Database


@pytest.fixture
def quick(monkeypatch):
    monkeypatch.setattr(claims, "HEARTBEAT_SECONDS", 0.01)


def test_a_claim_is_kept_alive_until_it_is_released(quick, ledger, clock):
    ledger.claim(A, "ours")
    for _ in range(3):
        clock.advance(seconds=EXPIRY_SECONDS - 1)
        wait_until(lambda: ledger.claims()[A].heartbeat_at == clock())
    ledger.release(A, "ours")
    assert ledger.claims() == {}


def test_the_start_of_a_claim_does_not_move_with_its_heartbeat(quick, ledger, clock):
    ledger.claim(A, "ours")
    started = clock()
    clock.advance(seconds=7)
    wait_until(lambda: ledger.claims()[A].heartbeat_at == clock())
    assert ledger.claims()[A].started_at == started


def test_a_heartbeat_that_was_lost_is_followed_by_the_next(
    quick, ledger, any_database, clock, monkeypatch
):
    lost = []
    write = Database.write

    @contextmanager
    def refuse(self):
        if threading.current_thread().name == "examlops-heartbeat" and len(lost) < 2:
            lost.append(1)
            raise StoreError("no connection")
        with write(self) as connection:
            yield connection

    monkeypatch.setattr(Database, "write", refuse)
    ledger.claim(A, "ours")
    clock.advance(seconds=7)
    wait_until(lambda: ledger.claims()[A].heartbeat_at == clock())
    assert len(lost) == 2


def test_nothing_is_written_where_nothing_is_claimed(quick, ledger, monkeypatch):
    written = []
    write = Database.write

    def noted(self):
        written.append(threading.current_thread().name)
        return write(self)

    ledger.claim(A, "ours")
    ledger.release(A, "ours")
    monkeypatch.setattr(Database, "write", noted)
    time.sleep(0.1)
    assert written == []
    ledger.claim(B, "ours too")
    wait_until(lambda: "examlops-heartbeat" in written)


def test_a_closed_ledger_beats_no_more_and_can_claim_again(quick, ledger, clock):
    ledger.claim(A, "ours")
    ledger.close()
    clock.advance(seconds=7)
    time.sleep(0.05)
    assert ledger.claims()[A].heartbeat_at != clock()
    assert ledger.claim(B, "ours too") is None
    wait_until(lambda: ledger.claims()[B].heartbeat_at == clock())
