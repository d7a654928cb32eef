"""JSON schemas of what the API takes and answers, by name."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from examlops_dagster.core.declarations import NodeType
from examlops_dagster.core.plan import Action
from examlops_dagster.core.verdicts import State
from examlops_dagster.ledger.orders import OrderState

Schema = dict[str, Any]


def ref(name: str) -> Schema:
    """Point to one of `SCHEMAS`."""
    return {"$ref": f"#/components/schemas/{name}"}


def _object(required: Mapping[str, Schema], optional: Mapping[str, Schema] | None = None) -> Schema:
    return {
        "type": "object",
        "properties": {**required, **(optional or {})},
        "required": list(required),
    }


def _or_null(kind: str) -> Schema:
    return {"type": [kind, "null"]}


def _words(values: Iterable[str]) -> Schema:
    return {"type": "string", "enum": list(values)}


_TEXT, _NUMBER = {"type": "string"}, {"type": "integer", "minimum": 0}
_BOOLEAN = {"type": "boolean"}
_TEXTS: Schema = {"type": "array", "items": _TEXT}
_COUNTS: Schema = {"type": "object", "additionalProperties": _NUMBER}
_STATE = _words(state.value for state in State)
_ASSET: dict[str, Schema] = {
    "name": _TEXT,
    "partition": _or_null("string"),
    "partitioned": _BOOLEAN,
    "partitions": {"oneOf": [_COUNTS, {"type": "null"}]},
    "kind": _TEXT,
    "nodeType": _words(kind.value for kind in NodeType),
    "role": _words(("undeclared", "source", "root", "derived")),
    "description": _or_null("string"),
    "freshness": _or_null("string"),
    "version": _NUMBER,
    "lastMaterializedAt": _or_null("string"),
    "deps": _TEXTS,
    "dependents": _TEXTS,
    "undeclaredDeps": _TEXTS,
    "fresh": _BOOLEAN,
    "state": _STATE,
    "shown": _TEXT,
    "reasons": _TEXTS,
}
_POLICY = {
    "oneOf": [
        _object(
            {
                "rule": _TEXT,
                "decision": _words(("deny", "require_approval")),
                "passes": _BOOLEAN,
                "approval": _or_null("string"),
                "why": _TEXT,
            }
        ),
        {"type": "null"},
    ]
}
_STEP = {
    "name": _TEXT,
    "partition": _or_null("string"),
    "action": _words(action.value for action in Action),
    "reasons": _TEXTS,
    "policy": _POLICY,
}
_BLOCKED: dict[str, Schema] = {"name": _TEXT, "reason": _TEXT, "policy": _POLICY}
_PLAN = {
    "targets": _TEXTS,
    "steps": {"type": "array", "items": _object(_STEP)},
    "skipped": _TEXTS,
    "blocked": {"type": "array", "items": _object(_BLOCKED)},
}
_ORDER: dict[str, Schema] = {
    "id": _TEXT,
    "names": _TEXTS,
    "partition": _or_null("string"),
    "state": _words(state.value for state in OrderState),
    "runs": {"type": "array", "items": _object({"id": _TEXT, "url": _TEXT})},
    "later": _TEXTS,
    "why": _or_null("string"),
    "failures": _NUMBER,
    "nextAt": _or_null("string"),
    "askedAt": _TEXT,
    "endedAt": _or_null("string"),
}
SCHEMAS: dict[str, Schema] = {
    "Anything": {"type": "object"},
    "Error": _object({"error": _TEXT}),
    "Asset": _object(_ASSET),
    "Assets": _object(
        {
            "assets": {"type": "array", "items": ref("Asset")},
            "counts": _object(
                {"total": _NUMBER, "stale": _NUMBER, "fresh": _NUMBER, "states": _COUNTS}
            ),
            "next": _or_null("string"),
        }
    ),
    "AssetDetail": _object(
        {
            **_ASSET,
            "nodes": {"type": "array", "items": {"type": "object"}},
            "builtFrom": {"type": "array", "items": {"type": "object"}},
            "versions": {"type": "array", "items": {"type": "object"}},
            "lastJob": {"oneOf": [{"type": "object"}, {"type": "null"}]},
            "sinks": {"type": "array", "items": {"type": "object"}},
            "aliases": _TEXTS,
            "order": {"oneOf": [ref("Order"), {"type": "null"}]},
            "links": _object({"asset": _or_null("string"), "run": _or_null("string")}),
            "codeIsOlder": _BOOLEAN,
        }
    ),
    "Plan": _object(_PLAN),
    "Alias": _object(
        {
            "name": _TEXT,
            "match": _or_null("string"),
            "producers": _TEXTS,
            "consumers": _TEXTS,
            "events": {"type": "array", "items": {"type": "object"}},
        }
    ),
    "Health": _object(
        {
            "status": _words(("ok",)),
            "version": _TEXT,
            "dagster": _TEXT,
            "readOnly": _BOOLEAN,
            "canRun": _BOOLEAN,
            "assets": _NUMBER,
            "codeIsOlder": _TEXTS,
            "daemon": _words(("running", "ended", "off")),
        }
    ),
    "Order": _object(_ORDER),
    "Orders": _object({"orders": {"type": "array", "items": ref("Order")}}),
    "RunRequest": _object({}, {"names": _TEXTS}),
    "Launched": _object(
        {
            "runs": {
                "type": "array",
                "items": _object({"id": _TEXT, "url": _TEXT, "assets": _TEXTS}),
            },
            "plan": ref("Plan"),
            "later": _TEXTS,
            "order": _or_null("string"),
            "refused": _TEXTS,
        }
    ),
}
