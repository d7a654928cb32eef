"""``python -m examlops_dagster.cli`` is ``exa``."""

from examlops_dagster.cli import main

main()
