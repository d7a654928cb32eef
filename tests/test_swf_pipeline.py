"""A pipeline over the accounting log of a real machine, checked against plain loops.

The user's module computes with pandas and numpy; what it must give is computed again here from the
text of the log, with nothing but Python's own numbers.
"""

import importlib
import json
import math
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from needs import SHARED, shared

LOG = SHARED / "data" / "NASA-iPSC-1993-3.1-cln.swf"
JOBS_IN_LOG = 18_239
APPENDED = 500
NOT_KNOWN = 5

pytestmark = shared(f"data/{LOG.name}")

USERS_MODULE = '''
"""How long will a job run? From the accounting log of a machine to a model and a report."""

import json
from pathlib import Path

from examlops_dagster import AssetOutput, asset

HERE = Path(__file__).parent
COLUMNS = ["job", "submitted", "wait", "runtime", "processors", "cpu", "memory", "asked_processors",
           "asked_time", "asked_memory", "status", "user", "group", "application", "queue",
           "partition", "after", "think"]
KNOWN_BEFORE = ["log_processors", "log_last", "is_first", "is_batch"]


@asset(kind="feature", deps=["trace"])
def features():
    import numpy as np
    import pandas as pd

    log = pd.read_csv(HERE / "trace.swf", sep=r"\\s+", comment=";", header=None, names=COLUMNS)
    ran = log[(log.runtime >= 0) & (log.processors > 0)].reset_index(drop=True)
    last = ran.groupby("user").runtime.shift(1)
    return pd.DataFrame({
        "user": ran.user,
        "runtime": ran.runtime,
        "log_runtime": np.log1p(ran.runtime),
        "log_processors": np.log2(ran.processors),
        "last": last.fillna(0).astype("int64"),
        "log_last": np.log1p(last.fillna(0)),
        "is_first": last.isna().astype("int64"),
        "is_batch": (ran.queue == 1).astype("int64"),
    })


@asset(kind="model", inputs={"jobs": features})
def runtime_model(jobs):
    import numpy as np

    train = jobs.iloc[: len(jobs) * 4 // 5]
    x = np.column_stack([np.ones(len(train)), train[KNOWN_BEFORE]])
    weights, *_ = np.linalg.lstsq(x, train.log_runtime.to_numpy(), rcond=None)
    return AssetOutput([float(w) for w in weights], metadata={"n_train": len(train)})


@asset(kind="report", inputs={"jobs": features, "weights": runtime_model})
def report(jobs, weights):
    import numpy as np

    test = jobs.iloc[len(jobs) * 4 // 5 :]
    told = test[KNOWN_BEFORE].to_numpy() @ np.array(weights[1:]) + weights[0]
    found = {
        "jobs": len(jobs),
        "users": int(jobs.user.nunique()),
        "seconds": int(jobs.runtime.sum()),
        "tested": len(test),
        "error": float(np.abs(told - test.log_runtime).mean()),
        "error_of_last": float(np.abs(test.log_last - test.log_runtime).mean()),
    }
    (HERE / "report.json").write_text(json.dumps(found))
    return found
'''


def expected_report(log):
    """Compute the report from the text of a log, without a library."""
    jobs, last_of_user = [], {}
    for line in log.splitlines():
        if line.startswith(";") or not line.strip():
            continue
        column = line.split()
        runtime, processors, user, queue = (int(column[n]) for n in (3, 4, 11, 14))
        if runtime < 0 or processors <= 0:  # -1: not known
            continue
        last = last_of_user.get(user)
        last_of_user[user] = runtime
        known = (
            1.0,
            math.log2(processors),
            math.log(1 + (last or 0)),
            float(last is None),
            float(queue == 1),
        )
        jobs.append((user, runtime, known))
    cut = len(jobs) * 4 // 5
    weights = least_squares([(known, math.log(1 + runtime)) for _, runtime, known in jobs[:cut]])
    errors, errors_of_last = [], []
    for _, runtime, known in jobs[cut:]:
        truth = math.log(1 + runtime)
        errors.append(abs(sum(w * k for w, k in zip(weights, known, strict=True)) - truth))
        errors_of_last.append(abs(known[2] - truth))
    return {
        "jobs": len(jobs),
        "users": len({user for user, _, _ in jobs}),
        "seconds": sum(runtime for _, runtime, _ in jobs),
        "tested": len(jobs) - cut,
        "error": math.fsum(errors) / len(errors),
        "error_of_last": math.fsum(errors_of_last) / len(errors_of_last),
    }


def least_squares(rows):
    """Solve the normal equations by elimination; columns of zeros get the weight zero."""
    size = len(rows[0][0])
    used = [n for n in range(size) if any(known[n] for known, _ in rows)]
    table = [
        [math.fsum(known[a] * known[b] for known, _ in rows) for b in used]
        + [math.fsum(known[a] * truth for known, truth in rows)]
        for a in used
    ]
    for n in range(len(used)):
        best = max(range(n, len(used)), key=lambda m: abs(table[m][n]))
        table[n], table[best] = table[best], table[n]
        for m in range(len(used)):
            if m != n:
                ratio = table[m][n] / table[n][n]
                table[m] = [x - ratio * y for x, y in zip(table[m], table[n], strict=True)]
    weights = [0.0] * size
    for place, n in enumerate(used):
        weights[n] = table[place][-1] / table[place][place]
    return weights


def appended_jobs():
    """Give jobs of two new users in the log's own format; the run time of some is not known."""
    return "".join(
        f"{50_000 + n:5} {8_000_000 + 60 * n:8} -1 {30 + 7 * n % 900 if n % 100 else -1:6} "
        f"{2 ** (n % 8):4} "
        f"-1 -1 -1 -1 -1 -1 {900 + n % 2} 1 1 {n % 3 % 2} -1 -1 -1\n"
        for n in range(APPENDED)
    )


@pytest.fixture
def project(tmp_path):
    folder = tmp_path / "the project"
    folder.mkdir()
    (folder / "trace.swf").write_bytes(LOG.read_bytes())
    (folder / "swf_assets.py").write_text(textwrap.dedent(USERS_MODULE))
    return folder


def exa(project, *arguments):
    """Run the command in a process of its own and give what it printed."""
    environment = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("DAGSTER", "EXAMLOPS", "PLATFORM_DB", "COV_"))
    }
    done = subprocess.run(
        [Path(sys.executable).with_name("exa"), "-m", "swf_assets", *arguments],
        cwd=project,
        env={**environment, "XDG_CACHE_HOME": str(project.parent / "cache")},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, f"{arguments}: {done.stdout}\n{done.stderr}"
    return done.stdout


def materialize(project):
    told = json.loads(exa(project, "assets", "materialize", "report", "--json"))
    return {key: told[key] for key in ("target", "rebuilt", "skipped", "unchanged")}


def status(project):
    return {row["name"]: row for row in json.loads(exa(project, "assets", "status", "--json"))}


def written_report(project):
    return json.loads((project / "report.json").read_text())


def test_the_loops_count_every_job_of_the_log():
    log = LOG.read_text()
    assert sum(not line.startswith(";") for line in log.splitlines()) == JOBS_IN_LOG
    found = expected_report(log)
    assert found["jobs"] == JOBS_IN_LOG
    assert found["error"] < found["error_of_last"]


def test_the_users_functions_agree_with_the_loops(project, monkeypatch):
    monkeypatch.syspath_prepend(project)
    monkeypatch.delitem(sys.modules, "swf_assets", raising=False)
    module = importlib.import_module("swf_assets")
    monkeypatch.delitem(sys.modules, "swf_assets")
    with (project / "trace.swf").open("a") as trace:
        trace.write(appended_jobs())
    jobs = module.features()
    found = module.report(jobs, module.runtime_model(jobs).value)
    assert found == pytest.approx(expected_report((project / "trace.swf").read_text()), rel=1e-9)


@pytest.mark.slow
def test_a_log_becomes_a_model_and_appended_jobs_rebuild_what_is_stale(project):
    exa(project, "assets", "declare", "trace", "--kind", "dataset")

    assert materialize(project) == {
        "target": "report",
        "rebuilt": ["trace", "features", "runtime_model", "report"],
        "skipped": [],
        "unchanged": [],
    }
    before = written_report(project)
    assert before == pytest.approx(expected_report(LOG.read_text()), rel=1e-9)
    assert materialize(project)["rebuilt"] == []

    with (project / "trace.swf").open("a") as trace:
        trace.write(appended_jobs())
    exa(project, "assets", "source-changed", "trace")
    stale = status(project)
    assert [name for name, row in stale.items() if row["fresh"]] == ["trace"]
    assert stale["features"]["reasons"] == ["upstream trace changed (1 → 2)"]

    assert materialize(project) == {
        "target": "report",
        "rebuilt": ["features", "runtime_model", "report"],
        "skipped": ["trace"],
        "unchanged": [],
    }
    after = written_report(project)
    assert after == pytest.approx(expected_report((project / "trace.swf").read_text()), rel=1e-9)
    assert after["jobs"] == JOBS_IN_LOG + APPENDED - NOT_KNOWN
    assert after["users"] == before["users"] + 2
    rows = status(project)
    assert set(rows) == {"trace", "features", "runtime_model", "report"}
    assert all((row["version"], row["fresh"]) == (2, True) for row in rows.values())
