"""Dagster's side of a Pipes session whose context and messages are in the folder of a job."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from dagster import AssetKey, OpExecutionContext, PipesMessageReader, PipesSession
from dagster._core.definitions.metadata.external_metadata import metadata_value_from_external
from dagster._core.pipes.context import PipesMessageHandler, build_external_execution_context_data
from dagster_pipes import PIPES_PROTOCOL_VERSION, PIPES_PROTOCOL_VERSION_FIELD

from examlops_dagster.core.records import Node
from examlops_dagster.dagster_bridge.pipes_said import Said
from examlops_dagster.orchestrators.reported import INFER

_RESULTS = (
    "Did not yield or return expected outputs. Did you forget to return "
    "`.get_materialize_result()`, or to `yield from ....get_results()`, of what `run` gave?"
)


def session_of(
    context: OpExecutionContext, reader: HeardReader, extras: Mapping[str, Any]
) -> PipesSession:
    """Give a session over a job.

    `dagster.open_pipes_session` would warn of every program that does not speak Pipes, and takes
    a message for a success, which is proved otherwise here.
    """
    if context.has_assets_def:
        context.set_requires_typed_event_stream(error_message=_RESULTS)
    handler = PipesMessageHandler(context, reader)
    reader.hand_to(handler)
    return PipesSession(
        context_data=build_external_execution_context_data(context, extras),
        message_handler=handler,
        context_injector_params={},
        message_reader_params={},
        context=context,
    )


class HeardReader(PipesMessageReader):
    """Gives Dagster's session what our own reader read in the folder of the job.

    Logs go on as they come. Results are kept until the end: those of an attempt that the
    scheduler started again do not count.

    Parameters
    ----------
    context
        Of the step.
    node
        Under which the job is listed.
    """

    def __init__(self, context: OpExecutionContext, node: Node) -> None:
        self.said = Said(context.log, node)
        self._context = context
        self._handler: PipesMessageHandler | None = None
        self._opened: Mapping[str, Any] | None = None
        self._closed: Mapping[str, Any] | None = None
        self._results: dict[tuple[Any, ...], tuple[str, Mapping[str, Any]]] = {}

    def hand_to(self, handler: PipesMessageHandler) -> None:
        """Have a handler for what counts in the end."""
        self._handler = handler

    @contextmanager
    def read_messages(self, handler: PipesMessageHandler) -> Iterator[dict[str, Any]]:
        """See PipesMessageReader."""
        self.hand_to(handler)
        yield {}

    @property
    def expected_writer_count(self) -> int:
        """One; that of Dagster's class warns that it is a preview."""
        return 1

    def no_messages_debug_text(self) -> str:
        """See PipesMessageReader."""
        return "The messages are in the folder of the job; a program need not send any."

    def __call__(self, method: str, params: Mapping[str, Any]) -> None:
        """Take one message; see BuildRequest.heard."""
        try:
            self._hear(method, params)
        except Exception as error:  # noqa: BLE001 - a message is no reason to lose a job
            text = f"a message cannot be read ({type(error).__name__}: {error}): {method} {params}"
            self.said.tell(f"[pipes] {text}", "WARNING")

    def _hear(self, method: str, params: Mapping[str, Any]) -> None:
        match method:
            case "opened":
                self._opened = params
            case "closed":
                self._closed = params
            case "restarted":
                self._results.clear()
                self._opened = self._closed = None
                self.said(method, params)
            case "report_asset_materialization" | "report_asset_check":
                self._result(method, params)
            case "report_custom_message":
                self._results[method, len(self._results)] = method, params
            case _:
                self.said(method, params)

    def hand_over(self, *, failed: bool = False) -> None:
        """Give the session what counts; of a program that failed, how it said so."""
        if self._opened is None:
            return
        self._give("opened", {"extras": {}, **self._opened})
        if not failed:
            for method, params in self._results.values():
                self._give(method, params)
        if self._closed is not None:
            self._give("closed", self._closed)

    def _result(self, method: str, params: Mapping[str, Any]) -> None:
        named = params.get("asset_key")
        if self._context.has_assets_def:
            own = self._context.selected_asset_keys
            if named is None and len(own) == 1:
                named = next(iter(own)).to_escaped_user_string()
            if not isinstance(named, str) or AssetKey.from_escaped_user_string(named) not in own:
                text = f"[pipes] {named} is no asset of this step, and left: {params}"
                self.said.tell(text, "WARNING")
                return
        kept = {"data_version": None} if method == "report_asset_materialization" else {}
        kept = {**kept, **params, "asset_key": named, "metadata": _readable(params.get("metadata"))}
        self._results[method, named, params.get("check_name")] = method, kept

    def _give(self, method: str, params: Mapping[str, Any]) -> None:
        assert self._handler is not None
        message: Any = {
            PIPES_PROTOCOL_VERSION_FIELD: PIPES_PROTOCOL_VERSION,
            "method": method,
            "params": params,
        }
        try:
            self._handler.handle_message(message)
        except Exception as error:  # noqa: BLE001 - a message is no reason to lose a job's result
            text = f"[pipes] a message cannot be read ({type(error).__name__}: {error}): {params}"
            self.said.tell(text, "WARNING")


def _readable(metadata: Any) -> Any:
    """Give metadata whose types hold; a value that has not the type it names becomes text."""
    if not isinstance(metadata, dict):
        return None
    found = {}
    for name, value in metadata.items():
        typed = value if isinstance(value, dict) else {"raw_value": value, "type": INFER}
        try:
            metadata_value_from_external(typed["raw_value"], typed["type"])
        except Exception:  # noqa: BLE001 - of Dagster's checks
            typed = {"raw_value": str(typed.get("raw_value", typed)), "type": "text"}
        found[name] = typed
    return found
