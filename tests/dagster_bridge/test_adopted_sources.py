"""Requests that need the same source at the same time."""

import threading

import pytest

from examlops_dagster.core.records import Node
from examlops_dagster.errors import UsageError
from examlops_dagster.project import project as module

PM100 = Node("PM100")


@pytest.fixture
def projects(home):
    home.declare("PM100")
    found = [home.project() for _ in range(2)]
    for project in found:
        assert project.event_log.instance
    return found


def test_two_that_adopt_it_at_once_give_it_one_version(home, projects):
    ready = threading.Barrier(len(projects))
    versions = []

    def adopt(project):
        ready.wait(60)
        versions.append(project.adopt_source(PM100).version)

    threads = [threading.Thread(target=adopt, args=(project,)) for project in projects]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert versions == [1, 1]
    assert len(home.events("PM100")) == 1


def test_one_that_others_are_about_to_adopt_is_waited_for(projects, monkeypatch):
    monkeypatch.setattr(module, "_CLAIM_SECONDS", 600)
    first, second = projects
    first.ledger.claim(PM100, "token")
    timer = threading.Timer(0.3, first.ledger.release, (PM100, "token"))
    timer.start()
    assert second.adopt_source(PM100).version == 1
    timer.join()


def test_one_that_others_do_not_let_go_is_told(projects, monkeypatch):
    monkeypatch.setattr(module, "_CLAIM_SECONDS", 0.2)
    projects[0].ledger.claim(PM100, "token")
    with pytest.raises(UsageError, match="PM100 is being changed by process"):
        projects[1].adopt_source(PM100)
