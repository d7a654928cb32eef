"""What workspace.yaml loads: the definitions of the configured modules."""

from examlops_dagster.dagster_bridge.definitions import build_definitions

defs = build_definitions()
