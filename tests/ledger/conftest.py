import pytest
from attempts import run_script

from examlops_dagster.ledger.builds import BuildsLedger


@pytest.fixture
def ledger(any_database, clock):
    found = BuildsLedger(any_database, clock)
    yield found
    found.close()


CLAIMER = """
import sys, time
from examlops_dagster.core.records import Attempt, Node
from examlops_dagster.ledger.builds import BuildsLedger
from examlops_dagster.store.engine import Database

ledger = BuildsLedger(Database(sys.argv[1]))
assert ledger.claim(Node("a"), "theirs", "their run") is None
ledger.begin(Attempt(Node("a"), "theirs", "fp", "", {}, "local", "their run"))
print("claimed", flush=True)
time.sleep(600)
"""


@pytest.fixture
def claimer(any_database):
    """A process that has claimed ``a`` and is building it."""
    process = run_script(CLAIMER, any_database.location)
    assert process.stdout.readline() == "claimed\n"
    yield process
    process.kill()
    process.communicate()


@pytest.fixture
def real(any_database):
    found = BuildsLedger(any_database)
    yield found
    found.close()
