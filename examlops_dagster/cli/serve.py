"""``exa serve``.

Annotations are real here, not strings: typer reads them.
"""

from typing import Annotated

import typer

from examlops_dagster.cli.common import (
    FileOption,
    JsonOption,
    ModuleOption,
    emit,
    guarded,
    options,
    tell,
)
from examlops_dagster.settings import MODULES, TIMEZONE

MAX_PORT = 65_535


@guarded
def serve(
    context: typer.Context,
    read_only: Annotated[
        bool, typer.Option("--read-only", help="Refuse every change, Dagster's mutations too.")
    ] = False,
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[
        int, typer.Option(min=0, max=MAX_PORT, help="Port to listen on; 0 for any.")
    ] = 3000,
    timezone: Annotated[
        str | None,
        typer.Option(
            help="Zone of schedules that name none, by its IANA name; EXAMLOPS_TIMEZONE by default."
        ),
    ] = None,
    no_daemon: Annotated[
        bool, typer.Option("--no-daemon", help="Without Dagster's daemon: nothing is kept fresh.")
    ] = False,
    path_prefix: Annotated[
        str, typer.Option(metavar="/PATH", help="Serve everything below this path.")
    ] = "",
    module: ModuleOption = None,
    file: FileOption = None,
    as_json: JsonOption = False,
) -> None:
    """Serve Dagster's UI and the asset page, and keep assets fresh.

    The page is /build/assets, the JSON API below /api. It starts the web server, Dagster's daemon
    and the code servers, watches them, and ends them with itself.
    """
    import importlib.util
    import os

    from examlops_dagster.errors import UsageError
    from examlops_dagster.home import resolve_zone

    if importlib.util.find_spec("dagster_webserver") is None:
        raise UsageError("exa serve needs dagster-webserver → pip install dagster-webserver")
    if path_prefix and (not path_prefix.startswith("/") or path_prefix.endswith("/")):
        raise UsageError(f"--path-prefix {path_prefix!r} begins with / and does not end with it")
    if timezone is not None:
        resolve_zone({TIMEZONE: timezone})
        os.environ[TIMEZONE] = timezone
    chosen = options(context, module, file, as_json=as_json)
    _hand_down(chosen.modules, chosen.file)
    with chosen.project(writing=True) as project:
        project.make_home()
        from examlops_dagster.web.serve import LOCAL_HOSTS, Served
        from examlops_dagster.web.serve import serve as serve_project

        if host not in LOCAL_HOSTS:
            tell(
                f"Warning: whoever reaches {host}:{port} can start builds in Dagster's UI, which "
                "knows no users → --read-only, or a proxy that does"
            )
        own = bool(chosen.modules or chosen.file)
        served = Served(host, port, path_prefix, read_only, not no_daemon, own)

        def ready(url: str) -> None:
            if chosen.as_json:
                emit({"ok": True, "url": url, "pid": os.getpid()})
            tell(f"Serving {url}/build/assets (Ctrl-C ends it)")

        serve_project(project, served, tell, ready)


def _hand_down(modules: tuple[str, ...], file: str | None) -> None:
    """Let the code servers load what -m and -f name here."""
    import os
    from pathlib import Path

    names, roots = list(modules), [Path.cwd()]
    if file is not None:
        path = Path(file).resolve()
        names.append(path.stem)
        roots.insert(0, path.parent)
    if not names:
        return
    os.environ[MODULES] = ",".join(names)
    inherited = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = os.pathsep.join(
        [*map(str, roots), *([inherited] if inherited else [])]
    )
