from datetime import datetime, timezone

import pytest

from examlops_dagster.core.jobs import HpcJob
from examlops_dagster.core.records import Node
from examlops_dagster.schedulers.base import JobRef
from examlops_dagster.schedulers.flux import FluxScheduler
from examlops_dagster.schedulers.slurm import SlurmScheduler
from examlops_dagster.schedulers.tasks import known_id, ref_of

NOW = datetime(2026, 1, 5, tzinfo=timezone.utc)


@pytest.mark.parametrize(
    ("scheduler", "index", "offset", "known"),
    [
        (SlurmScheduler(), None, 0, "1234"),
        (SlurmScheduler(), 7, 0, "1234_7"),
        (SlurmScheduler(), 1007, 1000, "1234_7"),
        (FluxScheduler(), 7, 0, "1234"),
    ],
)
def test_a_task_is_known_by_the_id_that_people_see_and_found_again_by_it(
    scheduler, index, offset, known
):
    ref = JobRef(scheduler.name, "1234", "token", NOW, "alps", index, offset)
    assert known_id(scheduler, ref) == known
    row = HpcJob("token", scheduler.name, NOW, Node("a"), "/jobs", known, "alps", array_index=index)
    assert ref_of(row) == ref


def test_a_task_without_an_id_has_none():
    ref = JobRef("slurm", "", "token", NOW, index=3)
    assert known_id(SlurmScheduler(), ref) == ""
    assert ref_of(HpcJob("token", "slurm", NOW, Node("a"), "/jobs", array_index=3)) == ref
