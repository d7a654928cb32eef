"""Faults at random, from a seed: no job is lost, doubled or faked.

A campaign for people, not for each change: ``make chaos SEEDS=100-150``. What it finds gets a test
of its own. ``EXAMLOPS_TEST_CHAOS_LENGTH=3`` lets storms be three times as long.
"""

import os

import pytest
from chaos_checks import problems, settle
from chaos_storm import Storm
from chaos_world import World
from slurms import need_slurm

pytestmark = pytest.mark.slow

SEEDS = os.environ["EXAMLOPS_TEST_CHAOS_SEEDS"]
LENGTH = int(os.environ.get("EXAMLOPS_TEST_CHAOS_LENGTH", "1"))


def seeds():
    first, _, last = SEEDS.partition("-")
    return range(int(first), int(last or first) + 1)


@pytest.fixture
def storm(tmp_path, template):
    """Let a storm pass over a project, and give what does not hold then."""
    worlds = []

    def pass_over(scheduler, seed, *, faults, seconds, more=(), **variables):
        folder = tmp_path / "world"
        folder.mkdir()
        world = World(folder, template, scheduler, seed, **variables)
        worlds.append(world)
        found = Storm(world, faults=faults * LENGTH, seconds=seconds * LENGTH, more=more)
        world.note(f"schedule {found.schedule}")
        try:
            world.declare()
            found.pass_over()
            settle(world, found)
            wrong = problems(world, found)
        except BaseException:
            print(world.describe())
            raise
        assert not wrong, "\n".join([*wrong, world.describe()])

    yield pass_over
    for world in worlds:
        world.kill_everything()


@pytest.mark.parametrize("seed", seeds())
def test_no_job_of_the_mock_is_lost_doubled_or_faked(storm, seed):
    storm("mock", seed, faults=12, seconds=9)


@pytest.mark.parametrize("seed", seeds())
def test_no_job_of_flux_is_lost_doubled_or_faked(storm, seed):
    storm("flux", seed, faults=12, seconds=9)


@pytest.mark.parametrize("seed", seeds())
def test_no_job_of_a_real_slurm_is_lost_doubled_or_faked(storm, seed):
    need_slurm()
    storm("slurm", seed, faults=14, seconds=14)


@pytest.mark.alone
@pytest.mark.parametrize("seed", seeds())
def test_no_job_of_a_slurm_whose_controller_is_away_is_lost_doubled_or_faked(storm, seed):
    need_slurm()
    storm("slurm", seed, faults=14, seconds=16, more={"restart_controller": 8})
