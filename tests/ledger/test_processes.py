"""Processes by which claims, runs and requests know whether somebody is still there."""

import os
import subprocess
import sys

from examlops_dagster.ledger.processes import Process, process_started, same_start


def test_a_process_that_is_not_there_started_never():
    assert process_started(2**22 + 1) == 0.0
    assert process_started(os.getpid()) > 0


def test_a_process_is_read_as_it_was_written():
    here = Process.here()
    read = Process.parse(str(here))
    assert (read.host, read.pid) == (here.host, os.getpid())
    assert same_start(read.started, process_started(os.getpid()))


def test_this_process_is_not_gone():
    assert not Process.here().is_gone


def test_a_process_that_ended_is_gone():
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    there = Process(Process.here().host, child.pid, process_started(child.pid))
    assert not there.is_gone
    child.communicate(timeout=60)
    assert there.is_gone


def test_of_a_process_of_another_host_nobody_knows_that_it_is_gone():
    assert not Process("elsewhere", 2**22 + 1, 1.0).is_gone


def test_who_does_not_pay_for_it_does_not_know_the_start():
    assert Process.here(brief=True).started == 0.0
