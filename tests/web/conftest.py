"""One server for all that only asks; others of their own for what ends or refuses."""

import pytest
from homes import Homestead
from served import TOKEN, Served


@pytest.fixture(scope="session")
def template(tmp_path_factory):
    folder = tmp_path_factory.mktemp("template") / "home"
    with pytest.MonkeyPatch.context() as monkeypatch:
        home = Homestead(folder, monkeypatch)
        home.states()
        assert home.instance
        home.close()
    return folder


@pytest.fixture(scope="session")
def served(tmp_path_factory, template):
    with pytest.MonkeyPatch.context() as monkeypatch:
        found = Served(tmp_path_factory.mktemp("served") / "home", monkeypatch, template)
        found.start("--no-daemon", EXAMLOPS_API_TOKEN=TOKEN)
        yield found
        found.close()


@pytest.fixture
def fresh_site(tmp_path, monkeypatch, template):
    """Give a home whose server the test starts itself."""
    found = Served(tmp_path / "home", monkeypatch, template)
    yield found
    found.close()
