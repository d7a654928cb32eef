"""Dagster's event log: what exists, also when others made it, and what is in flight."""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from datetime import timedelta
from pathlib import Path

from dagster import AssetCheckEvaluation, AssetCheckSeverity, AssetMaterialization

from examlops_dagster.clock import utc_now
from examlops_dagster.core.graph import Graph
from examlops_dagster.core.records import Attempt, BuildState, Node, Read, Record
from examlops_dagster.core.sinks import check_name
from examlops_dagster.ledger.builds import BuildsLedger
from examlops_dagster.ledger.event_log.in_flight import InFlight
from examlops_dagster.ledger.event_log.instance import open_instance
from examlops_dagster.ledger.event_log.taken_over import TakenOver
from examlops_dagster.ledger.outlets import Batch, Outlets
from examlops_dagster.ledger.rows import dump_reads
from examlops_dagster.ledger.sinks import SinkWrite
from examlops_dagster.ledger.tags import (
    BUILD_TAG,
    BUILT_FROM,
    CODE_VERSION_TAG,
    DATA_VERSION_TAG,
    VERSION_TAG,
)
from examlops_dagster.store.engine import Database

LONGEST_SENDING = timedelta(seconds=60)
"""After which nobody is about to store what a build emitted."""


class EventLog(TakenOver, InFlight):
    """Brings platform.db up to date with Dagster's event log, and writes events to it.

    Parameters
    ----------
    instance
        Dagster's instance; its storage may be any.
    database
        platform.db of the same home.
    graph
        Gives the declared names of keys, and what a record made outside was built from.
    """

    def report(
        self,
        ledger: BuildsLedger,
        node: Node,
        data_version: str,
        built_from: Mapping[Node, Read] | None = None,
        code_version: str = "",
    ) -> Record:
        """Record that a node has a content now, by an event without a run.

        The caller holds the claim of the node.

        Parameters
        ----------
        ledger
            Where the attempt is written down.
        data_version
            Identifies the content.
        built_from, code_version
            What it was built from, where that is known.
        """
        read = built_from or {}
        attempt = Attempt(node, secrets.token_hex(16), "", code_version, read, "report")
        ledger.begin(attempt)
        try:
            version = ledger.allot(attempt, data_version)
            self.instance.report_runless_asset_event(
                AssetMaterialization(
                    self.key(node.asset),
                    partition=node.partition or None,
                    metadata={BUILT_FROM: dump_reads(read), "version": version},
                    tags={
                        DATA_VERSION_TAG: data_version,
                        VERSION_TAG: str(version),
                        BUILD_TAG: attempt.build_id,
                        **({CODE_VERSION_TAG: code_version} if code_version else {}),
                    },
                )
            )
        except BaseException as error:
            ledger.fail(attempt, BuildState.FAILED, str(error))
            raise
        return ledger.complete(attempt, version, data_version, {})

    def send(self, batches: Sequence[Batch]) -> None:
        """Store events of datasets and aliases that belong to no run."""
        from examlops_dagster.ledger.event_log.outlets import send_runless  # noqa: PLC0415 - above

        send_runless(self.instance, Outlets(self._database), batches)

    def send_left(self) -> None:
        """Store what builds emitted whose process was killed before it could."""
        self.send(Outlets(self._database).left_unsent(utc_now() - LONGEST_SENDING))

    def report_sink(self, write: SinkWrite) -> None:
        """Report how a sink ended that was written without a build, as the check of its asset."""
        self.instance.report_runless_asset_event(
            AssetCheckEvaluation(
                asset_key=self.key(write.node.asset),
                check_name=check_name(write.number),
                passed=not write.error,
                metadata={"url": write.url, **({"error": write.error} if write.error else {})},
                severity=AssetCheckSeverity.ERROR,
                blocking=False,
                partition=write.node.partition or None,
            )
        )

    def report_outside(self, node: Node, data_version: str) -> None:
        """Report a result of others, whose inputs nobody recorded; the next sync takes it over."""
        self.instance.report_runless_asset_event(
            AssetMaterialization(
                self.key(node.asset),
                partition=node.partition or None,
                tags={DATA_VERSION_TAG: data_version},
            )
        )


def open_event_log(home_folder: Path, database: Database, graph: Graph) -> EventLog:
    """Open Dagster's instance of a home, and give its event log.

    Parameters
    ----------
    home_folder
        ``DAGSTER_HOME``.
    database
        platform.db of that home.
    graph
        Declared names and edges.

    Raises
    ------
    StoreError
        If Dagster's storage cannot be used.
    """
    return EventLog(open_instance(home_folder), database, graph)
