"""Attempts and events as a process of ours stores them, one step at a time."""

import os

from dagster import (
    AssetKey,
    AssetMaterialization,
)

from examlops_dagster.core.records import Attempt, Node, Read
from examlops_dagster.ledger.tags import (
    BUILD_TAG,
    BUILT_FROM,
    DATA_VERSION_TAG,
    VERSION_TAG,
)


def everything(home, modules):
    """All that a verdict rests on."""
    return {
        name: (r.version, r.data_version, r.code_version, r.built_from, r.build_id)
        for name, r in home.records(modules).items()
    }


def attempt_at(home, modules, name):
    read = {} if name == "PM100" else {Node("features"): Read(1, "d")}
    return Attempt(Node(name), os.urandom(8).hex(), "fingerprint", "code", read, "local")


def store_event(home, attempt, version, data_version):
    import json

    reads = [[*node, *read] for node, read in attempt.built_from.items()]
    home.instance.report_runless_asset_event(
        AssetMaterialization(
            AssetKey(attempt.node.asset),
            metadata={BUILT_FROM: json.dumps(reads)},
            tags={
                BUILD_TAG: attempt.build_id,
                VERSION_TAG: str(version),
                DATA_VERSION_TAG: data_version,
            },
        )
    )


def build_between(home, modules, node, data_version, meanwhile):
    """Build a node of ours, while something else happens before its event is stored."""
    project = home.project(modules)
    attempt = attempt_at(home, modules, node.asset)
    project.ledger.claim(node, attempt.build_id)
    project.event_log.sync()
    project.ledger.begin(attempt)
    meanwhile()
    version = project.ledger.allot(attempt, data_version)
    store_event(home, attempt, version, data_version)
    project.ledger.complete(attempt, version, data_version, {})
    project.ledger.release(node, attempt.build_id)
    project.close()
