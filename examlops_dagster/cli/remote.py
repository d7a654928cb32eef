"""``exa --url``: asks a running ``exa serve`` over HTTP, with the standard library alone."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from typing import Any
from urllib.parse import urlencode, urlsplit

import typer

from examlops_dagster.cli.common import Options, emit
from examlops_dagster.errors import ExamlopsError, UsageError
from examlops_dagster.settings import API_TOKEN

LIMIT_SECONDS = 60.0
CONNECT_SECONDS = 10.0
PAGE = 5000

Json = dict[str, Any]


class Server:
    """A running ``exa serve``.

    Parameters
    ----------
    url
        ``http://HOST:PORT``, with the path prefix if it has one.

    Raises
    ------
    UsageError
        If it is no such address.
    """

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        try:
            port = parts.port
        except ValueError:
            port = 0
        if parts.scheme not in ("http", "https") or not parts.hostname or port == 0:
            raise UsageError(f"--url {url!r} is not an address such as http://127.0.0.1:3000")
        self._url = url.rstrip("/")
        self._prefix = parts.path.rstrip("/")
        self._kind = HTTPSConnection if parts.scheme == "https" else HTTPConnection
        self._host, self._port = parts.hostname, port

    def status(self, name: str | None, partition: str | None) -> list[Json]:
        """Give a row for each node, as ``exa assets status --json`` has them, and its words."""
        if partition is not None and name is None:
            raise UsageError("--partition needs the name of an asset")
        rows = self._assets(expand="partitions", name=name, partition=partition)
        return [{key: row[key] for key in _STATUS} for row in rows]

    def graph(self) -> tuple[dict[str, list[str]], dict[str, str]]:
        """Give what each asset is made from, and what the graph calls it."""
        rows = self._assets()
        return {r["name"]: r["deps"] for r in rows}, {r["name"]: r["role"] for r in rows}

    def plan(self, name: str | None, partition: str | None, *, force: bool, deps: bool) -> Json:
        """Say what would be built."""
        flags = {"force": str(force).lower(), "deps": str(deps).lower()}
        return self._ask("GET", "/api/plan", {"name": name, "partition": partition, **flags})

    def run(self, names: Sequence[str]) -> Json:
        """Launch what is due."""
        return self._ask("POST", "/api/run", {}, {"names": list(names)})

    def _assets(self, **query: str | None) -> list[Json]:
        found: list[Json] = []
        cursor: str | None = None
        while True:
            page = {**query, "limit": str(PAGE), "cursor": cursor}
            answer = self._ask("GET", "/api/assets", page)
            found += answer["assets"]
            cursor = answer["next"]
            if cursor is None:
                return found

    def _ask(
        self, method: str, path: str, query: Mapping[str, str | None], body: Any = None
    ) -> Json:
        text = urlencode({key: value for key, value in query.items() if value is not None})
        headers: dict[str, str | bytes] = {"Accept": "application/json"}
        token = os.environ.get(API_TOKEN)
        if token and method == "POST":
            headers["Authorization"] = f"Bearer {token}".encode()
        sent = None if body is None else json.dumps(body).encode()
        if sent is not None:
            headers["Content-Type"] = "application/json"
        connection = self._kind(self._host, self._port, timeout=CONNECT_SECONDS)
        try:
            connection.connect()
            if connection.sock is not None:
                connection.sock.settimeout(LIMIT_SECONDS)
            connection.request(method, f"{self._prefix}{path}?{text}", sent, headers)
            response = connection.getresponse()
            code, answer = response.status, response.read()
        except TimeoutError as error:
            raise ExamlopsError(f"{self._url} does not answer in time") from error
        except (OSError, HTTPException) as error:
            raise ExamlopsError(
                f"nobody answers at {self._url} ({error}) → exa serve starts a server"
            ) from error
        finally:
            connection.close()
        return self._read(code, answer)

    def _read(self, code: int, answer: bytes) -> Json:
        try:
            found = json.loads(answer)
        except ValueError:
            found = None
        if not isinstance(found, dict):
            raise ExamlopsError(
                f"{self._url} answers {code}, but not as exa serve does → it ends with the port, "
                "or with the --path-prefix of the server"
            )
        if code in _MISUSES:
            raise UsageError(found.get("error", code))
        if code >= _BAD:
            raise ExamlopsError(str(found.get("error", code)))
        return found


def run_there(
    chosen: Options, names: Sequence[str], orchestrator: str | None, *, local_options: bool
) -> None:
    """Let a server launch what is due, and say which runs these are.

    Raises
    ------
    UsageError
        For options that have no meaning there.
    """
    if orchestrator is not None or local_options:
        raise UsageError(
            "with --url the runs are launched by the server: --orchestrator, --in-process and "
            "--detach are for builds from here"
        )
    url = str(chosen.url)
    answer = Server(url).run(names)
    if chosen.as_json:
        emit(answer)
        return
    for run in answer["runs"]:
        typer.echo(f"Launched {', '.join(run['assets'])}: {_root(url)}{run['url']}")
    if answer["later"]:
        typer.echo(f"  launched when these have ended well: {', '.join(answer['later'])}")
        typer.echo(f"  what becomes of that: {url.rstrip('/')}/api/orders/{answer['order']}")
    if not answer["runs"]:
        typer.echo("Nothing is due.")


def _root(url: str) -> str:
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc}"


_STATUS = (
    "name", "partition", "kind", "version", "fresh", "state", "reasons", "shown", "partitioned",
)  # fmt: skip
_MISUSES = (400, 404, 409)
_BAD = 400
