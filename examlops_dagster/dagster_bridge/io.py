"""The I/O manager of our assets, key ``examlops_io``: one file for each data version."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dagster import DagsterInstance, InputContext, IOManager, OutputContext
from dagster._core.definitions.data_version import extract_data_version_from_entry

from examlops_dagster.core.seams import Value
from examlops_dagster.core.versions import content_version
from examlops_dagster.formats import decode, encode
from examlops_dagster.values import FileValues

IO_MANAGER_KEY = "examlops_io"


@dataclass(frozen=True)
class Kept:
    """What the op body hands to the I/O manager: a serialized value and its data version."""

    value: Value
    data_version: str


class ExamlopsIOManager(IOManager):
    """Keeps the values of assets below Dagster's storage folder.

    It stores our assets as the bytes that crossed from the process that built them, and any
    other asset that names it by its own serializer; it loads both.

    Parameters
    ----------
    folder
        Where to keep them; None is ``storage/examlops`` in Dagster's home.
    """

    def __init__(self, folder: str | None = None) -> None:
        self._folder = folder

    def handle_output(self, context: OutputContext, obj: Any) -> None:
        """Write a value to its file."""
        if isinstance(obj, Kept):
            kept = obj
        else:
            value = encode(obj, None)
            kept = Kept(value, content_version(value))
        partition = context.asset_partition_key if context.has_asset_partitions else ""
        store = self.values(context.step_context.instance)
        path = store.keep(context.asset_key.path, partition, kept.data_version, kept.value)
        context.add_output_metadata({"path": str(path), "size": len(kept.value.payload)})

    def load_input(self, context: InputContext) -> Any:
        """Read the value that is recorded last; a dict by key for several partitions."""
        store = self.values(context.instance)
        if not context.has_asset_partitions:
            return self._load(store, context, "")
        keys = list(context.asset_partition_keys)
        if len(keys) == 1:
            return self._load(store, context, keys[0])
        return {key: self._load(store, context, key) for key in keys}

    def values(self, instance: DagsterInstance) -> FileValues:
        """Give the store of an instance."""
        if self._folder is not None:
            return FileValues(Path(self._folder))
        return FileValues(Path(instance.storage_directory()) / "examlops")

    @staticmethod
    def _load(store: FileValues, context: InputContext, partition: str) -> Any:
        # the newest file may be of a build that was killed before it was recorded
        record = context.instance.get_latest_data_version_record(
            context.asset_key, partition_key=partition or None
        )
        stated = extract_data_version_from_entry(record.event_log_entry) if record else None
        value = store.load(context.asset_key.path, partition, stated.value) if stated else None
        value = value or store.load(context.asset_key.path, partition, None)
        if value is None:
            raise FileNotFoundError(
                f"no value of {context.asset_key.to_user_string()} is kept: its function returns "
                "nothing → let it return the value, or AssetOutput(value=...)"
            )
        return decode(value)
