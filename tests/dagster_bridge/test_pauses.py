"""Threads that wait: interrupted by their pauses, few of them busy at once."""

import os
import signal
import threading
import time

import pytest
from dagster import DagsterExecutionInterruptedError
from waiting import PATIENCE_SECONDS

from examlops_dagster.dagster_bridge.interrupts import noted_signals
from examlops_dagster.dagster_bridge.one_at_a_time import OneAtATime
from examlops_dagster.dagster_bridge.pauses import (
    PAUSES_A_SECOND,
    Stop,
    Waiter,
    launching,
    long_wait,
    pause,
    stop_here,
)


def in_thread(work):
    ends = []

    def run():
        try:
            ends.append(work())
        except BaseException as error:  # noqa: BLE001 - looked at by the test
            ends.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    return thread, ends


def test_outside_of_a_waiting_thread_a_pause_is_a_sleep():
    started = time.monotonic()
    pause(0.05)
    assert time.monotonic() - started >= 0.05
    assert stop_here() is None


def test_a_stop_is_raised_by_the_pause_at_once_and_once():
    stop, waits = Stop(), threading.Event()

    def work():
        with Waiter(stop).at_work():
            try:
                waits.set()
                pause(600)
            except DagsterExecutionInterruptedError:
                assert stop_here() is stop
                pause(0.01)  # what it does to end its job may pause as well
                return stop.is_meant
        return None

    thread, ends = in_thread(work)
    assert waits.wait(PATIENCE_SECONDS)
    started = time.monotonic()
    stop.ask(meant=True)
    stop.ask(meant=False)
    thread.join(PATIENCE_SECONDS)
    assert time.monotonic() - started < 300
    assert ends == [True]


def test_nothing_is_begun_after_a_stop():
    stop = Stop()
    stop.ask(meant=False)

    def work():
        with Waiter(stop, threading.Semaphore(1)).at_work(), long_wait(pauses=True):
            return "begun"

    thread, ends = in_thread(work)
    thread.join(PATIENCE_SECONDS)
    assert isinstance(ends[0], DagsterExecutionInterruptedError)


@pytest.mark.parametrize("pauses", [True, False])
def test_who_waits_keeps_nobody_from_being_busy(pauses):
    stop, turns, busy, most = Stop(), threading.BoundedSemaphore(2), [], []
    all_wait = threading.Barrier(6)

    def work():
        with Waiter(stop, turns).at_work():
            busy.append(1)
            most.append(len(busy))
            time.sleep(0.02)
            busy.pop()
            with long_wait(pauses=pauses):
                if pauses:
                    pause(0.3)
                else:
                    all_wait.wait(PATIENCE_SECONDS)
            busy.append(1)
            most.append(len(busy))
            busy.pop()
        return "done"

    started = [in_thread(work) for _ in range(6)]
    for thread, _ in started:
        thread.join(PATIENCE_SECONDS)
    assert [ends for _, ends in started] == [["done"]] * 6
    assert max(most) <= 2
    assert turns.acquire(blocking=False)
    assert turns.acquire(blocking=False)


def test_who_waited_goes_on_while_all_that_begin_are_busy():
    stop, turns, first = Stop(), threading.BoundedSemaphore(1), threading.BoundedSemaphore(1)
    begins, goes_on = threading.Event(), threading.Event()

    def first_to_begin():
        with Waiter(stop, turns, first).at_work(), long_wait(pauses=True):
            pause(0.01)
            assert begins.wait(PATIENCE_SECONDS)
            pause(0.01)
            goes_on.set()

    def begins_for_ever():
        with Waiter(stop, turns, first).at_work(), long_wait(pauses=True):
            begins.set()
            assert goes_on.wait(PATIENCE_SECONDS)

    threads = [in_thread(first_to_begin), in_thread(begins_for_ever)]
    for thread, _ in threads:
        thread.join(PATIENCE_SECONDS)
    assert [ends for _, ends in threads] == [[None], [None]]


def test_in_a_crowd_pauses_are_longer_but_not_those_of_an_end():
    class Recorded(Stop):
        def wait(self, seconds):
            paused.append(seconds)
            return False

    def work():
        with Waiter(Recorded(), crowd=lambda: PAUSES_A_SECOND).at_work():
            pause(0.1)
            pause(0.2)

    paused = []
    thread, ends = in_thread(work)
    thread.join(PATIENCE_SECONDS)
    assert ends == [None]
    assert paused == [0.1, 1.0]


def test_signals_are_noted_whoever_handles_them():
    handled = []
    former = signal.signal(signal.SIGTERM, lambda *_: handled.append("own"))
    try:
        with noted_signals() as signals:
            assert not signals.see()
            os.kill(os.getpid(), signal.SIGTERM)
            assert signals.see()
            assert not signals.see()
            assert signals.number == signal.SIGTERM
        assert handled == ["own"]
    finally:
        signal.signal(signal.SIGTERM, former)


def test_in_another_thread_no_signal_is_noted():
    def work():
        with noted_signals() as signals:
            return signals.see()

    thread, ends = in_thread(work)
    thread.join(PATIENCE_SECONDS)
    assert ends == [False]


def test_a_function_of_a_plain_asset_lets_others_be_called_while_it_waits_for_a_job():
    rests, calling = threading.Event(), []
    functions = OneAtATime(rests.set)
    stop, waits = Stop(), threading.Event()
    waiter = Waiter(stop, threading.Semaphore(1), functions=functions)

    def work():
        with waiter.at_work():
            calling.append("before")
            with launching():
                waits.set()
                pause(600)

    with functions.claimed() as holds:
        assert not holds  # it was counted, and goes first
    thread, ends = in_thread(work)
    assert waits.wait(PATIENCE_SECONDS)
    assert rests.wait(PATIENCE_SECONDS)
    with functions.claimed() as holds:
        assert holds
        stop.ask(meant=False)
        thread.join(0.3)
        assert thread.is_alive()  # what it does about an interrupt is code of the user too
    thread.join(PATIENCE_SECONDS)
    assert isinstance(ends[0], DagsterExecutionInterruptedError)
    with functions.claimed() as holds:
        assert holds


def test_a_plain_asset_launches_nothing_after_a_stop():
    stop = Stop()
    waiter = Waiter(stop, threading.Semaphore(1), functions=OneAtATime(lambda: None))
    stop.ask(meant=True)

    def work():
        with waiter.at_work(), launching():
            return "launched"

    thread, ends = in_thread(work)
    thread.join(PATIENCE_SECONDS)
    assert isinstance(ends[0], DagsterExecutionInterruptedError)
