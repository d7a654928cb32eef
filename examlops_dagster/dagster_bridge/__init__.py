"""Builds Dagster's objects from declarations, and runs slices as Dagster runs."""
