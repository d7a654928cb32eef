"""The snapshot behind all answers: kept for as long as it is true, and never written."""

from datetime import timedelta

import pytest
from homes import CHAIN, INSTANCE, Homestead

from examlops_dagster.clock import utc_now
from examlops_dagster.web.moment import Moments
from examlops_dagster.web.untouched import Untouched


@pytest.fixture(params=["sqlite", "postgres"])
def home(request, tmp_path, monkeypatch, template):
    if request.param == "postgres":
        monkeypatch.setenv("EXAMLOPS_DB_URL", request.getfixturevalue("postgres_url"))
    found = Homestead(tmp_path / "home", monkeypatch, copy_of=template)
    found.declare("PM100")
    yield found
    found.close()


@pytest.fixture
def chain(home):
    return home.module(CHAIN)


@pytest.fixture
def moments(home, chain):
    found = Moments(home.project(chain), home.instance)
    yield found
    found.close()


def states(moments):
    return {name: row["state"] for name, row in moments.now().rows.assets.items()}


def stored(home):
    """Give what the tables hold that a look at others' events would touch."""
    return [home.sql(f"SELECT * FROM {table} ORDER BY 1, 2") for table in (
        "heads", "watermarks", "first_seen", "builds", "holds", "claims",
    )]  # fmt: skip


def test_one_moment_lasts_until_something_changes(home, chain, moments):
    assert moments.now() is moments.now()
    first = moments.now()
    home.exa(chain, "model")
    assert moments.now() is not first
    assert set(states(moments).values()) == {"fresh"}
    second = moments.now()
    assert moments.now() is second
    home.advance("PM100")
    assert states(moments)["model"] == "runnable_stale"
    home.declare("later", deps=["PM100"])
    assert states(moments)["later"] == "runnable_stale"


def test_what_others_wrote_is_seen_and_not_taken_over(home, chain, moments):
    home.exa(chain, "model")
    moments.now()
    home.report("PM100", "of others")
    before = stored(home)
    assert states(moments)["features"] == "runnable_stale"
    assert moments.now().rows.assets["PM100"]["version"] == 2
    assert moments.now() is moments.now()
    assert stored(home) == before
    assert home.versions([chain])["PM100"] == 2
    home.wipe("model")
    before = stored(home)
    assert moments.now().rows.assets["model"]["version"] == 0
    assert stored(home) == before


def test_a_claim_whose_process_died_is_no_longer_running(home, chain, moments):
    now = utc_now()
    home.sql(
        "INSERT INTO claims VALUES ('features', '', 't', 'elsewhere', 1, 0, '', :now, :now)",
        now=now.timestamp(),
    )
    assert states(moments)["features"] == "running"
    home.sql("UPDATE claims SET heartbeat_at = :then", then=(now - timedelta(hours=1)).timestamp())
    assert states(moments)["features"] == "runnable_stale"


def test_a_policy_that_comes_and_goes_changes_the_moment(home, moments):
    first = states(moments)["features"]
    path = home.folder / "policy.yaml"
    path.write_text(
        "policies:\n"
        "  - {action: asset_materialize, when: asset == 'features', effect: deny, name: shut}\n"
    )
    assert states(moments)["features"] == "stale_waiting_for_request"
    path.unlink()
    assert states(moments)["features"] == first


def test_nothing_is_written_outside_a_look(any_database):
    untouched = Untouched(any_database.location)
    with pytest.raises(RuntimeError, match="must not write"), untouched.write():
        pass
    for fails in (False, True):
        try:
            with untouched.looking():
                with untouched.write() as connection:
                    connection.execute("INSERT INTO first_seen VALUES ('a', '', 1)")
                with untouched.read() as connection:
                    assert connection.execute("SELECT asset FROM first_seen") == [("a",)]
                if fails:
                    raise OSError
        except OSError:
            assert fails
        with untouched.read() as connection:
            assert connection.execute("SELECT asset FROM first_seen") == []
    with any_database.write() as connection:  # no lock is left
        connection.execute("INSERT INTO first_seen VALUES ('b', '', 1)")
    untouched.close()


def test_a_storage_of_dagster_that_is_not_the_default_is_looked_at_too(tmp_path, monkeypatch):
    folder = tmp_path / "home"
    storage = f"storage:\n  sqlite:\n    base_dir: {folder / 'elsewhere'}\n"
    home = Homestead(folder, monkeypatch, INSTANCE + storage)
    try:
        home.declare("PM100")
        chain = home.module(CHAIN)
        home.exa(chain, "model")
        moments = Moments(home.project(chain), home.instance)
        assert set(states(moments).values()) == {"fresh"}
        home.report("PM100", "of others")
        assert states(moments)["features"] == "runnable_stale"
        home.exa(chain, "model")
        assert set(states(moments).values()) == {"fresh"}
        moments.close()
    finally:
        home.close()
