"""Tags and metadata by which events and runs of Dagster are known as ours; imports no dagster."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from examlops_dagster.ledger.processes import Process

BUILD_TAG = "examlops/build"
VERSION_TAG = "examlops/version"
OUTLET_TAG = "examlops/outlet"
"""Build that emitted the event of a dataset or alias, which its ledger knows already."""

BUILT_FROM = "examlops/built_from"
SLICE_TAG = "examlops/slice"
FORCED_TAG = "examlops/forced"
KEYS_TAG = "examlops/keys"
"""Asset to ``[first, last]`` ranges of its keys, where a run is not about its whole range."""

ACTOR_TAG = "examlops/actor"
"""Who asked for a run."""

ORCHESTRATOR_TAG = "examlops/orchestrator"
IN_PROCESS_TAG = "examlops/in_process"
"""How the request for a run wants its functions called, whatever the assets declare."""

PROCESS_TAG = "examlops/process"
"""``host:pid:started`` of the process that executes a run of the command line."""

DATA_VERSION_TAG = "dagster/data_version"
CODE_VERSION_TAG = "dagster/code_version"


def chosen_keys(tags: Mapping[str, str], name: str, keys: Sequence[str]) -> Sequence[str]:
    """Give those of a run's keys that it is about for an asset.

    Parameters
    ----------
    tags
        Of the run.
    name
        Of the asset.
    keys
        Of the run's range, in order.
    """
    chosen = tags.get(KEYS_TAG)
    if chosen is None:
        return keys
    position = {key: n for n, key in enumerate(keys)}
    return [
        key
        for first, last in json.loads(chosen).get(name, [])
        if first in position and last in position
        for key in keys[position[first] : position[last] + 1]
    ]


def process_tag() -> str:
    """Describe this process, so that others can tell whether it still lives."""
    return str(Process.here())
