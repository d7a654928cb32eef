"""What runs on the node: calls one production function and leaves its result in the job's folder.

``python -m examlops_dagster.schedulers.job --asset NAME --entrypoint MODULE:QUALNAME
--upstream JSON [--folder PATH [--index N]] [--directory PATH]``. It imports neither dagster nor
anything of the databases. The exit code says 0 built, 1 the function raised (or what it returned
cannot be kept), 2 bad arguments, 3 the entrypoint does not resolve.
"""

from __future__ import annotations

import argparse
import atexit
import contextlib
import faulthandler
import json
import logging
import os
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from enum import IntEnum
from pathlib import Path
from typing import Any, TextIO

from examlops_dagster.core.declarations import NodeType
from examlops_dagster.core.declared import DECLARED
from examlops_dagster.core.records import Node
from examlops_dagster.core.seams import Value
from examlops_dagster.errors import ResultError
from examlops_dagster.formats import SUFFIXES, decode, encode
from examlops_dagster.orchestrators.calling import Described, Outcome, describe, produce, resolve
from examlops_dagster.schedulers.folder import JobFolder, read_json, write_json
from examlops_dagster.schedulers.job_pipes import JobPipes
from examlops_dagster.schedulers.whole_numbers import whole_number
from examlops_dagster.settings import HPC_MAX_VALUE
from examlops_dagster.values import write_atomically

MAX_VALUE_BYTES = 1 << 30


class JobExit(IntEnum):
    """Exit codes of the job."""

    BUILT = 0
    RAISED = 1
    BAD_ARGUMENTS = 2
    NOT_RESOLVED = 3


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> Any:
        _complain(message)
        raise SystemExit(JobExit.BAD_ARGUMENTS)


def main(argv: Sequence[str] | None = None) -> int:
    """Run one job; gives its exit code."""
    try:
        given = _arguments(argv)
        upstream = _upstream(given.upstream)
        call = _call(given)
    except ValueError as error:
        _complain(str(error))
        return JobExit.BAD_ARGUMENTS
    _settle_in(given, call)
    with contextlib.suppress(ValueError, OSError):  # a stderr without a file
        faulthandler.enable()
        # who ends it at its limit sends SIGTERM: say where it was
        faulthandler.register(signal.SIGTERM, all_threads=True, chain=True)
    with JobPipes(_complain) as pipes:
        return _run(given, upstream, call, pipes)


def _run(
    given: argparse.Namespace, upstream: dict[str, Any], call: Mapping[str, Any], pipes: JobPipes
) -> int:
    node = Node(given.asset, call.get("partition", ""))
    folder = None if given.folder is None else JobFolder(Path(given.folder), given.index)
    try:
        function = resolve(given.entrypoint, call.get("file"))
    except BaseException as error:  # noqa: BLE001 - importing runs the user's code
        found = _described(error)
        reason = f"{given.entrypoint} does not resolve: {found.reason}"
        pipes.failed(error, reason)
        _failed(folder, Described(reason, found.details), reason)
        return JobExit.NOT_RESOLVED
    _say(f"{node}: calling {given.entrypoint}")
    try:
        code_version = _code_version(function, given.asset)
        arguments = {**upstream, **_values(folder, call)}
        pid = os.getpid()
        try:
            outcome = produce(
                function,
                arguments,
                node=node,
                node_type=NodeType(call.get("node_type", NodeType.ASSET.value)),
                serializer=call.get("serializer"),
            )
        finally:
            if os.getpid() != pid:  # the function forked, and this is the child
                os._exit(1)
        if folder is not None:
            _keep(folder, outcome, code_version, node)
    except ResultError as error:
        found = Described(error.reason, error.details)
        pipes.failed(error, error.reason)
        _failed(folder, found, f"{node}: {found.reason}", unusable=True)
        return JobExit.RAISED
    except BaseException as error:  # noqa: BLE001 - sys.exit() in a function is its failure
        found = _described(error)
        pipes.failed(error, found.reason)
        _failed(folder, found, f"{node}: {found.reason}")
        return JobExit.RAISED
    _say(f"{node}: built")
    return JobExit.BUILT


def _arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = _Parser(prog="examlops_dagster.schedulers.job", allow_abbrev=False)
    parser.add_argument("--asset", required=True)
    parser.add_argument("--entrypoint", required=True)
    parser.add_argument("--upstream", default="{}")
    parser.add_argument("--folder")
    parser.add_argument("--index", type=int)
    parser.add_argument("--directory")
    given = parser.parse_args(argv)
    module, colon, qualname = given.entrypoint.partition(":")
    parts = [*module.split("."), *qualname.split(".")]
    if not colon or not all(part.isidentifier() for part in parts):
        raise ValueError(f"--entrypoint {given.entrypoint!r} is not MODULE:QUALNAME")
    return given


def _upstream(text: str) -> dict[str, Any]:
    """Read the versions of upstreams: an integer each, or one for each key."""
    try:
        found = json.loads(text)
    except ValueError as error:
        raise ValueError(f"--upstream is not JSON: {error}") from error
    if not isinstance(found, dict):
        raise ValueError("--upstream is not a JSON object")  # noqa: TRY004 - text, not a type
    for name, version in found.items():
        several = version.values() if isinstance(version, dict) else [version]
        if not all(type(v) is int for v in several):
            raise ValueError(f"--upstream: the version of {name!r} is not an integer")
    return found


def _call(given: argparse.Namespace) -> Mapping[str, Any]:
    """Read what the submitter wrote about the call; nothing for a job without a folder."""
    if given.folder is None:
        return {}
    path = JobFolder(Path(given.folder), given.index).inputs / "call.json"
    found = read_json(path)
    if not isinstance(found, dict):
        raise ValueError(f"{path} cannot be read")  # noqa: TRY004 - of a file, not a type
    return found


def _settle_in(given: argparse.Namespace, call: Mapping[str, Any]) -> None:
    """Have the import path and the working directory that the function has elsewhere."""
    here = str(Path.cwd())
    if sys.path and sys.path[0] in ("", here) and given.folder is not None:
        del sys.path[0]  # of `python -m`; the job's folder, in which no module of the user is
    sys.path[:0] = [root for root in call.get("roots", ()) if root not in sys.path]
    if given.directory is not None:
        try:
            os.chdir(given.directory)
        except OSError as error:
            _complain(f"not in {given.directory} as its submitter, but in {here} ({error})")


def _values(folder: JobFolder | None, call: Mapping[str, Any]) -> dict[str, Any]:
    """Give the arguments that stand in files: plain ones as they are, values with a serializer."""
    given = dict(call.get("arguments", {}))
    for name, how in call.get("values", {}).items():
        assert folder is not None
        given[name] = decode(Value(how["format"], (folder.inputs / how["file"]).read_bytes()))
    return given


def _keep(folder: JobFolder, outcome: Outcome, code_version: str, node: Node) -> None:
    """Write the result; result.json is last, and its presence says that the rest is there."""
    folder.outputs.mkdir(mode=0o700, exist_ok=True)
    files: dict[str, dict[str, str]] = {}
    named: dict[str, Value] = {}
    if outcome.value is not None:
        _check_size(outcome.value, node)
        named["value"] = outcome.value
    if outcome.metadata or outcome.events:
        extras = {"metadata": dict(outcome.metadata), "events": list(outcome.events)}
        named["extras"] = encode(extras)
    for name, value in named.items():
        file = f"{name}{SUFFIXES[value.format]}"
        write_atomically(folder.outputs / file, value.payload)
        files[name] = {"file": file, "format": value.format}
    result = {
        "data_version": outcome.data_version,
        "update_detected": outcome.update_detected,
        "code_version": code_version,
        "files": files,
    }
    write_json(folder.outputs / "result.json", result)


def max_value_bytes(environment: Mapping[str, str]) -> int:
    """Give the limit of a value that crosses the border of a job."""
    return whole_number(environment, HPC_MAX_VALUE, MAX_VALUE_BYTES)


def _check_size(value: Value, node: Node) -> None:
    limit = max_value_bytes(os.environ)
    if len(value.payload) > limit:
        raise ResultError(
            node.asset,
            f"its value has {len(value.payload)} bytes, more than {limit} "
            f"({HPC_MAX_VALUE}); write it to a file, return nothing or "
            "AssetOutput(data_version=...), and let what is below use deps",
            partition=node.partition,
        )


def _code_version(function: Callable[..., Any], asset: str) -> str:
    """Give the code version of what was imported here; empty if it cannot be told."""
    try:
        from examlops_dagster.fingerprint import code_version  # noqa: PLC0415 - may be missing

        declared = [d for d in getattr(function, DECLARED, ()) if d.name == asset]
        return code_version(declared[-1]) if declared else ""
    except Exception:  # noqa: BLE001 - it is a check, not the build
        return ""


def _described(error: BaseException) -> Described:
    """Put an exception in words, from the user's first frame on."""
    found = error.__traceback__
    if found is not None and found.tb_frame.f_code.co_filename == __file__:
        error = error.with_traceback(found.tb_next)
    return describe(error)


def _failed(
    folder: JobFolder | None,
    found: Described,
    said: str,
    *,
    unusable: bool = False,
) -> None:
    _complain(said)
    if found.details:
        _write(sys.stderr, found.details)
    if folder is not None:
        with contextlib.suppress(OSError):
            folder.outputs.mkdir(mode=0o700, exist_ok=True)
            error = {"reason": found.reason, "details": found.details, "unusable": unusable}
            write_json(folder.outputs / "error.json", error)


def _say(text: str) -> None:
    _write(sys.stdout, f"[asset-job] {text}")


def _complain(text: str) -> None:
    _write(sys.stderr, f"[asset-job] {text}")


def _write(stream: TextIO | None, text: str) -> None:
    """Write a line; a log that the function closed, or that is full, makes no build fail."""
    with contextlib.suppress(OSError, ValueError):
        print(text, file=stream, flush=True)


class _Ending:
    """Ends this process once Python has done all it has to do at its end, and C has not.

    Destructors of libraries abort now and then (those of Arrow in C++, with a thread of its own
    left), after the result is there: a job that built would be one that failed. What is registered
    first is called last, so this is made before the user's code is imported.
    """

    def __init__(self) -> None:
        self.code: int | None = None
        self._pid = os.getpid()
        atexit.register(self._end)

    def _end(self) -> None:
        if self.code is None or os.getpid() != self._pid:
            return
        logging.shutdown()  # registered before this, when it was imported
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(Exception):  # the function may have closed or replaced it
                stream.flush()
        os._exit(self.code)


if __name__ == "__main__":
    ending = _Ending()
    ending.code = main()
    sys.exit(ending.code)
