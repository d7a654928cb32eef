"""The JSON API: reads from the present moment, and hands requests for builds on."""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any
from urllib.parse import quote

from starlette.requests import Request
from starlette.responses import Response

from examlops_dagster.core.declarations import Declaration, NodeType
from examlops_dagster.core.graph import key_path
from examlops_dagster.core.jobs import HpcJob
from examlops_dagster.core.records import Node
from examlops_dagster.errors import UnknownAssetError, UsageError
from examlops_dagster.ledger.orders import Order, Orders, OrderState
from examlops_dagster.project.foreseen import foreseen
from examlops_dagster.project.views import event_as_json, history_json, plan_json
from examlops_dagster.web.description import Operation
from examlops_dagster.web.launch import ACTOR, SOURCE
from examlops_dagster.web.moment import Moment
from examlops_dagster.web.rows import Row
from examlops_dagster.web.runs import RefusedError

SHOWN_VERSIONS = 20
MAX_NODES = 10_000
_KEPT_ANSWERS = 32


class Answers:
    """Answers of one server: with an ETag, and kept as long as the moment they are made from."""

    def __init__(self) -> None:
        self._kept: OrderedDict[tuple[int, str], tuple[str, bytes]] = OrderedDict()

    def kept(self, moment: Moment, request: Request, make: Any, media_type: str) -> Response:
        """Give what ``make`` gives, or what it gave at the same moment.

        Parameters
        ----------
        make
            Called without arguments; gives the bytes of the answer.
        """
        key = (moment.number, str(request.url))
        found = self._kept.get(key)
        if found is None:
            body: bytes = make()
            found = self._kept[key] = (tag_of(body), body)
            while len(self._kept) > _KEPT_ANSWERS:
                self._kept.popitem(last=False)
        return tagged(request, found[1], media_type, found[0])


def tag_of(body: bytes) -> str:
    """Give the ETag of an answer: equal for equal content."""
    return f'"{hashlib.sha256(body).hexdigest()[:32]}"'


def tagged(request: Request, body: bytes, media_type: str, tag: str = "") -> Response:
    """Answer with an ETag, or that nothing has changed."""
    tag = tag or tag_of(body)
    headers = {"ETag": tag, "Cache-Control": "no-cache", "X-Content-Type-Options": "nosniff"}
    known = request.headers.get("if-none-match", "")
    if known.strip() == "*" or tag in {t.strip().removeprefix("W/") for t in known.split(",")}:
        return Response(status_code=304, headers=headers)
    return Response(body, media_type=media_type, headers=headers)


def as_bytes(value: Any) -> bytes:
    """Write JSON."""
    return json.dumps(value, ensure_ascii=False, default=str).encode("utf-8", "replace")


def problem(code: int, text: str, **headers: str) -> Response:
    """Answer that something is wrong."""
    body = as_bytes({"error": text})
    return Response(
        body, code, {"X-Content-Type-Options": "nosniff", **headers}, "application/json"
    )


def read_query(operation: Operation, request: Request) -> dict[str, Any]:
    """Read the query of a request.

    Raises
    ------
    UsageError
        For a value that is not allowed.
    """
    given: dict[str, list[str]] = {}
    for name, value in request.query_params.multi_items():
        given.setdefault(name, []).append(value)
    return operation.read(given)


def assets(moment: Moment, query: dict[str, Any]) -> dict[str, Any]:
    """Give the rows that a query asks for.

    Raises
    ------
    UnknownAssetError, UsageError
        For a name, a partition or a cursor that nobody knows.
    """
    rows = list(_rows(moment, query))
    total = len(rows)
    start = _position(rows, query["cursor"]) if query["cursor"] else 0
    limit = query["limit"] or total
    page = rows[start : start + limit]
    following = _cursor(page[-1]) if page and start + limit < total else None
    return {"assets": page, "counts": moment.rows.counts, "next": following}


def _rows(moment: Moment, query: dict[str, Any]) -> Iterable[Row]:
    names: Iterable[str] = moment.rows.assets
    wanted: set[str | None] | None = None
    expand = query["expand"] == "partitions"
    if query["name"] is not None:
        known(moment, query["name"])
        names = [query["name"]]
    if query["partition"] is not None:
        if query["name"] is None:
            raise UsageError("partition needs the name of an asset: name=...")
        nodes = moment.nodes_of(query["name"], query["partition"])
        wanted, expand = {node.partition for node in nodes}, True
    for name in names:
        asset = moment.rows.assets[name]
        if not matches(asset, query["q"], query["kind"]):
            continue
        for row in moment.rows.by_partition(name) if expand else (asset,):
            if query["state"] and row["state"] not in query["state"]:
                continue
            if wanted is None or row["partition"] in wanted:
                yield row


def matches(row: Row, text: str | None, kinds: Sequence[str]) -> bool:
    """Tell whether an asset is one that somebody looks for."""
    if kinds and row["kind"] not in kinds:
        return False
    wanted = (text or "").casefold()
    return wanted in row["name"].casefold() or wanted in (row["description"] or "").casefold()


def known(moment: Moment, name: str) -> Declaration:
    """Give a declaration, also of an upstream that nobody declared itself.

    Raises
    ------
    UnknownAssetError
        With the nearest names.
    """
    declaration = moment.graph.declarations.get(name)
    if declaration is None:
        raise UnknownAssetError(name, moment.graph.declarations)
    return declaration


def detail(moment: Moment, name: str, prefix: str, *, older: bool) -> dict[str, Any]:
    """Give all that is known of one asset.

    Parameters
    ----------
    prefix
        Path under which the server is reached.
    older
        Whether its file was edited after the server loaded it.

    Raises
    ------
    UnknownAssetError
        With the nearest names.
    """
    declaration = known(moment, name)
    builds = moment.ledger.history(None, name, SHOWN_VERSIONS)
    jobs = moment.jobs.listed(asset=name, limit=1)
    run_id = next((build.run_id for build in builds if build.run_id), "")
    nodes = [verdict.status.node for verdict in moment.rows.verdicts[name]]
    return {
        **moment.rows.assets[name],
        "nodes": [verdict.row for verdict in moment.rows.verdicts[name][:MAX_NODES]],
        "builtFrom": _built_from(moment, nodes),
        "versions": [
            {**history_json(build), "runUrl": _run_url(prefix, build.run_id)} for build in builds
        ],
        "lastJob": _job(jobs[0]) if jobs else None,
        "sinks": _sinks(moment, declaration, nodes),
        "aliases": _aliases(moment, declaration),
        "order": _order_of(moment, name, prefix),
        "links": {"asset": _asset_url(prefix, declaration), "run": _run_url(prefix, run_id)},
        "codeIsOlder": older,
    }


def _built_from(moment: Moment, nodes: Sequence[Node]) -> list[dict[str, Any]]:
    """Say what the latest build read of each upstream, and what that is at now."""
    records, latest = moment.snapshot().records, _latest(moment, nodes)
    if latest is None:
        return []
    return [
        {
            "name": upstream.asset,
            "partition": upstream.partition or None,
            "version": read.version,
            "currentVersion": records[upstream].version if upstream in records else 0,
        }
        for upstream, read in (records[latest].built_from or {}).items()
    ]


def _job(job: HpcJob) -> dict[str, Any]:
    return {
        "id": job.job_id or None,
        "scheduler": job.scheduler,
        "cluster": job.cluster or None,
        "state": job.state,
        "reason": job.reason or None,
        "partition": job.node.partition or None,
        "submittedAt": job.submitted_at.isoformat(),
        "startedAt": job.started_at.isoformat() if job.started_at else None,
        "endedAt": job.ended_at.isoformat() if job.ended_at else None,
        "exitCode": job.exit_code,
        "folder": job.folder,
    }


def _sinks(moment: Moment, declaration: Declaration, nodes: Sequence[Node]) -> list[dict[str, Any]]:
    """Say how the last write of each sink ended: of a key where it failed, else of the latest."""
    failed = moment.failed_sinks()
    writes = [write for node in nodes for write in failed.get(node, ())]
    latest = _latest(moment, nodes)
    if declaration.sinks and latest is not None:
        writes += moment.sink_writes.of(latest)
    found = []
    for number, sink in enumerate(declaration.sinks, 1):
        write = next((w for w in writes if w.number == number), None)
        found.append(
            {
                "url": write.url if write else sink.url,
                "partition": (write.node.partition or None) if write else None,
                "error": (write.error or None) if write else None,
                "writtenAt": write.written_at.isoformat() if write else None,
            }
        )
    return found


def _latest(moment: Moment, nodes: Sequence[Node]) -> Node | None:
    """Give the node that was built last."""
    records = moment.snapshot().records
    built = [(records[node].built_at, node) for node in nodes if node in records]
    return max(built)[1] if built else None


def _aliases(moment: Moment, declaration: Declaration) -> list[str]:
    """Give the aliases that a node writes or reads."""
    declarations = moment.graph.declarations
    named = [outlet.name for outlet in (*declaration.outlets, *declaration.inlets)]
    named += [edge.name for edge in declaration.upstreams]
    return [
        name
        for name in dict.fromkeys(named)
        if name in declarations and declarations[name].node_type is NodeType.ALIAS
    ]


def alias(moment: Moment, name: str) -> dict[str, Any]:
    """Give what is known of an alias.

    Raises
    ------
    UnknownAssetError
        For a name that is no alias.
    """
    declarations = moment.graph.declarations
    found = declarations.get(name)
    if found is None or found.node_type is not NodeType.ALIAS:
        aliases = [n for n, d in declarations.items() if d.node_type is NodeType.ALIAS]
        raise UnknownAssetError(name, aliases)
    events = moment.outlets.events(name, alias=True, limit=SHOWN_VERSIONS)
    return {
        "name": name,
        "match": found.match or None,
        "producers": sorted(dict.fromkeys(edge.name for edge in found.upstreams)),
        "consumers": sorted(moment.graph.downstreams[name]),
        "events": [event_as_json(event) for event in events[::-1]],
    }


def orders(moment: Moment, prefix: str) -> dict[str, Any]:
    """Give what became of the requests that need several runs in turn, newest first."""
    found = Orders(moment.database).listed()
    return {"orders": [_order_json(order, prefix) for order in found]}


def order(moment: Moment, order_id: str, prefix: str) -> dict[str, Any]:
    """Give one of them.

    Raises
    ------
    RefusedError
        If there is none of that id, or none any more.
    """
    found = Orders(moment.database).named(order_id)
    if found is None:
        text = f"there is no order {order_id!r} (any more) → GET {prefix}/api/orders"
        raise RefusedError(404, text)
    return _order_json(found, prefix)


def _order_of(moment: Moment, name: str, prefix: str) -> dict[str, Any] | None:
    """Give the latest request that still is to launch an asset, or that gave up to."""
    for found in Orders(moment.database).listed():
        if name in found.assets:
            given_up = found.state is OrderState.GIVEN_UP
            return (
                None
                if given_up and moment.rows.assets[name]["fresh"]
                else _order_json(found, prefix)
            )
    return None


def _order_json(order: Order, prefix: str) -> dict[str, Any]:
    def text(moment: datetime | None) -> str | None:
        return None if moment is None else moment.isoformat()

    return {
        "id": order.id,
        "names": list(order.names),
        "partition": order.partition,
        "state": order.state.value,
        "runs": [{"id": run_id, "url": _run_url(prefix, run_id)} for run_id in order.runs],
        "later": order.assets,
        "why": order.why or None,
        "failures": order.failures,
        "nextAt": text(order.next_at),
        "askedAt": text(order.asked_at),
        "endedAt": text(order.ended_at),
    }


def plan(moment: Moment, query: dict[str, Any]) -> dict[str, Any]:
    """Say what a request would build.

    Raises
    ------
    UnknownAssetError, UsageError
        For a name or partition that nobody knows.
    """
    names = [query["name"]] if query["name"] is not None else []
    if query["partition"] is not None and not names:
        raise UsageError("partition needs the name of an asset: name=...")
    found = moment.plan(
        names, partition=query["partition"], force=query["force"], deps=query["deps"]
    )
    return plan_json(found, foreseen(moment, found, actor=ACTOR, source=SOURCE))


def _asset_url(prefix: str, declaration: Declaration) -> str:
    """Give Dagster's own page of an asset."""
    parts = "/".join(quote(part, safe="") for part in key_path(declaration))
    return f"{prefix}/assets/{parts}"


def _run_url(prefix: str, run_id: str) -> str | None:
    return f"{prefix}/runs/{quote(run_id, safe='')}" if run_id else None


def _cursor(row: Row) -> str:
    text = json.dumps([row["name"], row["partition"]])
    return base64.urlsafe_b64encode(text.encode()).decode()


def _position(rows: Sequence[Row], cursor: str) -> int:
    """Give the position behind the row that a cursor names."""
    try:
        last = json.loads(base64.urlsafe_b64decode(cursor.encode()))
    except (ValueError, binascii.Error):
        last = None
    for position, row in enumerate(rows, 1):
        if [row["name"], row["partition"]] == last:
            return position
    raise UsageError(f"cursor={cursor!r} leads nowhere (any more) → begin again without it")
