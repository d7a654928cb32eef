"""Status, plan and graph as lines, from JSON: that of this process, or that of a server.

Nothing of a project is imported here: ``exa --url`` pays for none.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from examlops_dagster.cli.common import DASH
from examlops_dagster.shown import Row, name_of, summary_why, summary_words

STATUS_HEAD = ("Asset", "Version", "State", "Why")
PLAN_HEAD = ("Asset", "Action", "Why")


def status_table(rows: Iterable[Row], *, by_key: bool) -> Iterator[list[str]]:
    """Give the lines of a status; a partitioned asset is one line unless ``by_key``."""
    by_asset: dict[str, list[Row]] = {}
    for row in rows:
        by_asset.setdefault(row["name"], []).append(row)
    for name, found in by_asset.items():
        if found[0]["partitioned"] and not by_key:
            version = max(row["version"] for row in found)
            why = "".join(summary_why(found)) or DASH
            yield [name, str(version or DASH), summary_words(found), why]
            continue
        for row in found:
            why = "; ".join(row["reasons"]) or DASH
            yield [name_of(row), str(row["version"] or DASH), row["shown"], why]


def plan_rows(plan: Mapping[str, Any]) -> list[list[str]]:
    """Give the lines of a plan."""
    rows = [[name_of(s), s["action"], _why_planned(s)] for s in plan["steps"]]
    rows += [[name, "skip", "fresh"] for name in plan["skipped"]]
    rows += [[blocked["name"], "blocked", blocked["reason"]] for blocked in plan["blocked"]]
    return rows


def _why_planned(step: Mapping[str, Any]) -> str:
    policy = step.get("policy")
    return "; ".join([*step["reasons"], *([policy["why"]] if policy else ())]) or DASH


def graph_line(name: str, upstreams: Iterable[str], role: str) -> str:
    """Give the line of one asset; ``role`` says what it is where it has no upstream."""
    above = ", ".join(upstreams)
    return f"{name} ← {above}" if above else f"{name} ({role})"
