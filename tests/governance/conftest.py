"""A project on a real Dagster instance, in a folder of its own."""

import pytest
from homes import CHAIN, Homestead


@pytest.fixture(scope="session")
def template(tmp_path_factory):
    """Make the databases of a home once: what costs the most."""
    folder = tmp_path_factory.mktemp("template") / "home"
    with pytest.MonkeyPatch.context() as monkeypatch:
        home = Homestead(folder, monkeypatch)
        home.states()
        assert home.instance
        home.close()
    return folder


@pytest.fixture
def home(tmp_path, monkeypatch, template):
    found = Homestead(tmp_path / "home", monkeypatch, copy_of=template)
    yield found
    found.close()


@pytest.fixture
def chain(home):
    """Give the chain PM100 -> features -> model, with nothing built."""
    home.declare("PM100")
    return home.module(CHAIN)
