import pytest
from kept_pipelines import ASSETS, FAILING
from pipes_programs import SLOW
from seed_three import SEED
from ticks import FORMS, Automation


@pytest.fixture
def seed(home):
    return home.module(SEED)


@pytest.fixture(params=FORMS)
def form(request):
    return request.param


@pytest.fixture
def kept(home, form):
    home.declare("PM100")
    home.declare("other")
    return Automation(home, home.module(ASSETS), form)


@pytest.fixture
def failing(home, form):
    return Automation(home, home.module(FAILING), form)


@pytest.fixture
def slow(home, tmp_path, monkeypatch):
    """Give the folder of a program that waits for the file ``go`` in it."""
    folder = tmp_path / "slow"
    folder.mkdir()
    (folder / "slow.py").write_text(SLOW)
    monkeypatch.setenv("SLOW_FOLDER", str(folder))
    assert home.instance
    yield folder
    (folder / "go").touch()
