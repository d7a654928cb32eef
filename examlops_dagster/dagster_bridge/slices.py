"""What a run that we plan says about itself, in its tags."""

from __future__ import annotations

import json
from collections.abc import Sequence

from examlops_dagster.core.nodes import Nodes
from examlops_dagster.core.plan import Step
from examlops_dagster.dagster_bridge.partitions import run_tags
from examlops_dagster.ledger.tags import FORCED_TAG, SLICE_TAG


def slice_tags(steps: Sequence[Step], existing: Nodes) -> dict[str, str]:
    """Give the tags of the run that builds the steps of one slice.

    Parameters
    ----------
    steps
        Of one slice: assets without partitions, or of one partition space.
    existing
        The partitions that exist.
    """
    tags = {SLICE_TAG: "true"}
    forced = sorted({step.node.asset for step in steps if step.forced})
    if forced:
        tags[FORCED_TAG] = json.dumps(forced)
    chosen: dict[str, list[str]] = {}
    for step in steps:
        chosen.setdefault(step.node.asset, []).append(step.node.partition)
    space = existing.graph.declarations[steps[0].node.asset].partitions
    if space is not None:
        tags.update(run_tags(chosen, space, existing.keys(steps[0].node.asset)))
    return tags
