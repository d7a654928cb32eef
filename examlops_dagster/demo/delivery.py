"""Plays the outside world of the demo: whoever delivers images of handwritten digits.

The images are the 1,797 of the UCI data set "Optical Recognition of Handwritten Digits" that
scikit-learn ships (8 by 8 pixels, values 0 to 16). Every fifth is held out for testing and is
delivered once; the others arrive in deliveries that grow::

    python -m examlops_dagster.demo.delivery 400
"""

from __future__ import annotations

import argparse
import csv
import os
import tempfile
from collections.abc import Sequence
from pathlib import Path

import typer

from examlops_dagster.settings import DEMO_DATA

FIRST_DELIVERY = 400
"""Images in the first delivery."""

ALL_IMAGES = 1438
"""Images that there are to deliver, those held out apart."""

_HELD_OUT_EVERY = 5


def delivered(name: str) -> Path:
    """Give the path of a CSV file of images; made as first delivered where there is none.

    Parameters
    ----------
    name
        ``digits``, or ``holdout`` for the images that are held out.
    """
    path = folder() / f"{name}.csv"
    if not path.exists():
        deliver(name, FIRST_DELIVERY)
    return path


def deliver(name: str, images: int) -> Path:
    """Write a CSV file of images anew, a row for each, and give its path.

    Parameters
    ----------
    name
        ``digits``, or ``holdout`` for the images that are held out.
    images
        How many of ``digits`` are in it, the oldest first; ``holdout`` is always all of them.
    """
    from sklearn.datasets import load_digits  # noqa: PLC0415 - heavy, and optional

    data = load_digits()
    rows = [
        (number, int(label), *map(int, pixels))
        for number, (label, pixels) in enumerate(zip(data.target, data.data, strict=True))
        if (number % _HELD_OUT_EVERY == _HELD_OUT_EVERY - 1) == (name == "holdout")
    ]
    if name != "holdout":
        rows = rows[:images]
    into = folder()
    into.mkdir(parents=True, exist_ok=True)
    (into / ".gitignore").write_text("*\n")
    path = into / f"{name}.csv"
    with tempfile.NamedTemporaryFile("w", dir=into, newline="", delete=False) as file:
        writer = csv.writer(file)
        writer.writerow(("image", "label", *(f"pixel_{n}" for n in range(64))))
        writer.writerows(rows)
    Path(file.name).replace(path)  # a reader sees one delivery or the next, never half of one
    return path


def folder() -> Path:
    """Give the folder of the files: ``EXAMLOPS_DEMO_DATA``, else ``data`` beside this module."""
    return Path(os.environ.get(DEMO_DATA) or Path(__file__).parent / "data")


def main(arguments: Sequence[str] | None = None) -> None:
    """Deliver as many images as the command line says."""
    parser = argparse.ArgumentParser(
        prog="python -m examlops_dagster.demo.delivery", description="Deliver images of digits."
    )
    parser.add_argument("images", type=int, help=f"how many in all, up to {ALL_IMAGES}")
    images = parser.parse_args(arguments).images
    if not 1 <= images <= ALL_IMAGES:
        parser.error(f"{images} is not from 1 to {ALL_IMAGES}")
    path = deliver("digits", images)
    typer.echo(f"{images} images delivered to {os.path.relpath(path)}")


if __name__ == "__main__":
    main()
