"""Opens Dagster's instance, and says what is wrong where it cannot be opened."""

from __future__ import annotations

from pathlib import Path

from dagster import DagsterInstance

from examlops_dagster.errors import StoreError
from examlops_dagster.home import INSTANCE_FILE

LONGEST_WHY = 400
"""Characters: Dagster lists all that its file may say."""


def open_instance(home_folder: Path) -> DagsterInstance:
    """Open the instance of a home, and see that its storage answers.

    Dagster opens the parts of its storage at their first use, in the midst of a request.

    Raises
    ------
    StoreError
        If dagster.yaml cannot be read, or the storage that it names cannot be used.
    """
    try:
        instance = DagsterInstance.from_config(str(home_folder))
        try:
            instance.get_run_ids(limit=1)
            instance.event_log_storage.get_maximum_record_id()
        except BaseException:
            instance.dispose()
            raise
    except Exception as error:
        settings = home_folder / INSTANCE_FILE
        where = f"{settings} says where it is" if settings.exists() else f"it is in {home_folder}"
        raise StoreError(f"cannot open Dagster's storage ({where}): {_why(error)}") from error
    return instance


def _why(error: BaseException) -> str:
    """Give the first cause in one line; SQLAlchemy has the driver's words beside its own."""
    while error.__cause__ is not None:
        error = error.__cause__
    text = " ".join(str(getattr(error, "orig", None) or error).split())
    text = text or type(error).__name__
    return text if len(text) <= LONGEST_WHY else f"{text[:LONGEST_WHY]}..."
