import os
import signal
import uuid
from datetime import datetime, timezone

import pytest
from clock import Clock
from hypothesis import HealthCheck, settings
from needs import IN_CI, lack, library

from examlops_dagster.store.engine import Database
from examlops_dagster.store.migrations import migrate

POSTGRES = os.environ.get("EXAMLOPS_TEST_POSTGRES", "")

# Started in the background by a script, a process ignores SIGINT, and all that it starts does too;
# Dagster then gives SIGTERM the same fate.
for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
    if signal.getsignal(number) is signal.SIG_IGN:
        interrupts = number is signal.SIGINT
        signal.signal(number, signal.default_int_handler if interrupts else signal.SIG_DFL)

settings.register_profile(
    "examlops",
    deadline=None,
    max_examples=60,
    suppress_health_check=[HealthCheck.too_slow],
    derandomize=IN_CI,
)
settings.load_profile("examlops")


@pytest.fixture(autouse=True)
def clean_environment(monkeypatch):
    ours = ("EXAMLOPS_", "OPENLINEAGE_", "SBATCH_", "PREFECT_")
    for name in list(os.environ):
        if name in ("DAGSTER_HOME", "PLATFORM_DB") or name.startswith(ours):
            monkeypatch.delenv(name)


@pytest.fixture(scope="session")
def template(tmp_path_factory):
    """Make the databases of a home once: what costs the most."""
    from homes import Homestead  # imports dagster, which most tests do without

    folder = tmp_path_factory.mktemp("template") / "home"
    with pytest.MonkeyPatch.context() as monkeypatch:
        home = Homestead(folder, monkeypatch)
        home.states()
        assert home.instance
        home.close()
    return folder


@pytest.fixture
def home(tmp_path, monkeypatch, template):
    """A project on a real Dagster instance, in a folder of its own."""
    from homes import Homestead

    found = Homestead(tmp_path / "home", monkeypatch, copy_of=template)
    yield found
    found.close()


@pytest.fixture
def chain(home):
    """Give the chain PM100 -> features -> model, with nothing built."""
    from homes import CHAIN

    home.declare("PM100")
    return home.module(CHAIN)


@pytest.fixture
def clock():
    return Clock(datetime(2026, 1, 5, 12, 0, tzinfo=timezone.utc))  # a Monday


@pytest.fixture
def awkward_path(tmp_path):
    path = tmp_path / 'it\'s a "folder"; with\na newline $HOME'
    path.mkdir()
    return path


@pytest.fixture
def postgres_url():
    """The URL of an empty schema of its own."""
    if not POSTGRES:
        lack("EXAMLOPS_TEST_POSTGRES is not set: no Postgres to test with")
    psycopg = library("psycopg")
    schema = f"test_{uuid.uuid4().hex}"
    with psycopg.connect(POSTGRES, autocommit=True) as connection:
        connection.execute(f"CREATE SCHEMA {schema}")
        yield f"{POSTGRES}{'&' if '?' in POSTGRES else '?'}options=-csearch_path%3D{schema}"
        connection.execute(f"DROP SCHEMA {schema} CASCADE")


@pytest.fixture
def database(tmp_path):
    found = Database(tmp_path / "platform.db")
    migrate(found)
    yield found
    found.close()


@pytest.fixture(params=["sqlite", "postgres"])
def any_database(request):
    if request.param == "sqlite":
        yield request.getfixturevalue("database")
        return
    found = Database(request.getfixturevalue("postgres_url"))
    migrate(found)
    yield found
    found.close()
