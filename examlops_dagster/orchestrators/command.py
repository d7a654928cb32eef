"""Runs the program that an asset's ``command`` names in place of its function."""

from __future__ import annotations

import contextlib
import os
import subprocess
import threading
from collections import deque
from typing import IO

from examlops_dagster.formats import dumps
from examlops_dagster.orchestrators.calling import how_it_ended
from examlops_dagster.orchestrators.messages import CommandCall, Failed, Produced

_LAST_LINES = 50


def run_command(call: CommandCall) -> Produced | Failed:
    """Run a program to its end, with its output going where this process's goes."""
    try:
        program = subprocess.Popen(
            call.argv,
            stdin=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            env={**os.environ, **call.environment},
        )
    except (OSError, ValueError) as error:
        return Failed(f"command {call.argv[0]!r} could not be started: {error}")
    lines: deque[bytes] = deque(maxlen=_LAST_LINES)
    # In a thread: something that the program leaves behind may hold its stderr open.
    reader = threading.Thread(target=_copy, args=(program.stderr, lines), daemon=True)
    reader.start()
    code = program.wait()
    reader.join(timeout=1.0)
    if code == 0:
        return Produced(None, None, dumps({"metadata": {}, "events": []}))
    details = b"".join(lines).decode(errors="replace")
    last = next((line.strip() for line in reversed(details.splitlines()) if line.strip()), "")
    end = f"command {how_it_ended(code)}"
    return Failed(f"{end}: {last}" if last else end, details)


def _copy(source: IO[bytes], lines: deque[bytes]) -> None:
    with source:
        for line in source:
            lines.append(line)
            with contextlib.suppress(OSError):
                os.write(2, line)
