import pytest
from worlds import World, built, source


@pytest.fixture
def world(clock):
    """PM100 -> features -> model, and a branch beside them."""
    return World(
        clock,
        source("PM100"),
        built("features", "PM100"),
        built("model", "features"),
        built("beside", "PM100"),
    )
