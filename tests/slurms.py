"""The real Slurm of tests/cluster/with-slurm, and what a test says that has none."""

import os

from needs import lack

HAS_SLURM = os.environ.get("EXAMLOPS_TEST_SLURM") == "1" and bool(os.environ.get("SLURM_CONF"))


def need_slurm():
    """Skip a test where there is no Slurm to test with; in CI that is a failure."""
    if not HAS_SLURM:
        lack("EXAMLOPS_TEST_SLURM=1 and SLURM_CONF are not set: no Slurm to test with")
