import pytest
from platforms import Platform, at
from worlds import source

from examlops_dagster import asset


@pytest.fixture
def platform(clock):
    """Make a platform at midnight, which automation has seen."""

    def make(*things, start=None, **how):
        clock.set(start or at(0))
        made = Platform(clock, *things, **how)
        made.see()
        return made

    return make


@pytest.fixture
def chain(platform):
    """trace (a source) -> a -> b -> c, all Always."""

    @asset(deps=["trace"])
    def a(**upstream): ...

    @asset(deps=[a])
    def b(**upstream): ...

    @asset(deps=[b])
    def c(**upstream): ...

    return platform(source("trace"), a, b, c)
