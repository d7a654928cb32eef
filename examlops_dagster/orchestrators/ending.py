"""Ends a process with all that it started."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time

import psutil

_KILL_SECONDS = 10.0
"""How long to wait for what got SIGKILL: a process in an uninterruptible wait cannot go."""


def end_tree(process: subprocess.Popen[bytes], grace_seconds: float) -> None:
    """End a process, its group and its descendants, those in other sessions too.

    Parameters
    ----------
    process
        Leader of its own process group.
    grace_seconds
        Between SIGTERM and SIGKILL.
    """
    # Collected first: a process whose parent is gone is no longer found below it.
    tree = _descendants(process.pid)
    try:
        end_group(process.pid, signal.SIGTERM)
        for child in tree:
            if _group(child) != process.pid:
                _send(child, signal.SIGTERM)
        deadline = time.monotonic() + grace_seconds
        while time.monotonic() < deadline and _alive(process, tree):
            time.sleep(0.01)
    finally:  # an interrupt while we wait must not leave anything behind
        deadline = time.monotonic() + _KILL_SECONDS
        while time.monotonic() < deadline and _alive(process, tree):
            tree |= {below for child in list(tree) for below in _below(child)}
            tree |= _descendants(process.pid) if process.poll() is None else set()
            for child in tree:
                _send(child, signal.SIGKILL)
            end_group(process.pid, signal.SIGKILL)
            time.sleep(0.005)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(1.0)


def _alive(process: subprocess.Popen[bytes], tree: set[psutil.Process]) -> bool:
    return process.poll() is None or any(_runs(child) for child in tree)


def _runs(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.Error:
        return False


def _descendants(pid: int) -> set[psutil.Process]:
    try:
        return _below(psutil.Process(pid))
    except psutil.Error:
        return set()


def _below(process: psutil.Process) -> set[psutil.Process]:
    try:
        return set(process.children(recursive=True))
    except psutil.Error:
        return set()


def _group(process: psutil.Process) -> int:
    try:
        return os.getpgid(process.pid)
    except OSError:
        return 0


def _send(process: psutil.Process, number: signal.Signals) -> None:
    with contextlib.suppress(psutil.Error):
        process.send_signal(number)


def end_group(group: int, number: signal.Signals) -> None:
    """Send a signal to a process group that may be gone."""
    with contextlib.suppress(OSError):
        os.killpg(group, number)
