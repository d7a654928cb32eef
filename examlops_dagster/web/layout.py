"""Where the nodes of the graph stand on the page: left to right, each right of what it reads."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

WIDTH, HEIGHT = 232, 54
GAP_ACROSS, GAP_DOWN = 72, 14
MARGIN = 12
SWEEPS = 3


@dataclass(frozen=True)
class Place:
    """Where one node stands.

    Attributes
    ----------
    column
        Longest path from a source.
    x, y
        Upper left corner, in pixels.
    """

    column: int
    row: int

    @property
    def x(self) -> int:
        """Pixels from the left."""
        return MARGIN + self.column * (WIDTH + GAP_ACROSS)

    @property
    def y(self) -> int:
        """Pixels from the top."""
        return MARGIN + self.row * (HEIGHT + GAP_DOWN)


@dataclass(frozen=True)
class Layout:
    """Where every node stands, by name, and how large the drawing is."""

    places: Mapping[str, Place]
    width: int
    height: int


def lay_out(upstreams: Mapping[str, Sequence[str]]) -> Layout:
    """Place the nodes of a graph.

    A column holds what is as far from a source; in it, nodes stand near those that they are
    connected with (the barycentre heuristic), so that few edges cross. O(V log V + E).

    Parameters
    ----------
    upstreams
        Of each name, upstreams first.
    """
    column: dict[str, int] = {}
    downstreams: dict[str, list[str]] = {name: [] for name in upstreams}
    for name, above in upstreams.items():
        column[name] = 1 + max((column[up] for up in above), default=-1)
        for up in above:
            downstreams[up].append(name)
    columns: list[list[str]] = [[] for _ in range(1 + max(column.values(), default=-1))]
    for name, number in column.items():
        columns[number].append(name)
    for names in columns:
        names.sort()
    row: dict[str, float] = {name: n for names in columns for n, name in enumerate(names)}
    for _ in range(SWEEPS):
        for names in columns[1:]:
            _order(names, upstreams, row)
        for names in columns[-2::-1]:
            _order(names, downstreams, row)
    places = {
        name: Place(number, n)
        for number, names in enumerate(columns)
        for n, name in enumerate(names)
    }
    ordered = {name: places[name] for name in upstreams}
    return Layout(
        ordered,
        2 * MARGIN + max(len(columns), 1) * (WIDTH + GAP_ACROSS) - GAP_ACROSS,
        2 * MARGIN + max(map(len, columns), default=1) * (HEIGHT + GAP_DOWN) - GAP_DOWN,
    )


def edge_path(start: Place, end: Place) -> str:
    """Draw an edge, as the ``d`` of an SVG path."""
    x1, y1 = start.x + WIDTH, start.y + HEIGHT // 2
    x2, y2 = end.x, end.y + HEIGHT // 2
    bend = min((x2 - x1) // 2, GAP_ACROSS)
    return f"M{x1} {y1}C{x1 + bend} {y1} {x2 - bend} {y2} {x2} {y2}"


def _order(
    names: list[str], neighbours: Mapping[str, Iterable[str]], row: dict[str, float]
) -> None:
    """Order one column by where the neighbours of its nodes stand."""

    def centre(name: str) -> float:
        rows = [row[other] for other in neighbours[name]]
        return sum(rows) / len(rows) if rows else row[name]

    names.sort(key=lambda name: (centre(name), name))
    row.update((name, n) for n, name in enumerate(names))
