"""platform.db: one database for what Dagster does not keep, on SQLite or Postgres."""
