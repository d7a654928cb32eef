"""A project with a cluster, and the processes that build in it: what a storm passes over."""

import contextlib
import json
import os
import random
import shutil
import signal
import sqlite3
import subprocess
import time
from pathlib import Path

import psutil
from chaos_project import write_project
from command import COMMAND

FAKES = Path(__file__).resolve().parents[1] / "fakes"
COMMANDS = {"mock": (), "flux": ("flux",), "slurm": ("sbatch", "squeue", "sacct", "scontrol", "scancel")}  # fmt: skip
INSTANCE = "telemetry:\n  enabled: false\n"
LIMIT_SECONDS = 120


class Exa:
    """A command that runs, in a session of its own."""

    def __init__(self, world, words):
        self.words = words
        self.number = len(world.commands)
        self.log = world.folder / f"exa-{self.number}.log"
        with self.log.open("wb") as log:
            self._process = subprocess.Popen(
                [COMMAND, *words],
                cwd=world.home,
                env=world.environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # noqa: PLW1509
            )
        self.pid = self._process.pid

    @property
    def is_alive(self):
        return self._process.poll() is None

    def wait(self, seconds=LIMIT_SECONDS):
        return self._process.wait(seconds)

    def __str__(self):
        return f"exa {' '.join(self.words)} (#{self.number})"


class World:
    """A home, a cluster, and a seed from which everything follows that chance decides.

    Parameters
    ----------
    folder
        Empty.
    template
        A home whose databases are made.
    scheduler
        mock, flux (the fake) or slurm (that of the environment).
    """

    def __init__(self, folder, template, scheduler, seed, **variables):
        self.folder, self.scheduler, self.seed = folder, scheduler, seed
        self.rng = random.Random(f"{scheduler} {seed}")
        self.home, self.jobs, self.gates = (folder / n for n in ("home", "jobs", "gates"))
        shutil.copytree(template, self.home)
        (self.home / "dagster.yaml").write_text(INSTANCE)
        write_project(self.home, self.rng)
        self.gates.mkdir()
        programs = folder / "bin"
        programs.mkdir()
        for name in COMMANDS[scheduler]:
            (programs / name).symlink_to(FAKES / "gate")
        real = [str(FAKES)] if scheduler == "flux" else []
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("EXAMLOPS_", "DAGSTER_"))}
        self.environment = {
            **kept,
            "PATH": os.pathsep.join([str(programs), *real, os.environ["PATH"]]),
            "GATES": str(self.gates),
            "DAGSTER_HOME": str(self.home),
            "XDG_CACHE_HOME": str(folder / "cache"),
            "XDG_RUNTIME_DIR": "",
            "CHAOS": str(folder),
            "EXAMLOPS_ASSET_FALLBACK": "refuse",
            "EXAMLOPS_ASSET_ORCHESTRATOR": "scheduler",
            "EXAMLOPS_ASSET_JOB_DIR": str(self.jobs),
            "EXAMLOPS_HPC_WORKDIR": str(folder / "spool"),
            "EXAMLOPS_HPC_POLL_SECONDS": "5",
            "EXAMLOPS_HPC_SCHEDULER": scheduler,
            "EXAMLOPS_MOCK_SLOTS": "4",
            "EXAMLOPS_SLURM_CMD_TIMEOUT": "6",
            **variables,
        }
        if self.rng.random() < 0.25:  # nobody listens there, which keeps a courier at each command
            self.environment["EXAMLOPS_OPENLINEAGE_URL"] = "http://127.0.0.1:9"
        if scheduler == "flux":
            self.environment["FAKE_FLUX"] = str(folder / "flux")
            (folder / "flux").mkdir()
        self.began = time.monotonic()
        self.commands = []
        self.journal = []
        self.note(f"seed {seed} on {scheduler}")

    def note(self, text):
        self.journal.append(f"{time.monotonic() - self.began:6.2f}  {text}")

    # ---- commands

    def start(self, *words):
        command = Exa(self, words)
        self.commands.append(command)
        self.note(f"start {command}")
        return command

    def run(self, *words, seconds=LIMIT_SECONDS):
        """Run a command to its end, and give its exit code and what it said."""
        command = self.start(*words)
        code = command.wait(seconds)
        self.note(f"{command} ended with {code}")
        return code, command.log.read_text(errors="replace")

    def declare(self):
        code, said = self.run("assets", "declare", "PM100")
        assert code == 0, said

    def statuses(self):
        """Give the state of each asset by its name."""
        done = subprocess.run(
            [COMMAND, "assets", "status", "--json"], cwd=self.home, env=self.environment,
            stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False,
            timeout=LIMIT_SECONDS,
        )  # fmt: skip
        assert done.returncode == 0, done
        return {row["name"]: row["state"] for row in json.loads(done.stdout)}

    # ---- processes

    def processes(self):
        """Give all processes of this world, whoever is their parent."""
        mark = f"CHAOS={self.folder}\0".encode()
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error, OSError):
                if process.status() == psutil.STATUS_ZOMBIE:
                    continue
                if mark in Path(f"/proc/{process.pid}/environ").read_bytes():
                    yield process

    def waiting(self):
        """Give the commands that build, also those that went on without their terminal."""
        return [p for p in self.processes() if _is_request(p)]

    def functions(self):
        """Give the processes of functions that run as jobs."""
        found = []
        for file in sorted((self.home / "log").glob("*.jsonl")):
            said = read_lines(file)
            ended = {line["run"] for line in said if line["what"] == "end"}
            for line in said:
                if line["what"] == "start" and line["token"] and line["run"] not in ended:
                    with contextlib.suppress(psutil.Error):
                        found.append((file.stem, psutil.Process(line["pid"])))
        return found

    def kill_everything(self):
        """End all processes of this world."""
        for _ in range(20):
            left = list(self.processes())
            for process in left:
                with contextlib.suppress(psutil.Error):
                    process.kill()
            for command in self.commands:
                command.is_alive  # noqa: B018 - takes a zombie away
            if not left:
                return
            time.sleep(0.1)

    # ---- records

    def sql(self, statement, *parameters):
        with contextlib.closing(sqlite3.connect(self.home / "platform.db", timeout=60)) as raw:
            raw.row_factory = sqlite3.Row
            return [dict(row) for row in raw.execute(statement, parameters)]

    def executions(self):
        """Give all that was run, by its id: its node, its token, and whether it ended."""
        found = {}
        for file in sorted((self.home / "log").glob("*.jsonl")):
            for line in read_lines(file):
                if line["what"] == "start":
                    found[line["run"]] = {"node": file.stem, "ended": False, "beside": [], **line}
                elif line["what"] == "beside":
                    found[line["run"]]["beside"] = line["runs"]
                else:
                    found[line["run"]]["ended"] = line["at"]
        return found

    def open_jobs(self):
        """Give the jobs of which our records know no end, with their ids."""
        return self.sql(
            "SELECT token, job_id, asset, array_index FROM hpc_jobs WHERE job_id <> '' "
            "AND ended_at IS NULL AND state IN ('PENDING', 'RUNNING') ORDER BY submitted_at"
        )

    def cluster(self, *argv):
        """Ask the scheduler past the gate."""
        path = self.environment["PATH"].split(os.pathsep, 1)[1]
        done = subprocess.run(
            argv, env={**self.environment, "PATH": path}, stdin=subprocess.DEVNULL,
            capture_output=True, text=True, check=False, timeout=60,
        )  # fmt: skip
        return done.stdout

    def cancel(self, job):
        """Cancel a job as somebody does who does not know us."""
        if self.scheduler == "slurm":
            self.cluster("scancel", job["job_id"])
        elif self.scheduler == "flux":
            self.cluster("flux", "cancel", job["job_id"])
        else:
            task = "" if job["array_index"] < 0 else f".{job['array_index']}"
            (self.jobs / job["token"] / f"mock-cancel{task}").touch()

    def left_at_scheduler(self):
        """Give what the scheduler still has of our jobs."""
        tokens = [path.name for path in self.jobs.glob("*")]
        if self.scheduler == "slurm":
            rows = self.cluster("squeue", "-h", "-r", "-t", "PD,R,CG,S,CF", "-o", "%i %T %k %j")
            return [r for r in rows.splitlines() if any(t in r for t in tokens)]
        if self.scheduler == "flux":
            return self.cluster("flux", "jobs", "-n", "-o", "{id} {state} {name}").splitlines()
        found = []
        for process in self.processes():
            with contextlib.suppress(psutil.Error):
                if "mock_supervisor" in " ".join(process.cmdline()):
                    found.append(process.cmdline()[-1])
        return found

    def describe(self):
        """Give what happened, for whoever reads a failure."""
        logs = "\n".join(
            f"--- {command}\n{command.log.read_text(errors='replace')[-1500:]}"
            for command in self.commands
        )
        left = "\n".join(f"left: {p.pid} {' '.join(p.cmdline())}" for p in self.processes())
        return "\n".join([*self.journal, logs, left])


def _is_request(process):
    with contextlib.suppress(psutil.Error):
        words = process.cmdline()
        if len(words) > 2 and words[1] == str(COMMAND):
            return words[2:4] == ["assets", "materialize"] or words[2] == "run"
    return False


def read_lines(file):
    try:
        return [json.loads(line) for line in file.read_text().splitlines()]
    except OSError:
        return []
