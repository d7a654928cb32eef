"""The Flux that tests use: a real one where one is on PATH and answers, else the fake."""

import functools
import json
import os
import shutil
import subprocess
from pathlib import Path

FAKES = Path(__file__).resolve().parent / "fakes"


@functools.cache
def has_real_flux():
    if os.environ.get("FAKE_FLUX") or shutil.which("flux") is None:
        return False
    asked = subprocess.run(
        ["flux", "getattr", "size"], capture_output=True, check=False, timeout=30
    )
    return asked.returncode == 0


class FakeFlux:
    """An instance of two nodes, node1 and node2."""

    def __init__(self, folder, monkeypatch):
        self.folder = folder
        folder.mkdir()
        monkeypatch.setenv("FAKE_FLUX", str(folder))
        monkeypatch.setenv("PATH", f"{FAKES}{os.pathsep}{os.environ['PATH']}")

    def lose(self, *hosts):
        """Take nodes away, with what runs on them."""
        made = self.folder / ".lost"
        made.write_text("\n".join(hosts))
        made.replace(self.folder / "lost")

    def close(self):
        subprocess.run(["flux", "cancel", "--all"], check=False, timeout=60, capture_output=True)


def run_flux(*argv, **variables):
    return subprocess.run(
        ["flux", *argv], capture_output=True, text=True, timeout=60, check=False,
        env={**os.environ, **variables},
    )  # fmt: skip


def ended_job(flux_command, *argv):
    """Submit a job, wait for its end, and give what Flux tells of it."""
    number = flux_command(*argv).stdout.strip()
    flux_command("job", "status", number)
    return json.loads(flux_command("jobs", "--json", number).stdout)
