"""What was built: in platform.db, in Dagster's event log, or in memory for tests."""
