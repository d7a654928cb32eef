"""Writes what a step built to its sinks, and reports each as an asset check."""

from __future__ import annotations

from typing import Any

from dagster import AssetCheckResult, AssetCheckSeverity, AssetKey

from examlops_dagster.core.declarations import Declaration
from examlops_dagster.core.sinks import check_name
from examlops_dagster.dagster_bridge.build_context import BuildContext
from examlops_dagster.dagster_bridge.products import Product
from examlops_dagster.dagster_bridge.runtime import Runtime
from examlops_dagster.delivery import deliver
from examlops_dagster.formats import decode
from examlops_dagster.ledger.sinks import SinkWrite


def write_sinks(
    context: BuildContext, runtime: Runtime, declaration: Declaration, product: Product
) -> list[SinkWrite]:
    """Write the value of a build to the sinks of its asset; one that fails is told, not raised."""
    node = product.attempt.node
    writes = deliver(
        declaration,
        node,
        product.data_version,
        None if product.value is None else decode(product.value),
        folder=runtime.home.folder,
        writes=runtime.sink_writes,
    )
    for write in writes:
        if write.error:
            context.log.error("Sink %s of %s failed: %s", write.url, node, write.error)
        else:
            context.log.info("Wrote %s to %s", node, write.url)
    return writes


def check_of(key: AssetKey, write: SinkWrite, failed: int = 0) -> AssetCheckResult:
    """Report a sink as an asset check, which does not block what is below.

    Parameters
    ----------
    failed
        Partitions of a range that could not be written.
    """
    metadata: dict[str, Any] = {"url": write.url}
    if write.error:
        metadata["error"] = write.error
    if failed:
        metadata["failed_partitions"] = failed
    return AssetCheckResult(
        passed=not write.error,
        asset_key=key,
        check_name=check_name(write.number),
        severity=AssetCheckSeverity.ERROR,
        metadata=metadata,
    )
