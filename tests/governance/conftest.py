"""A consumer of lineage as Marquez is one, and its address as that of this process."""

import pytest
from fakes.marquez import marquez


@pytest.fixture
def consumer():
    with marquez() as found:
        yield found


@pytest.fixture
def url(consumer, monkeypatch):
    monkeypatch.setenv("EXAMLOPS_OPENLINEAGE_URL", consumer.url)
    return consumer.url
