"""Dagster's web server with our routes before its own."""

from __future__ import annotations

import hmac
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import dagster
from dagster._core.workspace.context import IWorkspaceProcessContext
from dagster_webserver.webserver import DagsterWebserver
from starlette.concurrency import run_in_threadpool
from starlette.convertors import Convertor, register_url_convertor
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Mount, Route
from starlette.staticfiles import StaticFiles

from examlops_dagster.errors import ExamlopsError, UnknownAssetError, UsageError
from examlops_dagster.version import __version__
from examlops_dagster.web import api, description, page
from examlops_dagster.web.api import Answers, as_bytes, problem, read_query, tagged
from examlops_dagster.web.launch import Launcher
from examlops_dagster.web.moment import Moment, Moments
from examlops_dagster.web.runs import RefusedError

MAX_BODY = 1_000_000
JSON = "application/json"
HTML = "text/html; charset=utf-8"


@dataclass
class Site:
    """What the routes of one server share.

    Attributes
    ----------
    token
        What a request that builds has to send; None refuses all of them.
    read_only
        Refuse them in any case.
    daemon
        Says whether Dagster's daemon runs: ``running``, ``ended`` or ``off``.
    """

    moments: Moments
    launcher: Launcher
    token: str | None = None
    read_only: bool = False
    daemon: Callable[[], str] = lambda: "off"
    answers: Answers = field(default_factory=Answers)


class _Text(Convertor[str]):
    """The rest of a path, whatever it holds: that of Starlette ends at a newline."""

    regex = r"[\s\S]*"

    def convert(self, value: str) -> str:
        return value

    def to_string(self, value: str) -> str:
        return value


register_url_convertor("text", _Text())


class ExamlopsWebserver(DagsterWebserver[Any, Any]):
    """Dagster's own pages, and ours at ``/build/assets`` and ``/api``.

    Parameters
    ----------
    process_context
        Dagster's workspace.
    site
        What our routes share.
    prefix
        Path under which everything is served; empty for none.
    """

    def __init__(
        self, process_context: IWorkspaceProcessContext[Any], site: Site, prefix: str = ""
    ) -> None:
        self._site = site
        super().__init__(process_context, prefix, live_data_poll_rate=2000)

    def build_routes(self) -> list[BaseRoute]:
        """Give our routes, then Dagster's, whose last one takes every path."""
        ours = _Routes(self._site, self._app_path_prefix).all()
        theirs: list[Any] = super().build_routes()  # type: ignore[no-untyped-call]
        if not self._app_path_prefix:
            return [*ours, *theirs]
        mounted, *rest = theirs
        return [Mount(self._app_path_prefix, routes=[*ours, *(mounted.routes or ())]), *rest]


class _Routes:
    def __init__(self, site: Site, prefix: str) -> None:
        self._site = site
        self._prefix = prefix

    def all(self) -> list[BaseRoute]:
        return [
            Route("/build/assets", self._read(self._page)),
            Route("/build/assets/detail", self._read(self._detail)),
            Route("/build/assets/live", self._read(self._live)),
            Mount("/build/static", StaticFiles(directory=page.STATIC)),
            Route("/api/assets", self._read(self._assets)),
            Route("/api/assets/{name:text}", self._read(self._asset)),
            Route("/api/plan", self._read(self._plan)),
            Route("/api/aliases/{name:text}", self._read(self._alias)),
            Route("/api/orders", self._read(self._orders)),
            Route("/api/orders/{id:text}", self._read(self._order)),
            Route("/api/health", self._read(self._health)),
            Route("/api/openapi.json", self._read(self._description)),
            Route("/api/run", self._run, methods=["POST"]),
            Route("/api/get/{name:text}", self._get, methods=["POST"]),
            Route("/api/{path:text}", self._nothing),
        ]

    def _read(self, answer: Callable[[Request], Response]) -> Callable[[Request], Any]:
        """Make a route of what answers in a thread, with our errors as answers."""

        async def route(request: Request) -> Response:
            return await run_in_threadpool(_guarded, answer, request)

        return route

    def _kept(self, request: Request, make: Callable[[Moment], Any]) -> Response:
        moment = self._site.moments.now()
        return self._site.answers.kept(moment, request, lambda: as_bytes(make(moment)), JSON)

    def _assets(self, request: Request) -> Response:
        query = read_query(description.ASSETS, request)
        return self._kept(request, lambda moment: api.assets(moment, query))

    def _asset(self, request: Request) -> Response:
        name = request.path_params["name"]
        found = api.detail(self._site.moments.now(), name, self._prefix, older=self._is_older(name))
        return tagged(request, as_bytes(found), JSON)

    def _plan(self, request: Request) -> Response:
        query = read_query(description.PLAN, request)
        return self._kept(request, lambda moment: api.plan(moment, query))

    def _alias(self, request: Request) -> Response:
        found = api.alias(self._site.moments.now(), request.path_params["name"])
        return tagged(request, as_bytes(found), JSON)

    def _orders(self, request: Request) -> Response:
        found = api.orders(self._site.moments.now(), self._prefix)
        return tagged(request, as_bytes(found), JSON)

    def _order(self, request: Request) -> Response:
        found = api.order(self._site.moments.now(), request.path_params["id"], self._prefix)
        return tagged(request, as_bytes(found), JSON)

    def _health(self, request: Request) -> Response:
        site = self._site
        found = {
            "status": "ok",
            "version": __version__,
            "dagster": dagster.__version__,
            "readOnly": site.read_only,
            "canRun": bool(site.token) and not site.read_only,
            "assets": len(site.moments.now().rows.assets),
            "codeIsOlder": site.moments.code_is_older(),
            "daemon": site.daemon(),
        }
        return tagged(request, as_bytes(found), JSON)

    def _description(self, request: Request) -> Response:
        return tagged(request, as_bytes(description.openapi(self._prefix)), JSON)

    def _page(self, request: Request) -> Response:
        given = request.query_params
        query = {
            "q": given.get("q", ""),
            "kind": tuple(filter(None, given.getlist("kind"))),
            "state": tuple(filter(None, given.getlist("state"))),
            "asset": given.get("asset", ""),
        }
        older = self._site.moments.code_is_older()
        moment = self._site.moments.now()
        body = page.render(moment, self._prefix, query, older=older)
        return _with_policy(tagged(request, body, HTML))

    def _detail(self, request: Request) -> Response:
        name = request.query_params.get("asset", "")
        moment = self._site.moments.now()
        body = page.render_detail(moment, name, self._prefix, older=self._is_older(name))
        return _with_policy(tagged(request, body, HTML))

    def _live(self, request: Request) -> Response:
        moment = self._site.moments.now()
        return self._site.answers.kept(moment, request, lambda: page.live(moment), JSON)

    def _is_older(self, name: str) -> bool:
        return name in self._site.moments.code_is_older()

    async def _nothing(self, request: Request) -> Response:
        return problem(404, f"there is nothing at {request.url.path} → /api/openapi.json")

    async def _run(self, request: Request) -> Response:
        refused = self._refused(request)
        if refused is not None:
            return refused
        body = await request.body()
        if len(body) > MAX_BODY:
            return problem(400, f"the request is longer than {MAX_BODY} bytes")
        return await run_in_threadpool(_guarded, lambda _: self._launch_due(body), request)

    async def _get(self, request: Request) -> Response:
        refused = self._refused(request)
        if refused is not None:
            return refused
        return await run_in_threadpool(_guarded, self._launch_one, request)

    def _launch_due(self, body: bytes) -> Response:
        launched = self._site.launcher.run(_names_in(body), self._prefix)
        return _launched(launched)

    def _launch_one(self, request: Request) -> Response:
        query = read_query(description.GET, request)
        name = request.path_params["name"]
        return _launched(self._site.launcher.get(name, query["partition"], self._prefix))

    def _refused(self, request: Request) -> Response | None:
        """Refuse a request that builds, unless it may."""
        site = self._site
        if site.read_only:
            return problem(403, "this server is read-only (exa serve --read-only)")
        if not site.token:
            return problem(
                403, "this server starts no builds → start exa serve with EXAMLOPS_API_TOKEN set"
            )
        scheme, _, given = request.headers.get("authorization", "").partition(" ")
        # compared as bytes: a str with other characters than ASCII is refused by compare_digest
        sent, token = given.strip().encode("latin-1", "replace"), site.token.encode()
        if scheme.lower() == "bearer" and hmac.compare_digest(sent, token):
            return None
        return problem(
            401,
            "no token, or a wrong one → Authorization: Bearer TOKEN, that of EXAMLOPS_API_TOKEN",
            **{"WWW-Authenticate": "Bearer"},
        )


def _guarded(answer: Callable[[Request], Response], request: Request) -> Response:
    try:
        return answer(request)
    except UnknownAssetError as error:
        return problem(404, str(error))
    except RefusedError as error:
        return problem(error.code, str(error))
    except UsageError as error:
        return problem(400, str(error))
    except ExamlopsError as error:  # a page that is open shows the code, and asks again
        return problem(503, str(error))


def _with_policy(response: Response) -> Response:
    response.headers.update(page.HEADERS)
    return response


def _launched(found: dict[str, Any]) -> Response:
    return Response(as_bytes(found), 202 if found["runs"] else 200, media_type=JSON)


def _names_in(body: bytes) -> list[str]:
    """Read the names that a request is confined to; none for all that is due."""
    try:
        found = json.loads(body) if body.strip() else {}
    except ValueError as error:
        raise UsageError(f"the body is no JSON: {error}") from error
    names = found.get("names", []) if isinstance(found, dict) else None
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise UsageError('the body is an object such as {"names": ["report"]}')
    return names
