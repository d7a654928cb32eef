"""The table of jobs got another key; what was in it stays."""

from datetime import datetime, timezone

from examlops_dagster.core.records import Node
from examlops_dagster.ledger.jobs import HpcJobs
from examlops_dagster.store import migrations
from examlops_dagster.store.engine import Database
from examlops_dagster.store.migrations import migrate
from examlops_dagster.store.tables import MIGRATIONS


def test_jobs_of_an_older_version_are_kept(tmp_path, monkeypatch):
    database = Database(tmp_path / "platform.db")
    monkeypatch.setattr(migrations, "MIGRATIONS", MIGRATIONS[:3])
    migrate(database)
    with database.write() as connection:
        connection.execute(
            "INSERT INTO hpc_jobs (token, scheduler, cluster, job_id, submitted_at, model, asset, "
            "partition, fingerprint, build_id, run_id, folder, state, reason, hosts) VALUES "
            "('t', 'slurm', '', '17', 1.5, 'asset:model', 'model', 'k', 'print', 'build', 'run', "
            "'/jobs/t', 'RUNNING', '', 'n1')"
        )
    monkeypatch.undo()
    migrate(database)
    [job] = HpcJobs(database).listed()
    assert (job.token, job.job_id, job.node, job.array_index) == (
        "t",
        "17",
        Node("model", "k"),
        None,
    )
    assert job.submitted_at == datetime.fromtimestamp(1.5, timezone.utc)
    assert HpcJobs(database).unclaimed(Node("model", "k"), "print") == [job]
    database.close()
