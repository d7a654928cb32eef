"""``exa serve``: the web server, Dagster's daemon and the code servers, together."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import socket
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

import psutil
import uvicorn
import yaml
from dagster import DagsterInstance
from dagster import __version__ as dagster_version
from dagster._cli.proxy_server_manager import ProxyServerManager
from dagster._core.workspace.context import WorkspaceProcessContext
from dagster._core.workspace.load_target import WorkspaceFileTarget, WorkspaceLoadTarget

from examlops_dagster.errors import UsageError
from examlops_dagster.ledger.event_log.instance import open_instance
from examlops_dagster.project import Project
from examlops_dagster.settings import API_TOKEN
from examlops_dagster.store.engine import Database
from examlops_dagster.store.migrations import migrate
from examlops_dagster.web.later import Later
from examlops_dagster.web.launch import Launcher
from examlops_dagster.web.moment import Moments
from examlops_dagster.web.processes import Watched, daemon_command
from examlops_dagster.web.server import ExamlopsWebserver, Site

GRACE_SECONDS = 10
LOCAL_HOSTS = frozenset({"127.0.0.1", "::1", "localhost"})

_WORKSPACE = {
    "load_from": [
        {
            "python_module": {
                "module_name": "examlops_dagster.dagster_bridge.workspace",
                "location_name": "examlops",
            }
        }
    ]
}


@dataclass(frozen=True)
class Served:
    """What ``exa serve`` was asked for.

    Attributes
    ----------
    host, port
        Where to listen.
    prefix
        Path under which everything is served.
    read_only
        Refuse every change, Dagster's own mutations too.
    with_daemon
        Also run Dagster's daemon, which keeps assets fresh.
    own_modules
        Serve the modules that the command line names, whatever workspace.yaml loads.
    """

    host: str = "127.0.0.1"
    port: int = 3000
    prefix: str = ""
    read_only: bool = False
    with_daemon: bool = True
    own_modules: bool = False


def serve(
    project: Project,
    served: Served,
    tell: Callable[[str], None],
    ready: Callable[[str], None],
) -> None:
    """Serve a project until SIGTERM, SIGINT or SIGHUP.

    Then no more requests are taken, those under way end, the daemon is ended, and the code
    servers end when the runs that they have started did.

    Parameters
    ----------
    project
        Open and with a home; its modules are what the pages judge.
    served
        How.
    tell
        Told what is being waited for.
    ready
        Told the address once it answers.

    Raises
    ------
    UsageError
        If the address is taken.
    DefinitionError
        If the declarations cannot work.
    """
    project.graph  # noqa: B018 - every problem of a declaration is told before anything starts
    folder = project.home.folder
    _logging_to_stderr()
    with ExitStack() as stack:
        stopping = stack.enter_context(_Stopping.handled())
        listening = stack.enter_context(_listen(served.host, served.port))
        _prepare(project)
        stack.callback(project.close)
        instance = stack.enter_context(open_instance(folder))
        instance.optimize_for_webserver(15_000, 3600, 20)
        temporary = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="exa-serve-")))
        tell("Loading the code location ...")
        workspace = stack.enter_context(_code_servers(instance, folder, temporary, served, tell))
        daemon: Watched | None = None
        if served.with_daemon:
            daemon = Watched("dagster-daemon", daemon_command(str(workspace)))
            stack.callback(daemon.end)
        context = stack.enter_context(
            WorkspaceProcessContext(
                instance,
                WorkspaceFileTarget([str(workspace)]),
                version=dagster_version,
                read_only=served.read_only,
            )
        )
        moments = Moments(project, instance)
        stack.callback(moments.close)
        launcher = Launcher(project, context)
        if not served.read_only:
            stack.enter_context(Later(launcher, instance, project.database))
        site = Site(
            moments,
            launcher,
            token=project.home.environment.get(API_TOKEN) or None,
            read_only=served.read_only,
            daemon=lambda: daemon.state if daemon is not None else "off",
        )
        app = ExamlopsWebserver(context, site, served.prefix).create_asgi_app(lifespan=_lifespan)
        moments.now()
        url = _url(served, listening)
        stopping.run(app, listening, lambda: ready(url))
        tell("Ending ...")


class _Stopping:
    """What the signals of a person or of a service manager do."""

    def __init__(self) -> None:
        self._server: uvicorn.Server | None = None
        self._asked = 0

    @classmethod
    @contextmanager
    def handled(cls) -> Iterator[_Stopping]:
        stopping = cls()
        numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
        former = {number: signal.signal(number, stopping._asked_to) for number in numbers}
        try:
            yield stopping
        except _StopError:
            pass
        finally:
            for number, handler in former.items():
                signal.signal(number, handler)

    def run(self, app: Any, listening: socket.socket, ready: Callable[[], None]) -> None:
        config = uvicorn.Config(
            app, log_level="warning", timeout_graceful_shutdown=GRACE_SECONDS, lifespan="on"
        )
        self._server = _Server(config, ready)
        self._server.run(sockets=[listening])
        self._server = None

    def _asked_to(self, number: int, frame: FrameType | None) -> None:
        del number, frame
        self._asked += 1
        if self._server is None:
            raise _StopError
        self._server.should_exit = True
        self._server.force_exit = self._asked > 1


class _StopError(BaseException):
    """The signal to end, while nothing is served yet, or no more."""


class _Server(uvicorn.Server):
    """Uvicorn's server, which says when it answers and leaves the signals to us."""

    def __init__(self, config: uvicorn.Config, ready: Callable[[], None]) -> None:
        super().__init__(config)
        self._ready = ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started:
            self._ready()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


@contextlib.asynccontextmanager
async def _lifespan(app: Any) -> Any:
    del app
    with contextlib.suppress(asyncio.CancelledError):
        yield


@contextmanager
def _listen(host: str, port: int) -> Iterator[socket.socket]:
    """Take the address before anything is started."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
    except OSError as error:
        raise UsageError(f"--host {host}: {error.strerror or error}") from error
    with socket.socket(family, kind, protocol) as listening:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listening.bind(address)
            listening.listen(128)
        except OSError as error:
            raise UsageError(
                f"cannot listen on {host}:{port}: {error.strerror} → --port N takes another "
                "(0: any that is free)"
            ) from error
        yield listening


def _prepare(project: Project) -> None:
    """Make the home and the tables: from here on GET finds all it needs, and writes nothing."""
    project.make_home()
    database = Database(project.home.database)
    migrate(database)
    database.close()
    project.code_versions  # noqa: B018 - what counts as loaded is the code of now


@contextmanager
def _code_servers(
    instance: DagsterInstance,
    folder: Path,
    temporary: Path,
    served: Served,
    tell: Callable[[str], None],
) -> Iterator[Path]:
    """Start one code server for each entry of the workspace, and give a workspace of them.

    At the end they take no more runs; those under way are waited for.
    """
    workspace = folder / "workspace.yaml"
    if served.own_modules or not workspace.exists():
        workspace = temporary / "workspace.yaml"
        workspace.write_text(yaml.safe_dump(_WORKSPACE), encoding="utf-8")
    target: WorkspaceLoadTarget = WorkspaceFileTarget([str(workspace)])
    processes: list[psutil.Process] = []
    with ProxyServerManager(instance, target, code_server_log_level="warning") as servers:
        found = temporary / "servers.yaml"
        found.write_text(
            yaml.safe_dump({"load_from": [dict(s) for s in servers.get_code_server_specs()]}),
            encoding="utf-8",
        )
        try:
            yield found
        finally:
            processes = _code_processes()
    _, left = psutil.wait_procs(processes, timeout=GRACE_SECONDS)
    if left:
        tell("Waiting for the runs that are under way (Ctrl-C leaves them running) ...")
        psutil.wait_procs(left)


def _code_processes() -> list[psutil.Process]:
    """Give the code servers, and the runs that they execute."""
    found: list[psutil.Process] = []
    for child in psutil.Process().children():
        with contextlib.suppress(psutil.Error):
            if "code-server" in child.cmdline():
                found += [child, *child.children(recursive=True)]
    return found


def _url(served: Served, listening: socket.socket) -> str:
    port = listening.getsockname()[1]
    host = f"[{served.host}]" if ":" in served.host else served.host
    return f"http://{host}:{port}{served.prefix}"


def _logging_to_stderr() -> None:
    ours = logging.getLogger("examlops_dagster")
    if not ours.handlers:
        handler = logging.StreamHandler(sys.stderr)
        handler.setFormatter(logging.Formatter("%(asctime)s %(name)s: %(message)s"))
        ours.addHandler(handler)
    os.environ.setdefault("DAGSTER_DISABLE_TELEMETRY", "1")
