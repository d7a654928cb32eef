"""platform.db on Postgres, Dagster's storage as it is."""

import pytest
from homes import CHAIN, Homestead, names_of

from examlops_dagster.core.records import Node


@pytest.fixture
def home(tmp_path, monkeypatch, template, postgres_url):
    monkeypatch.setenv("EXAMLOPS_DB_URL", postgres_url)
    found = Homestead(tmp_path / "home", monkeypatch, copy_of=template)
    (found.folder / "platform.db").unlink()
    yield found
    found.close()


@pytest.fixture
def chain(home):
    home.declare("PM100")
    return home.module(CHAIN)


def test_a_chain_is_built_and_rebuilt(home, chain):
    assert names_of(home.exa(chain, "model").rebuilt) == ["PM100", "features", "model"]
    assert home.exa(chain, "model").rebuilt == []
    assert home.advance("PM100", modules=chain) == 2
    assert home.why(chain, "features") == ("upstream PM100 changed (1 → 2)",)
    assert names_of(home.exa(chain, "model").rebuilt) == ["features", "model"]
    assert home.versions(chain) == {"PM100": 2, "features": 2, "model": 2}
    assert set(home.states(chain).values()) == {"fresh"}
    assert not (home.folder / "platform.db").exists()


def test_what_others_do_is_seen(home, chain):
    assert home.click(chain, "features", "model").success
    home.report("PM100", "theirs")
    assert home.why(chain, "features") == ("upstream PM100 changed (1 → 2)",)
    home.report("features", "theirs")
    assert home.records(chain)["features"].built_from == {
        Node("PM100"): (2, home.records(chain)["PM100"].data_version)
    }
    home.wipe("model")
    assert home.versions(chain)["model"] == 0
    assert home.click(chain, "features", "model").success
    assert home.versions(chain) == {"PM100": 2, "features": 3, "model": 2}
