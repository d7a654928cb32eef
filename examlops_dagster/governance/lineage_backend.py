"""Where lineage events go: ``EXAMLOPS_OPENLINEAGE_URL``, else what OpenLineage's client is told.

Asking whether there is a backend costs nothing; opening one imports OpenLineage's client.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from examlops_dagster.errors import UsageError
from examlops_dagster.home import Home
from examlops_dagster.settings import OPENLINEAGE_URL

if TYPE_CHECKING:
    from openlineage.client.event_v2 import RunEvent

FILE = "openlineage.yml"
TIMEOUT_SECONDS = 3.0
_NOT_ABOUT_THE_EVENT = frozenset({401, 402, 403, 404, 405, 407, 408, 425, 429})
"""Answers to anything that is sent: a wrong address or key, a backend with too much to do."""

_SERVER_ERROR = 500
_CLIENT_ERROR = 400

logger = logging.getLogger(__name__)


class RefusedEventError(Exception):
    """The backend took none of it: the event itself is at fault."""


class TroubledError(Exception):
    """The backend failed over the event; whether the event is at fault is not known."""


class UnreachableError(Exception):
    """The backend cannot be reached, or wants nothing from us."""


class Backend(Protocol):
    """Takes events; what it is told to leave out, it does."""

    def send(self, event: RunEvent) -> None:
        """Deliver an event, or raise one of the errors above."""
        ...

    def close(self) -> None:
        """Give back what is open."""
        ...


def is_configured(home: Home) -> bool:
    """Tell whether there is a backend to deliver to; nothing is imported for it."""
    environment = home.environment
    if environment.get("OPENLINEAGE_DISABLED", "").strip().lower() == "true":
        return False
    if environment.get(OPENLINEAGE_URL) or environment.get("OPENLINEAGE_URL"):
        return True
    if any(name.startswith("OPENLINEAGE__TRANSPORT") for name in environment):
        return True
    return any("transport" in text for text in _config_texts(home))


def open_backend(home: Home) -> Backend:
    """Open the backend that is configured.

    Raises
    ------
    UsageError
        If the configuration cannot work.
    """
    from openlineage.client import OpenLineageClient  # noqa: PLC0415 - takes a second
    from openlineage.client.transport.http import HttpConfig, HttpTransport  # noqa: PLC0415

    url = home.environment.get(OPENLINEAGE_URL, "")
    before = dict(os.environ)
    try:
        config = _own_config(home)
        if url:
            http = HttpTransport(HttpConfig(url=url.rstrip("/") + "/", timeout=TIMEOUT_SECONDS))
            client = OpenLineageClient(transport=http, config=config)
        else:
            client = OpenLineageClient(config=config)
    except Exception as error:
        named = f"{OPENLINEAGE_URL}={url!r}" if url else "OpenLineage's configuration"
        raise UsageError(f"{named} cannot be used: {error}") from error
    finally:
        for name in os.environ.keys() - before.keys():  # the client adds variables of its own
            del os.environ[name]
    if client.transport.kind == "console" and not (client.config.transport or {}).get("type"):
        raise UsageError(
            f"OpenLineage's configuration names no transport → set {OPENLINEAGE_URL}, or a transport "
            f"with its type in {FILE}"
        )
    for transport in _transports(client.transport):
        if isinstance(transport, HttpTransport):  # the spool tries again, and waits in between
            transport.config.retry = {"total": 0}
            transport.timeout = min(float(transport.timeout), TIMEOUT_SECONDS)
    return _Client(client)


class _Client:
    def __init__(self, client: Any) -> None:
        self._client = client
        self._lost = self._count_lost()

    def send(self, event: RunEvent) -> None:
        import requests  # noqa: PLC0415 - with the client, which imports it

        try:
            self._client.emit(event)
            self._wait()
        except requests.HTTPError as error:
            raise _of_answer(error) from error
        except (requests.RequestException, OSError) as error:
            raise UnreachableError(_short(error)) from error
        except (TroubledError, UnreachableError):
            raise
        except Exception as error:
            raise TroubledError(_short(error)) from error

    def close(self) -> None:
        try:
            self._client.close(TIMEOUT_SECONDS)
        except Exception:
            logger.warning("the lineage backend could not be closed", exc_info=True)

    def _wait(self) -> None:
        """Wait until a transport with a queue has sent it, which never raises by itself."""
        for transport in _transports(self._client.transport):
            if hasattr(transport, "wait_for_completion"):
                done = transport.wait_for_completion(TIMEOUT_SECONDS)
                lost = self._count_lost()
                if not done or lost > self._lost:
                    self._lost = lost
                    raise UnreachableError(f"{transport.kind}: an event was not taken")

    def _count_lost(self) -> int:
        total = 0
        for transport in _transports(self._client.transport):
            if hasattr(transport, "get_stats"):
                total += int(transport.get_stats().get("failed", 0))
        return total


def _of_answer(error: Any) -> Exception:
    answer = error.response
    code = answer.status_code if answer is not None else _SERVER_ERROR
    text = " ".join((answer.text if answer is not None else "").split())[:300]
    words = f"HTTP {code}: {text}" if text else f"HTTP {code}"
    if code in _NOT_ABOUT_THE_EVENT:
        return UnreachableError(words)
    if _CLIENT_ERROR <= code < _SERVER_ERROR:
        return RefusedEventError(words)
    return TroubledError(words)


def _transports(transport: Any) -> Iterator[Any]:
    """Give a transport, or the several that it stands for."""
    parts = getattr(transport, "transports", None)
    if not parts:
        yield transport
        return
    for part in parts:
        yield from _transports(part)


def _config_texts(home: Home) -> Iterator[str]:
    for path in _config_files(home):
        try:
            yield path.read_text(encoding="utf-8")
        except OSError:
            continue


def _config_files(home: Home) -> list[Path]:
    """Give the files that the client reads, and that of the home: a daemon works elsewhere."""
    named = home.environment.get("OPENLINEAGE_CONFIG")
    places = [Path(named)] if named else []
    places += [Path.cwd() / FILE, home.folder / FILE, Path.home() / ".openlineage" / FILE]
    return places


def _own_config(home: Home) -> dict[str, Any] | None:
    """Give the configuration in the home, where the client finds none by itself."""
    named = home.environment.get("OPENLINEAGE_CONFIG")
    path = home.folder / FILE
    if named or (Path.cwd() / FILE).is_file() or not path.is_file():
        return None
    import yaml  # noqa: PLC0415 - only where there is a file

    loaded: Mapping[str, Any] | None = yaml.safe_load(path.read_text(encoding="utf-8"))
    return dict(loaded or {})


def _short(error: BaseException) -> str:
    text = " ".join(str(error).split()) or type(error).__name__
    return f"{type(error).__name__}: {text}"[:300]
