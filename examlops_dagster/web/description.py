"""The API, described once: requests are checked against this, and its OpenAPI file is made of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from examlops_dagster.core.verdicts import State
from examlops_dagster.errors import UsageError
from examlops_dagster.version import __version__
from examlops_dagster.web.schemas import SCHEMAS, Schema, ref

MAX_LIMIT = 10_000

_SIGNS = str.maketrans(dict.fromkeys("/{}.", ""))
_CODES = {
    400: "The request cannot be carried out as it was written.",
    401: "No token, or a wrong one.",
    403: "The server has no token or is read-only, or policy refuses.",
    404: "Nobody declared that.",
    409: "A part of it cannot be built by anybody, or waits for an approval.",
    503: "The declarations cannot work, or a database cannot be reached.",
}


@dataclass(frozen=True)
class Parameter:
    """One parameter of a request.

    Attributes
    ----------
    schema
        JSON schema: a string, an integer, a boolean, or an array of strings.
    """

    name: str
    description: str
    schema: Schema = field(default_factory=lambda: {"type": "string"})
    where: str = "query"

    def read(self, values: list[str]) -> Any:
        """Read the values that a request gives it.

        Raises
        ------
        UsageError
            With what is allowed.
        """
        kind = self.schema["type"]
        if kind == "array":
            allowed = self.schema["items"].get("enum")
            for value in values:
                if allowed is not None and value not in allowed:
                    raise UsageError(f"{self.name}={value!r} is none of {', '.join(allowed)}")
            return tuple(values)
        if not values:
            return self.schema.get("default")
        value = values[-1]
        if kind == "boolean":
            if value not in ("true", "false"):
                raise UsageError(f"{self.name}={value!r} is neither true nor false")
            return value == "true"
        if kind == "integer":
            least, most = self.schema["minimum"], self.schema["maximum"]
            if not (value.isascii() and value.isdigit() and least <= int(value) <= most):
                raise UsageError(f"{self.name}={value!r} is no whole number from {least} to {most}")
            return int(value)
        allowed = self.schema.get("enum")
        if allowed is not None and value not in allowed:
            raise UsageError(f"{self.name}={value!r} is none of {', '.join(allowed)}")
        return value

    @property
    def openapi(self) -> Schema:
        """As OpenAPI writes it."""
        return {
            "name": self.name,
            "in": self.where,
            "required": self.where == "path",
            "description": self.description,
            "schema": self.schema,
        }


@dataclass(frozen=True)
class Operation:
    """One method of one path.

    Attributes
    ----------
    answer
        Name of the schema of a good answer.
    errors
        Codes of the other answers.
    is_write
        Whether it asks for a build, and so needs the token.
    """

    method: str
    path: str
    summary: str
    answer: str
    parameters: tuple[Parameter, ...] = ()
    errors: tuple[int, ...] = ()
    good: tuple[int, ...] = (200,)
    body: str = ""
    is_write: bool = False

    def read(self, given: Mapping[str, list[str]]) -> dict[str, Any]:
        """Read the query of a request.

        Raises
        ------
        UsageError
            For a value that is not allowed.
        """
        return {
            p.name: p.read(given.get(p.name, [])) for p in self.parameters if p.where == "query"
        }


_FLAG = {"type": "boolean", "default": False}
_NAME = Parameter("name", "Name of an asset; its slashes may stand as they are.", where="path")
_ONE = Parameter("name", "Only the asset of this name.")
_PARTITION = Parameter("partition", "One key of a partitioned asset, or a range.")
_LIMIT = Parameter(
    "limit",
    "How many rows; all by default.",
    {"type": "integer", "minimum": 1, "maximum": MAX_LIMIT},
)
_CURSOR = Parameter("cursor", "Where to go on: `next` of the answer before.")
_STATES = Parameter(
    "state",
    "Only rows in this state; may be repeated.",
    {"type": "array", "items": {"type": "string", "enum": [state.value for state in State]}},
)
_KINDS = Parameter(
    "kind",
    "Only assets of this kind; may be repeated.",
    {"type": "array", "items": {"type": "string"}},
)
_SEARCH = Parameter("q", "Only assets whose name or description holds this text.")
_EXPAND = Parameter(
    "expand",
    "`partitions` gives one row for each partition, as `exa assets status NAME` does.",
    {"type": "string", "enum": ["none", "partitions"], "default": "none"},
)

ASSETS = Operation(
    "get",
    "/api/assets",
    "The assets, what each is made from, and whether it is fresh.",
    "Assets",
    (_ONE, _PARTITION, _STATES, _KINDS, _SEARCH, _EXPAND, _LIMIT, _CURSOR),
    errors=(400, 404),
)
ASSET = Operation(
    "get",
    "/api/assets/{name}",
    "One asset, with its partitions, versions, last job and sinks.",
    "AssetDetail",
    (_NAME,),
    errors=(404,),
)
PLAN = Operation(
    "get",
    "/api/plan",
    "What would be built now, and why; changes nothing.",
    "Plan",
    (
        _ONE,
        _PARTITION,
        Parameter("force", "Also if it is fresh.", _FLAG),
        Parameter("deps", "Also its stale ancestors.", {"type": "boolean", "default": True}),
    ),
    errors=(400, 404),
)
ALIAS = Operation(
    "get",
    "/api/aliases/{name}",
    "A dataset alias: who writes and reads it, and the datasets it was resolved into.",
    "Alias",
    (_NAME,),
    errors=(404,),
)
ORDERS = Operation(
    "get",
    "/api/orders",
    "The requests that need several runs in turn, newest first, for a week after their end.",
    "Orders",
)
ORDER = Operation(
    "get",
    "/api/orders/{id}",
    "One of them: what is still to be launched, what is waited for, and why a launch failed.",
    "Order",
    (Parameter("id", "The `order` of the answer to the request.", where="path"),),
    errors=(404,),
)
HEALTH = Operation(
    "get", "/api/health", "Whether the server answers, and with which code.", "Health"
)
DESCRIPTION = Operation("get", "/api/openapi.json", "This description.", "Anything")
RUN = Operation(
    "post",
    "/api/run",
    "Launch Dagster runs of what is due now.",
    "Launched",
    errors=(400, 401, 403, 404, 409),
    good=(200, 202),
    body="RunRequest",
    is_write=True,
)
GET = Operation(
    "post",
    "/api/get/{name}",
    "Launch Dagster runs that make an asset fresh; nothing where it is.",
    "Launched",
    (_NAME, _PARTITION),
    errors=(400, 401, 403, 404, 409),
    good=(200, 202),
    is_write=True,
)
OPERATIONS = (ASSETS, ASSET, PLAN, ALIAS, ORDERS, ORDER, HEALTH, DESCRIPTION, RUN, GET)


def openapi(prefix: str = "") -> Schema:
    """Give the OpenAPI file of the server.

    Parameters
    ----------
    prefix
        Path under which it is served.
    """
    paths: dict[str, Schema] = {}
    for operation in OPERATIONS:
        paths.setdefault(operation.path, {})[operation.method] = _openapi(operation)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "examlops-dagster",
            "version": __version__,
            "description": "What is stale and why. GET never changes anything; POST exists only "
            "where the server has EXAMLOPS_API_TOKEN.",
        },
        "servers": [{"url": prefix or "/"}],
        "paths": paths,
        "components": {
            "schemas": SCHEMAS,
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
    }


def _openapi(operation: Operation) -> Schema:
    answers = {str(code): _answer("As asked for.", operation.answer) for code in operation.good}
    if operation.method == "get":
        answers["304"] = {"description": "Nothing has changed since the ETag given."}
    codes = (*operation.errors, 503)
    answers |= {str(code): _answer(_CODES[code], "Error") for code in codes}
    found: Schema = {
        "operationId": f"{operation.method}{operation.path.title().translate(_SIGNS)}",
        "summary": operation.summary,
        "parameters": [parameter.openapi for parameter in operation.parameters],
        "responses": answers,
    }
    if operation.body:
        content = {"application/json": {"schema": ref(operation.body)}}
        found["requestBody"] = {"required": False, "content": content}
    if operation.is_write:
        found["security"] = [{"token": []}]
    return found


def _answer(description: str, schema: str) -> Schema:
    content = {"application/json": {"schema": ref(schema)}}
    return {"description": description, "content": content}
