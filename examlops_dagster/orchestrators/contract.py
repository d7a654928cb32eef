"""What every orchestrator must do, as tests that the authors of one inherit.

::

    from examlops_dagster.orchestrators.contract import OrchestratorContract

    class TestMine(OrchestratorContract):
        @pytest.fixture
        def orchestrator(self):
            return MyOrchestrator()

A class that only pytest needs, and that imports no pytest. Its functions are at the top of this
module, where a worker or a job finds them.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from examlops_dagster.core.aliases import Metadata
from examlops_dagster.core.declarations import (
    DEFAULT_TIMEOUT,
    AssetOutput,
    Declaration,
    NodeType,
    Upstream,
)
from examlops_dagster.core.records import Node
from examlops_dagster.core.seams import AssetOrchestrator, BuildRequest, BuildResult
from examlops_dagster.errors import AssetBuildError, BuildTimeoutError, LaunchError
from examlops_dagster.formats import decode

WORD = "no such column"


def gives_back(**given: Any) -> dict[str, Any]:
    """Return what it was called with."""
    return given


def gives_nothing(**_: Any) -> None:
    """Return nothing."""


def gives_an_output(**_: Any) -> AssetOutput:
    """Return a value with its data version and metadata."""
    return AssetOutput({"rows": 3}, data_version="v3", metadata={"rows": 3})


def yields(**_: Any) -> Any:
    """Yield a dataset that was written."""
    yield Metadata("s3://bucket/one", {"rows": 1})
    return "done"


def sees(**_: Any) -> tuple[bool, list[str]]:
    """See something, as a sensor does."""
    return True, ["a.csv"]


def marks(folder: str, **_: Any) -> str:
    """Leave a file for each call."""
    _mark(folder)
    return "done"


def marks_and_fails(folder: str, **_: Any) -> None:
    """Leave a file for each call, and raise."""
    _mark(folder)
    raise ValueError(WORD)


def sleeps(**_: Any) -> None:
    """Take longer than any test."""
    time.sleep(300)


def _mark(folder: str) -> None:
    Path(folder, f"{time.time_ns()}").touch()


class OrchestratorContract:
    """The contract tests; a subclass gives a fixture ``orchestrator``.

    Attributes
    ----------
    keeps_limits
        Whether a limit that the declaration states ends the function.
    keeps_values
        Whether values go to the function and come back; an orchestrator that leaves all I/O to
        the function says False.
    """

    keeps_limits = True
    keeps_values = True

    def request(
        self,
        function: Callable[..., Any] | None,
        arguments: Mapping[str, Any] | None = None,
        *,
        partition: str = "",
        timeout_seconds: float | None = DEFAULT_TIMEOUT,
        node_type: NodeType = NodeType.ASSET,
    ) -> BuildRequest:
        """Make a request; override it to add what an orchestrator needs, such as resources."""
        given = {"PM100": 3} if arguments is None else dict(arguments)
        declaration = Declaration(
            "contract/numbers",
            node_type,
            function=function,
            upstreams=tuple(Upstream(name) for name in given if name == "PM100"),
            timeout_seconds=timeout_seconds,
        )
        return BuildRequest(
            declaration,
            Node(declaration.name, partition),
            1,
            f"{time.time_ns():x}",
            given,
            {},
            timeout_seconds,
            fingerprint=f"{time.time_ns():x}",
        )

    def test_it_is_an_orchestrator(self, orchestrator: AssetOrchestrator) -> None:
        """It has a name and runs requests."""
        assert isinstance(orchestrator, AssetOrchestrator)
        assert orchestrator.name
        assert orchestrator.name == orchestrator.name.strip().lower()

    def test_a_build_gives_a_result_with_provenance(self, orchestrator: AssetOrchestrator) -> None:
        """The provenance is text, and names the orchestrator unless it fell back."""
        result = orchestrator.run(self.request(gives_nothing))
        assert isinstance(result, BuildResult)
        assert all(isinstance(x, str) for pair in result.provenance.items() for x in pair)
        assert result.provenance["orchestrator"] == orchestrator.name
        assert "fallback" not in result.provenance, "the contract is about builds that do not"
        assert result.value is None

    def test_versions_and_values_reach_the_function_and_come_back(
        self, orchestrator: AssetOrchestrator
    ) -> None:
        """Arguments are passed by keyword, and the value is the one that was returned."""
        if not self.keeps_values:
            return
        given = {"PM100": 3, "rows": [1, 2.5, "größe\n'"], "table": {"a": None}}
        result = orchestrator.run(self.request(gives_back, given))
        assert result.value is not None
        assert decode(result.value) == given

    def test_an_output_comes_back_in_its_parts(self, orchestrator: AssetOrchestrator) -> None:
        """Value, data version and metadata of an AssetOutput."""
        if not self.keeps_values:
            return
        result = orchestrator.run(self.request(gives_an_output))
        assert result.value is not None
        assert decode(result.value) == {"rows": 3}
        assert result.data_version == "v3"
        assert result.metadata["rows"] == 3  # noqa: PLR2004 - what gives_an_output says

    def test_what_a_function_yields_is_told(self, orchestrator: AssetOrchestrator) -> None:
        """Datasets that a function names come back in their order."""
        if not self.keeps_values:
            return
        result = orchestrator.run(self.request(yields))
        assert len(result.events) == 1

    def test_a_sensor_says_whether_it_saw_something(self, orchestrator: AssetOrchestrator) -> None:
        """The first of the two that a sensor returns."""
        if not self.keeps_values:
            return
        result = orchestrator.run(self.request(sees, {}, node_type=NodeType.SENSOR))
        assert result.update_detected is True

    def test_the_function_is_called_once(
        self, orchestrator: AssetOrchestrator, tmp_path: Path
    ) -> None:
        """One request is one call."""
        if not self.keeps_values:
            return
        orchestrator.run(self.request(marks, {"folder": str(tmp_path)}))
        assert len(list(tmp_path.iterdir())) == 1

    def test_a_failure_is_told_and_not_tried_again(
        self, orchestrator: AssetOrchestrator, tmp_path: Path
    ) -> None:
        """Retries are counted elsewhere; the error has the asset, the partition and the reason."""
        arguments = {"folder": str(tmp_path)} if self.keeps_values else None
        function = marks_and_fails if self.keeps_values else _fails
        error = _raised(
            AssetBuildError,
            lambda: orchestrator.run(self.request(function, arguments, partition="p 1")),
        )
        assert isinstance(error, AssetBuildError)
        assert (error.asset, error.partition) == ("contract/numbers", "p 1")
        assert WORD in error.reason
        if self.keeps_values:
            assert len(list(tmp_path.iterdir())) == 1

    def test_no_function_is_nothing_to_start(self, orchestrator: AssetOrchestrator) -> None:
        """Nothing is ever built by doing nothing."""
        _raised(LaunchError, lambda: orchestrator.run(self.request(None)))

    def test_a_stated_limit_holds(self, orchestrator: AssetOrchestrator) -> None:
        """A function that runs longer than its limit is ended, and that is told as such."""
        if not self.keeps_limits:
            return
        started = time.monotonic()
        error = _raised(
            BuildTimeoutError,
            lambda: orchestrator.run(self.request(sleeps, timeout_seconds=1.0)),
        )
        assert isinstance(error, BuildTimeoutError)
        assert time.monotonic() - started < 120  # noqa: PLR2004 - it would sleep for 300

    def test_several_threads_build_at_once(self, orchestrator: AssetOrchestrator) -> None:
        """Each gets its own result."""
        results: dict[int, BuildResult] = {}

        def build(number: int) -> None:
            results[number] = orchestrator.run(self.request(gives_back, {"PM100": number}))

        threads = [threading.Thread(target=build, args=(number,)) for number in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(120)
        assert set(results) == {0, 1, 2}
        if self.keeps_values:
            values = {n: decode(r.value) for n, r in results.items() if r.value is not None}
            assert values == {number: {"PM100": number} for number in range(3)}


def _fails(**_: Any) -> None:
    raise ValueError(WORD)


def _raised(kind: type[Exception], action: Callable[[], object]) -> Exception:
    try:
        action()
    except kind as error:
        return error
    raise AssertionError(f"{kind.__name__} was not raised")
