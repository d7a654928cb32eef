"""Dagster's event log, of which platform.db is the digest."""

from examlops_dagster.ledger.event_log.in_flight import IN_FLIGHT
from examlops_dagster.ledger.event_log.log import EventLog, open_event_log

__all__ = ["IN_FLIGHT", "EventLog", "open_event_log"]
