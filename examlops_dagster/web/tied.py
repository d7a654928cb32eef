"""Runs a program that gets SIGTERM when the process that started it dies, also by kill -9.

A program of its own, since no process with threads may do anything between fork and exec.
"""

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1


def main() -> None:
    """Tie this process to its parent, and become the program that the arguments name."""
    parent, *argv = sys.argv[1:]
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != int(parent):  # it died before
        sys.exit(1)
    os.execv(argv[0], argv)  # noqa: S606 - argv, no shell


if __name__ == "__main__":
    main()
