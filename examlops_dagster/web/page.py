"""The page ``/build/assets``, rendered here; a little script brings it to life."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from examlops_dagster.core.verdicts import State
from examlops_dagster.web.api import as_bytes, detail, matches
from examlops_dagster.web.layout import HEIGHT, WIDTH, Layout, Place, edge_path, lay_out
from examlops_dagster.web.moment import Moment
from examlops_dagster.web.rows import Row

FOLDER = Path(__file__).parent
STATIC = FOLDER / "static"
NAME_SHOWN, STATE_SHOWN = 28, 34
FITTING = 24
"""Characters that surely have room in a node; longer lines are squeezed into it."""
CONTENT_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
    "connect-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
)
HEADERS = {
    "Content-Security-Policy": CONTENT_POLICY,
    "Referrer-Policy": "same-origin",
    "X-Frame-Options": "DENY",
}

_MARKS = {
    State.FRESH.value: "✓",
    State.RUNNABLE.value: "↻",
    State.WAITING_FOR_SCHEDULE.value: "◷",
    State.WAITING_FOR_UPSTREAM.value: "⇠",
    State.WAITING_FOR_REQUEST.value: "✋",
    State.RUNNING.value: "▶",
    State.FAILED.value: "✗",
    State.UNDECLARED.value: "?",
}


@dataclass(frozen=True)
class Drawing:
    """The part of the page that changes only with the graph.

    Attributes
    ----------
    structure
        Identifies names and edges: a page that shows another one has to be drawn anew.
    edges
        All edges, as the ``d`` of one SVG path.
    """

    structure: str
    layout: Layout
    edges: str
    positions: Mapping[str, int]

    @staticmethod
    @lru_cache(maxsize=2)
    def of(upstreams: tuple[tuple[str, tuple[str, ...]], ...]) -> Drawing:
        """Draw a graph; the last ones are kept."""
        graph = dict(upstreams)
        layout = lay_out(graph)
        places = layout.places
        edges = "".join(
            edge_path(places[up], places[name]) for name, above in graph.items() for up in above
        )
        structure = hashlib.sha256(repr(upstreams).encode("utf-8", "replace")).hexdigest()[:16]
        return Drawing(structure, layout, edges, {name: n for n, name in enumerate(graph)})


def drawing_of(moment: Moment) -> Drawing:
    """Draw the graph of a moment."""
    return Drawing.of(tuple((n, tuple(row["deps"])) for n, row in moment.rows.assets.items()))


@dataclass(frozen=True)
class Cell:
    """One node as the template shows it."""

    number: int
    row: Row
    place: Place
    upstreams: str
    hidden: bool

    @property
    def href(self) -> str:
        """Where a click without script leads."""
        return _link(self.row["name"])

    @property
    def mark(self) -> str:
        """A sign of the state, beside its word."""
        return _MARKS.get(self.row["state"], "")

    @property
    def name(self) -> str:
        """The name, as far as there is room."""
        return shortened(self.row["name"], NAME_SHOWN)

    @property
    def words(self) -> str:
        """Kind and state, as far as there is room."""
        return shortened(f"{self.row['kind']} · {self.row['shown']}", STATE_SHOWN)

    @property
    def squeezed(self) -> dict[str, bool]:
        """Which of the two lines may be too wide for the node."""
        return {"name": len(self.name) > FITTING, "words": len(self.words) + 2 > FITTING + 6}

    @property
    def label(self) -> str:
        """What a screen reader says."""
        return f"{self.row['name']}, {self.row['kind']}, {self.row['shown']}"


def render(moment: Moment, prefix: str, query: Mapping[str, Any], *, older: list[str]) -> bytes:
    """Render the page.

    Parameters
    ----------
    prefix
        Path under which the server is reached.
    query
        ``q``, ``kind`` and ``state`` as in the API, and ``asset`` for the one whose details show.
    older
        Assets whose file was edited after the server loaded it.
    """
    drawing = drawing_of(moment)
    rows = moment.rows.assets
    cells = [
        Cell(
            n,
            row,
            drawing.layout.places[name],
            " ".join(str(drawing.positions[dep]) for dep in row["deps"]),
            not matches(row, query["q"], query["kind"])
            or bool(query["state"] and row["state"] not in query["state"]),
        )
        for n, (name, row) in enumerate(rows.items())
    ]
    chosen = query["asset"]
    return (
        _environment()
        .get_template("assets.html")
        .render(
            prefix=prefix,
            query=query,
            cells=cells,
            drawing=drawing,
            node={"width": WIDTH, "height": HEIGHT},
            counts=moment.rows.counts,
            kinds=sorted({row["kind"] for row in rows.values()}),
            states=[(state.value, state.shown) for state in State if state is not State.HISTORICAL],
            older=older,
            asset=detail(moment, chosen, prefix, older=chosen in older) if chosen in rows else None,
        )
        .encode("utf-8", "replace")
    )


def render_detail(moment: Moment, name: str, prefix: str, *, older: bool) -> bytes:
    """Render what the page shows of the asset that was chosen.

    Raises
    ------
    UnknownAssetError
        With the nearest names.
    """
    asset = detail(moment, name, prefix, older=older)
    template = _environment().get_template("detail.html")
    return template.render(asset=asset, prefix=prefix).encode("utf-8", "replace")


def live(moment: Moment) -> bytes:
    """Give what can change on the page while the graph stays the same, in the order of its rows."""
    return as_bytes(
        {
            "structure": drawing_of(moment).structure,
            "counts": moment.rows.counts,
            "nodes": [
                [
                    row["state"],
                    _MARKS.get(row["state"], ""),
                    row["shown"],
                    row["version"],
                    "; ".join(row["reasons"]),
                    row["kind"],
                ]
                for row in moment.rows.assets.values()
            ],
        }
    )


def shortened(text: str, size: int) -> str:
    """Cut a text to a size, and say so."""
    return text if len(text) <= size else f"{text[: size - 1]}…"


def _link(name: str) -> str:
    """Give the address of an asset on the page."""
    return f"?{urlencode({'asset': name})}#detail"


@lru_cache(maxsize=1)
def _environment() -> Environment:
    found = Environment(
        loader=FileSystemLoader(FOLDER / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    found.filters["link"] = _link
    return found
