"""The tour of ``make demo``: a model is built, its data changes, the stale slice is rebuilt.

It works in the home of the folder it is started in, and can be repeated: the images then go back
to the first delivery, as one more change.
"""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

import typer

from examlops_dagster.demo.delivery import ALL_IMAGES, FIRST_DELIVERY
from examlops_dagster.settings import MODULES

_BIN = Path(sys.executable).parent
_DELIVERY = "python -m examlops_dagster.demo.delivery"
_TARGET = "digits_report"


def main() -> None:
    """Run the commands of the tour, showing each."""
    os.environ.setdefault(MODULES, "examlops_dagster.demo.assets")
    os.environ["PATH"] = os.pathsep.join((str(_BIN), os.environ.get("PATH", os.defpath)))

    _say("Others deliver images of handwritten digits. A model is to be made from them.")
    _run(f"{_DELIVERY} {FIRST_DELIVERY}")
    if _version("digits"):
        _say("(The tour was here before: that is a change of the images too.)")
        _run("exa assets source-changed digits")
    _run("exa assets graph")
    _run(f"exa assets materialize {_TARGET}")
    _run("exa assets status")

    _say("New images arrive. What was made from the old ones is stale, and nothing else.")
    _run(f"{_DELIVERY} {ALL_IMAGES}")
    _run("exa assets source-changed digits")
    _run("exa assets status")
    _run(f"exa assets plan {_TARGET}")
    _run(f"exa assets materialize {_TARGET}")

    _say("The same images arrive again: the features come out equal, so no model is trained.")
    _run(f"{_DELIVERY} {ALL_IMAGES}")
    _run("exa assets source-changed digits")
    _run(f"exa assets materialize {_TARGET}")
    _run("exa assets status")
    _run("exa assets history digits_model")
    _say("`make dev` shows the same builds in Dagster, with the accuracy of each model.")


def _say(text: str) -> None:
    typer.secho(f"\n# {text}", bold=True)


def _run(command: str) -> None:
    """Show a command and run it; the tour ends with the first one that fails."""
    typer.secho(f"\n$ {command}", fg=typer.colors.CYAN)
    code = subprocess.run(shlex.split(command), check=False).returncode
    if code:
        typer.echo(f"The command ended with exit code {code}; the tour ends here.", err=True)
        sys.exit(code)


def _version(name: str) -> int:
    """Give the version of an asset; 0 before its first build."""
    command = ["exa", "--json", "assets", "status", name]
    told = subprocess.run(command, check=False, capture_output=True, text=True).stdout
    try:
        return int(json.loads(told)[0]["version"])
    except (ValueError, LookupError, TypeError):
        return 0


if __name__ == "__main__":
    main()
