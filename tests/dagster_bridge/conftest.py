import pytest
from kept_pipelines import ASSETS, FAILING
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
