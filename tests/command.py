"""The command ``exa`` of the environment that runs the tests."""

import os
import subprocess
import sys
from pathlib import Path

COMMAND = Path(sys.executable).with_name("exa")
LIMIT_SECONDS = 300  # only what hangs takes as long


def exa(*words, **environment):
    """Run it in this folder and environment, however it ends."""
    return subprocess.run(
        [COMMAND, *words],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=LIMIT_SECONDS,
        check=False,
    )
