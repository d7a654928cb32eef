"""The Prefect orchestrator: one build as a flow run of its own, the function as its one task."""

from __future__ import annotations

import json
import logging
import math
import os
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from examlops_dagster.core.declarations import DEFAULT_TIMEOUT, Declaration
from examlops_dagster.core.seams import BuildRequest, BuildResult
from examlops_dagster.errors import AssetBuildError, BuildCancelledError
from examlops_dagster.orchestrators.fallback import fall_back
from examlops_dagster.orchestrators.local import LocalOrchestrator
from examlops_dagster.orchestrators.programs import versions_of
from examlops_dagster.orchestrators.requests import build_error, require_work
from examlops_dagster.settings import ASSET_PREFECT_RETRIES, ASSET_PREFECT_RETRY_DELAY

FLOW = "examlops-asset-materialize"
DEFAULT_DELAY_SECONDS = 10.0

MOST_SHOWN_CHARACTERS = 100_000

ANSWER_SECONDS = 10.0
"""How long the server may take to say that it is there."""

_logger = logging.getLogger(__name__)


class PrefectOrchestrator:
    """Runs builds as Prefect flow runs, for as many threads at once as call `run`.

    The function is called in this process, so it may use Prefect itself, and becomes a subflow
    where `run` is called inside a flow. A limit that somebody stated holds: such a function, and a
    ``command``, run in a worker process below the task. The default limit of 300 s does not count
    here, as it does not for jobs.

    Where Prefect is not installed, no API is configured (``PREFECT_API_URL``, also of a profile)
    or none answers, the build runs locally and its provenance says why
    (``EXAMLOPS_ASSET_FALLBACK=refuse`` makes that an error). That is decided before the function
    starts: what it does afterwards is never done twice. A temporary server is never started.

    Parameters
    ----------
    environment
        Gives the address and the retries.
    """

    name = "prefect"

    def __init__(self, environment: Mapping[str, str] = os.environ) -> None:
        self.environment = environment
        self._local = LocalOrchestrator()
        self._lock = threading.Lock()

    def close(self) -> None:
        """End the workers of builds with a limit."""
        self._local.close()

    @staticmethod
    def waits_for(declaration: Declaration) -> bool:
        """Tell whether a build is waited for, or calls the function in the thread of `run`."""
        return bool(declaration.command) or not _is_called_here(declaration.timeout_seconds)

    def run(self, request: BuildRequest) -> BuildResult:
        """Run one build as a flow run and wait for its end.

        Raises
        ------
        AssetBuildError
            As `LocalOrchestrator.run`; ``details`` ends with the id of the flow run.
        BuildCancelledError
            When somebody cancelled the flow run before the function started.
        LaunchError
            When there is no function.
        BaseException
            What interrupts the function.
        """
        require_work(request)
        why = _not_installed() or self._no_api()
        if why:
            return self._fall_back(request, why)
        with self._settings():
            error = _unreachable()
            if error:
                return self._fall_back(request, f"Prefect unavailable ({error})")
            flow_run = _FlowRun(request, self._local, *self._retries())
            try:
                flow_run.run()
            except Exception as failure:  # noqa: BLE001 - of the function, of Prefect or its server
                if not flow_run.has_started:
                    return self._fall_back(
                        request, f"Prefect unavailable ({_in_one_line(failure)})"
                    )
                return flow_run.result(failure)
        return flow_run.result()

    def _fall_back(self, request: BuildRequest, why: str) -> BuildResult:
        return fall_back(
            request,
            why,
            self._local.run,
            instead_of="a Prefect flow run",
            environment=self.environment,
        )

    def _no_api(self) -> str:
        return "" if self._address() else "no Prefect API configured (PREFECT_API_URL)"

    def _address(self) -> str:
        from prefect.settings import PREFECT_API_URL  # noqa: PLC0415 - a second, only where it is used

        # inside a flow the settings are those of its run, whatever the environment says by now
        return str(PREFECT_API_URL.value() or self.environment.get("PREFECT_API_URL") or "")

    @contextmanager
    def _settings(self) -> Iterator[None]:
        from prefect.settings import (  # noqa: PLC0415
            PREFECT_API_URL,
            PREFECT_SERVER_ALLOW_EPHEMERAL_MODE,
            temporary_settings,
        )

        with temporary_settings(
            {PREFECT_API_URL: self._address(), PREFECT_SERVER_ALLOW_EPHEMERAL_MODE: False}
        ):
            yield

    def _retries(self) -> tuple[int, float]:
        retries = self._number(ASSET_PREFECT_RETRIES, int, 0)
        return retries, self._number(ASSET_PREFECT_RETRY_DELAY, float, DEFAULT_DELAY_SECONDS)

    def _number(self, variable: str, kind: type[int | float], default: Any) -> Any:
        text = self.environment.get(variable, "").strip()
        if not text:
            return default
        try:
            number = kind(text)
        except ValueError:
            number = -1
        if number < 0 or not math.isfinite(number):
            _logger.warning(
                "%s=%r is no number from 0 on; %s is taken instead", variable, text, default
            )
            return default
        return number


class _FlowRun:
    """One flow run of one build, and what came of it, whatever Prefect gets to know of that."""

    def __init__(
        self, request: BuildRequest, local: LocalOrchestrator, retries: int, delay_seconds: float
    ) -> None:
        self._request = request
        self._local = local
        self._retries = retries
        self._delay_seconds = delay_seconds
        self._calls = 0
        self._result: BuildResult | None = None
        self._error: Exception | None = None
        self._id = ""

    @property
    def has_started(self) -> bool:
        """Whether the function was called."""
        return self._calls > 0

    def run(self) -> None:
        """Run it to its end.

        Raises
        ------
        BuildCancelledError
            When Prefect does not let the function start.
        Exception
            Of the function, or of Prefect.
        """
        from prefect.exceptions import CancelledRun, PrefectSignal  # noqa: PLC0415 - as above

        node = self._request.node
        try:
            self._flow()(node.asset, node.partition or None, self._upstream())
        except (CancelledRun, PrefectSignal) as error:
            if self.has_started:
                raise
            reason = f"Prefect did not let it start ({_in_one_line(error)})"
            raise build_error(self._request, reason, kind=BuildCancelledError) from error

    def result(self, failure: Exception | None = None) -> BuildResult:
        """Give what the function made, or raise its error.

        Parameters
        ----------
        failure
            What the flow run ended with.
        """
        if self._result is not None:
            provenance = {"orchestrator": "prefect", "prefect_flow_run_id": self._id}
            if failure is not None:  # the function has done its work, and is not called again
                provenance["prefect_unreported"] = _in_one_line(failure)
                _logger.warning(
                    "%s was built, but Prefect could not be told (flow run %s): %s",
                    self._request.node,
                    self._id,
                    provenance["prefect_unreported"],
                )
            return replace(self._result, provenance=provenance)
        error = self._error or failure
        if isinstance(error, AssetBuildError):
            error.details = f"{error.details.rstrip()}\nPrefect flow run {self._id}\n".lstrip()
        assert error is not None
        raise error

    def _upstream(self) -> Mapping[str, Any]:
        """Give the versions that are read, to be shown; Prefect takes 512 kB of parameters."""
        versions = versions_of(self._request)
        if len(json.dumps(versions)) <= MOST_SHOWN_CHARACTERS:
            return versions
        return {n: f"{len(v)} keys" if isinstance(v, dict) else v for n, v in versions.items()}

    def _flow(self) -> Callable[..., Any]:
        from prefect import flow, task  # noqa: PLC0415
        from prefect.cache_policies import NO_CACHE  # noqa: PLC0415

        node = self._request.node

        @task(
            name=f"produce:{node.asset}",
            task_run_name=lambda: f"produce:{node}",  # as text it would be a template
            retries=self._retries,
            retry_delay_seconds=self._delay_seconds,
            cache_policy=NO_CACHE,
            persist_result=False,
            log_prints=True,
        )
        def produce() -> None:
            self._produce()

        @flow(
            name=FLOW,
            flow_run_name=lambda: f"asset:{node}",
            retries=0,
            persist_result=False,
            validate_parameters=False,
        )
        def examlops_asset_materialize(
            asset: str, partition: str | None, upstream: Mapping[str, Any]
        ) -> None:
            del asset, partition, upstream  # they are shown with the flow run
            self._see_id()
            produce()

        return examlops_asset_materialize

    def _see_id(self) -> None:
        from prefect.context import FlowRunContext  # noqa: PLC0415

        context = FlowRunContext.get()
        self._id = str(context.flow_run.id) if context and context.flow_run else ""
        if self._request.told is not None:
            self._request.told(f"Prefect flow run {self._id}")

    def _produce(self) -> None:
        from prefect.logging import get_run_logger  # noqa: PLC0415

        logger = get_run_logger()
        if self._result is not None or self._calls > self._retries:
            logger.warning("%s was called already, and is not called again", self._request.node)
            return
        self._calls += 1
        self._error = None
        request = self._request
        if _is_called_here(request.timeout_seconds) and not request.declaration.command:
            request = replace(request, timeout_seconds=None)
        logger.info("producing %s from %s", request.node, versions_of(request) or "nothing")
        try:
            self._result = self._local.run(request)
        except Exception as error:
            self._error = error
            raise
        logger.info("produced %s", request.node)


def _is_called_here(timeout_seconds: float | None) -> bool:
    return timeout_seconds is None or timeout_seconds is DEFAULT_TIMEOUT


def _not_installed() -> str:
    try:
        import prefect  # noqa: F401, PLC0415 - a second, only where it is used
    except ImportError as error:
        return f"prefect is not installed ({error}; pip install 'examlops-dagster[prefect]')"
    return ""


def _unreachable() -> str:
    """Ask the server whether it is there, once; says why not."""
    from prefect.client.orchestration import get_client  # noqa: PLC0415
    from prefect.settings import (  # noqa: PLC0415
        PREFECT_API_REQUEST_TIMEOUT,
        PREFECT_CLIENT_MAX_RETRIES,
        temporary_settings,
    )

    once = {PREFECT_CLIENT_MAX_RETRIES: 0, PREFECT_API_REQUEST_TIMEOUT: ANSWER_SECONDS}
    try:
        with temporary_settings(once), get_client(sync_client=True) as client:
            error = client.api_healthcheck()
    except Exception as failure:  # noqa: BLE001 - a bad address, or a server of another version
        error = failure
    return _in_one_line(error) if error is not None else ""


def _in_one_line(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__
