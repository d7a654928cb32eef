"""What a request for a build asks of a job, and how its errors are made."""

from __future__ import annotations

from examlops_dagster.core.declarations import DEFAULT_TIMEOUT
from examlops_dagster.core.seams import BuildRequest
from examlops_dagster.errors import AssetBuildError, ExamlopsError, LaunchError, UsageError
from examlops_dagster.schedulers.resources import Resources, parse_resources


def require_work(request: BuildRequest) -> None:
    """See that there is something to run.

    Raises
    ------
    LaunchError
        If there is neither a function nor a command.
    """
    if request.declaration.function is None and not request.declaration.command:
        raise LaunchError(
            f"{request.node.asset} has no production function here; load its module with -m"
        )


def resources_of(request: BuildRequest) -> Resources:
    """Read what a request asks for.

    Raises
    ------
    AssetBuildError
        Names every value that cannot be used.
    """
    try:
        return parse_resources(request.resources)
    except UsageError as error:
        raise build_error(request, f"resources: {error}") from error


def limit_seconds(request: BuildRequest) -> float | None:
    """Give the limit of a job's running time; None takes the partition's own.

    ``resources["time"]``, else a limit that somebody stated.
    """
    stated = resources_of(request).time_seconds
    if stated is not None:
        return stated
    if request.timeout_seconds is DEFAULT_TIMEOUT or request.timeout_seconds is None:
        return None
    return float(request.timeout_seconds)


def build_error(
    request: BuildRequest,
    reason: str,
    details: str = "",
    kind: type[AssetBuildError] = AssetBuildError,
) -> AssetBuildError:
    """Give the error of a build."""
    node = request.node
    return kind(node.asset, reason, partition=node.partition, details=details)


def unknown_earlier(request: BuildRequest, why: ExamlopsError) -> AssetBuildError:
    """Give the error of a request whose earlier jobs cannot be asked for."""
    return build_error(request, f"its earlier jobs are not known, so none is submitted: {why}")


def unwritten(request: BuildRequest, why: ExamlopsError) -> AssetBuildError:
    """Give the error of a request whose job cannot be found again, and is not submitted."""
    return build_error(request, f"its job cannot be written down, and is not submitted: {why}")
