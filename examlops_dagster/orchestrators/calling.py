"""Finds a production function by its name, calls it, and takes what it returned apart.

The same in this process, in a worker and in a batch job. Standard library and ``core`` only.
"""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import signal
import sys
import traceback
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType, TracebackType
from typing import Any, NamedTuple

from examlops_dagster.core.aliases import Metadata
from examlops_dagster.core.declarations import AssetOutput, NodeType
from examlops_dagster.core.outlets import OutletEvents
from examlops_dagster.core.records import Node
from examlops_dagster.core.seams import BuildResult, Value
from examlops_dagster.errors import ResultError
from examlops_dagster.formats import encode

_OWN = f"{Path(__file__).parent}/"
_REASON_LENGTH = 2000


@dataclass(frozen=True)
class Outcome:
    """What a production function gave, taken apart.

    Attributes
    ----------
    value
        The serialized value; None when the function stores its result itself.
    data_version
        As the function gave it; None lets the ledger derive it.
    metadata
        Facts for the materialization.
    events
        What a function added to its outlets, or yielded, in order.
    update_detected
        What a sensor said; None for any other node.
    """

    value: Value | None = None
    data_version: str | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict)
    events: tuple[Metadata, ...] = ()
    update_detected: bool | None = None

    def as_result(self, provenance: Mapping[str, str]) -> BuildResult:
        """Give it as an orchestrator has to."""
        return BuildResult(
            self.value,
            self.data_version,
            self.metadata,
            provenance,
            self.update_detected,
            self.events,
        )


class Described(NamedTuple):
    """An exception as text, for another process or a log.

    Attributes
    ----------
    reason
        One line, ``Type: message``.
    details
        The traceback from the user's first frame on.
    """

    reason: str
    details: str


def name_of(function: Callable[..., Any]) -> str | None:
    """Give ``module:qualname`` if that name gives the same object in another process too.

    None for closures, lambdas, instances, what ``__main__`` holds, and functions that hide
    behind another object of the same name.
    """
    module = getattr(function, "__module__", None)
    qualname = getattr(function, "__qualname__", None)
    if not module or not qualname or module == "__main__" or module not in sys.modules:
        return None
    try:
        found = _walk(sys.modules[module], qualname)
    except AttributeError:
        return None
    return f"{module}:{qualname}" if found is function else None


def resolve(name: str, file: str | None = None) -> Callable[..., Any]:
    """Import ``module:qualname``.

    Parameters
    ----------
    name
        As `name_of` gives it.
    file
        Path of the module's source. A module of one part that is not found by its name, or is
        found elsewhere, is loaded from there: it was given to ``exa -f`` or ``dagster -f``.

    Raises
    ------
    ImportError, AttributeError
        When there is no such module, or no such name in it; and whatever importing raises.
    """
    module_name, _, qualname = name.partition(":")
    module = sys.modules.get(module_name)
    if module is None and file is not None and _is_elsewhere(module_name, file):
        module = _load_file(module_name, file)
    function = _walk(module or importlib.import_module(module_name), qualname)
    if not callable(function):
        raise TypeError(f"{name} is a {type(function).__name__} and cannot be called")
    found: Callable[..., Any] = function
    return found


def produce(
    function: Callable[..., Any],
    arguments: Mapping[str, Any],
    *,
    node: Node,
    node_type: NodeType = NodeType.ASSET,
    serializer: str | None = None,
) -> Outcome:
    """Call a production function with keyword arguments and serialize what it returned.

    Raises
    ------
    ResultError
        When what it returned, or yielded, cannot be kept; the text says what can.
    BaseException
        Whatever the function raises.
    """
    outlets = arguments.get("outlet_events")
    events: list[Metadata] = outlets.added if isinstance(outlets, OutletEvents) else []
    returned = function(**arguments)
    if inspect.isgenerator(returned):
        returned = _exhaust(returned, events, node)
    if inspect.iscoroutine(returned) or inspect.isasyncgen(returned):
        if inspect.iscoroutine(returned):
            returned.close()  # else Python warns that it was never awaited
        raise ResultError(
            node.asset,
            "the function is async; call asyncio.run in a plain function instead",
            partition=node.partition,
        )
    output = returned if isinstance(returned, AssetOutput) else AssetOutput(returned)
    update_detected = None
    if node_type is NodeType.SENSOR:
        update_detected = _update_detected(output.value, node)
    try:
        value = None if output.value is None else encode(output.value, serializer)
    except (TypeError, ValueError) as error:
        raise ResultError(node.asset, str(error), partition=node.partition) from error
    return Outcome(value, output.data_version, output.metadata, tuple(events), update_detected)


def describe(error: BaseException) -> Described:
    """Put an exception in words, also one whose ``__str__`` is broken."""
    found: TracebackType | None = error.__traceback__
    while found is not None and _is_ours(found.tb_frame.f_code.co_filename):
        found = found.tb_next
    kind = type(error)
    plain = kind.__module__ in ("builtins", "__main__")
    name = kind.__qualname__ if plain else f"{kind.__module__}.{kind.__qualname__}"
    try:
        lines = str(error).strip().splitlines()
    except Exception:  # noqa: BLE001 - the exception is the user's class
        lines = [f"<{kind.__qualname__}.__str__ failed>"]
    reason = f"{name}: {lines[0]}" if lines else name
    try:
        details = "".join(traceback.format_exception(kind, error, found))
    except Exception:  # noqa: BLE001 - notes and causes are the user's too
        details = reason
    return Described(reason[:_REASON_LENGTH], details)


def import_root(module_name: str, file: str) -> str:
    """Give the folder that has to be on ``sys.path`` for a module to be imported by its name."""
    path = Path(file)
    levels = module_name.count(".") + (path.stem == "__init__")
    return str(path.parents[levels])


def how_it_ended(code: int) -> str:
    """Put the return code of a process in words, as subprocess gives it."""
    if code >= 0:
        return f"ended with exit code {code}"
    try:
        name = signal.Signals(-code).name
    except ValueError:
        name = f"signal {-code}"
    return f"ended by {name}{' (out of memory?)' if name == 'SIGKILL' else ''}"


def _walk(module: ModuleType, qualname: str) -> Any:
    found: Any = module
    for part in qualname.split("."):
        found = getattr(found, part)
    return found


def _is_elsewhere(module_name: str, file: str) -> bool:
    if "." in module_name or not Path(file).is_file():
        return False
    spec = importlib.util.find_spec(module_name)
    return spec is None or (spec.origin is not None and spec.origin != file)


def _load_file(module_name: str, file: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(module_name, file)
    if spec is None or spec.loader is None:
        raise ImportError(f"{file} is not a Python source file", name=module_name, path=file)
    module = importlib.util.module_from_spec(spec)
    sys.modules[module_name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[module_name]
        raise
    return module


def _exhaust(generator: Generator[Any, Any, Any], events: list[Metadata], node: Node) -> Any:
    while True:
        try:
            item = next(generator)
        except StopIteration as stop:
            return stop.value
        if not isinstance(item, Metadata):
            generator.close()
            raise ResultError(
                node.asset,
                f"the function yielded a value of type {type(item).__name__}; it may yield "
                "Metadata(dataset, ...), and its value is what it returns",
                partition=node.partition,
            )
        events.append(item)


def _update_detected(value: Any, node: Node) -> bool:
    match value:
        case (bool(detected), _) if isinstance(value, tuple):
            return detected
        case tuple():
            shown = f"a tuple of ({', '.join(type(part).__name__ for part in value)})"
        case None:
            shown = "nothing"
        case _:
            shown = f"a value of type {type(value).__name__}"
    raise ResultError(
        node.asset,
        "a sensor returns (update_detected, output), a bool and any value; this one returned "
        f"{shown}",
        partition=node.partition,
    )


def _is_ours(filename: str) -> bool:
    return (
        filename.startswith((_OWN, "<frozen importlib", "<frozen runpy"))
        or filename == importlib.__file__
    )
