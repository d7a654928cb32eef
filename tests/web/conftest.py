"""One server for all that only asks; others of their own for what ends or refuses."""

import pytest
from served import TOKEN, Served, until

from examlops_dagster.ledger.orders import Orders


@pytest.fixture(scope="session")
def served(tmp_path_factory, template):
    with pytest.MonkeyPatch.context() as monkeypatch:
        found = Served(tmp_path_factory.mktemp("served") / "home", monkeypatch, template)
        found.start("--no-daemon", EXAMLOPS_API_TOKEN=TOKEN)
        yield found
        found.close()


@pytest.fixture
def at_rest(served):
    """Wait for the runs that another test has asked for: they change what this one looks at."""
    project = served.home.project()
    orders = Orders(project.database)

    def rests():
        runs = served.home.instance.get_runs()
        return not orders.open() and all(run.is_finished for run in runs)

    until(rests, served.log.read_text)
    project.close()


@pytest.fixture
def fresh_site(tmp_path, monkeypatch, template):
    """Give a home whose server the test starts itself."""
    found = Served(tmp_path / "home", monkeypatch, template)
    yield found
    found.close()
