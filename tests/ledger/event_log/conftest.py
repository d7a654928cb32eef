import pytest
from homes import CHAIN, Homestead


@pytest.fixture(scope="session")
def templates(tmp_path_factory):
    """Make a home with the chain declared, and one with it built: what costs the most, once."""
    folder = tmp_path_factory.mktemp("templates")
    with pytest.MonkeyPatch.context() as monkeypatch:
        home = Homestead(folder / "declared", monkeypatch)
        home.declare("PM100")
        assert home.instance
        home.close()
        home = Homestead(folder / "built", monkeypatch, copy_of=folder / "declared")
        assert home.exa(home.module(CHAIN), "model").ok
        home.close()
    return folder


@pytest.fixture
def home(request, tmp_path, monkeypatch, templates):
    template = "built" if "built" in request.fixturenames else "declared"
    found = Homestead(tmp_path / "home", monkeypatch, copy_of=templates / template)
    yield found
    found.close()


@pytest.fixture
def chain(home):
    return home.module(CHAIN)


@pytest.fixture
def built(home):
    return home.module(CHAIN)
