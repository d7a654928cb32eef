"""The asset page and the JSON API, beside Dagster's own pages."""
