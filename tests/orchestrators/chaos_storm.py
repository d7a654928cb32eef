"""Faults in an order that follows from a seed, while a project is built."""

import contextlib
import json
import signal
import sqlite3
import subprocess
import threading
import time
from pathlib import Path

import psutil
from chaos_project import BROKEN

SIGNALS = (
    signal.SIGKILL, signal.SIGTERM, signal.SIGKILL, signal.SIGINT, signal.SIGKILL, signal.SIGHUP,
)  # fmt: skip
MOST_COMMANDS = 3
"""At one time."""

BUILDS = (
    ("assets", "materialize", "top", "here"),
    ("assets", "materialize", "after"),
    ("assets", "materialize", "third", "program", "p2"),
    ("assets", "materialize", "slow", "p3", BROKEN),
    ("run",),
)
BY_SCHEDULER = ("--orchestrator", "scheduler")
"""Said to some; the others have it from the environment, and build locally what says so."""

ALWAYS = {
    "kill": 4, "terminate": 2, "interrupt": 2, "interrupt_all": 1, "hang_up": 1, "stand_still": 1,
    "interrupt_twice": 1, "kill_child": 2, "build": 4, "force": 1, "detach": 1, "change": 1,
    "cancel": 2, "cancel_by_us": 1, "kill_function": 2, "lock": 1, "at_folder": 3, "at_start": 4,
    "at_exit": 4, "tear_exit": 2,
}  # fmt: skip
WITH_COMMANDS = {
    "in_submit": 4, "lose_submit": 2, "late_submit": 1, "fail_status": 2, "hang_status": 1,
    "fail_cancel": 1,
}  # fmt: skip
OF_SLURM = {"reconfigure": 2}
OF_MOCK = {"hide_state": 2}


class Storm:
    """A schedule of faults, and what carries it out.

    Parameters
    ----------
    world
        Is hit.
    faults, seconds
        How many, within which time.
    more
        Weights of further kinds.
    """

    def __init__(self, world, *, faults, seconds, more=()):
        self.world = world
        rng = world.rng
        weights = {
            **ALWAYS,
            **(OF_MOCK if world.scheduler == "mock" else WITH_COMMANDS),
            **(OF_SLURM if world.scheduler == "slurm" else {}),
            **dict(more),
        }
        kinds = rng.choices(list(weights), list(weights.values()), k=faults)
        moments = sorted(round(rng.uniform(1.5, seconds), 2) for _ in kinds)
        self.schedule = [(at, kind, rng.random()) for at, kind in zip(moments, kinds, strict=True)]
        self.first = rng.sample(BUILDS, 2)
        self.seconds = seconds
        self.forced = set()
        self.has_changed = False
        """Whether sources advanced, so that jobs of before are outdated."""
        self.torn = set()
        """Tokens of which the exit record was cut short for good."""
        self._threads = []
        self._traps = []

    def pass_over(self):
        """Let it happen, and wait until nothing of it goes on."""
        for words in self.first:
            self._request(words)
        began = time.monotonic()
        for at, kind, chance in self.schedule:
            self._until(began + at)
            with contextlib.suppress(psutil.Error):
                getattr(self, f"_{kind}")(chance)
        self._until(began + self.seconds + 1)
        self._traps.clear()
        for thread in self._threads:
            thread.join(60)

    def _until(self, moment):
        """Let time pass, with an eye on what somebody lies in wait for."""
        while True:
            for trap in list(self._traps):
                if trap():
                    self._traps.remove(trap)
            left = moment - time.monotonic()
            if left <= 0:
                return
            time.sleep(min(left, 0.01 if self._traps else 0.1))

    def _apart(self, function, *arguments):
        thread = threading.Thread(target=function, args=arguments)
        thread.start()
        self._threads.append(thread)

    def _victim(self, chance):
        """Give a command that builds; starts one where there is none."""
        found = sorted(self.world.waiting(), key=lambda p: p.pid)
        if not found:
            self._build(chance)
            return None
        return found[int(chance * len(found))]

    # ---- signals

    def _send(self, chance, number):
        victim = self._victim(chance)
        if victim is not None:
            victim.send_signal(number)
            self.world.note(f"{number.name} to {' '.join(victim.cmdline()[2:])} ({victim.pid})")
        return victim

    def _kill(self, chance):
        self._send(chance, signal.SIGKILL)

    def _terminate(self, chance):
        self._send(chance, signal.SIGTERM)

    def _hang_up(self, chance):
        self._send(chance, signal.SIGHUP)

    def _interrupt(self, chance):
        self._send(chance, signal.SIGINT)

    def _interrupt_twice(self, chance):
        victim = self._send(chance, signal.SIGINT)
        if victim is not None:
            time.sleep(0.3 + chance)
            self.world.note("SIGINT to it again")
            victim.send_signal(signal.SIGINT)

    def _stand_still(self, chance):
        """Stop it as Ctrl-Z does, in a long storm until its heartbeat is missed."""
        seconds = 35 if chance > 0.5 and self.seconds > 20 else 1 + 5 * chance
        victim = self._send(chance, signal.SIGSTOP)
        if victim is not None:
            self._apart(_go_on, self.world, victim, seconds)

    def _interrupt_all(self, chance):
        """Interrupt it as a terminal does: with all that it started."""
        victim = self._victim(chance)
        if victim is not None:
            self.world.note(f"SIGINT to the group of {victim.pid}")
            for process in (victim, *victim.children(recursive=True)):
                with contextlib.suppress(psutil.Error):
                    process.send_signal(signal.SIGINT)

    def _kill_child(self, chance):
        victim = self._victim(chance)
        children = victim.children(recursive=True) if victim is not None else []
        if children:
            child = children[int(chance * len(children))]
            self.world.note(f"SIGKILL to {' '.join(child.cmdline())[-60:]} of {victim.pid}")
            child.kill()

    # ---- requests

    def _request(self, words):
        self.world.start(*words, *(() if "here" in words else BY_SCHEDULER))

    def _build(self, chance):
        if len(list(self.world.waiting())) < MOST_COMMANDS:
            self._request(BUILDS[int(chance * len(BUILDS))])

    def _force(self, chance):
        if len(list(self.world.waiting())) < MOST_COMMANDS:
            name = ("p0", "first", "days", "program")[int(chance * 4)]
            self.forced.add(name)
            self.world.start("assets", "materialize", name, "--force", *BY_SCHEDULER)

    def _detach(self, chance):
        if len(list(self.world.waiting())) < MOST_COMMANDS:
            self.world.start("assets", "materialize", "top", "--detach")

    def _change(self, chance):
        self.has_changed = True
        self.world.start("assets", "source-changed", "PM100")

    def _cancel_by_us(self, chance):
        jobs = self.world.open_jobs()
        if jobs:
            self.world.start("hpc", "cancel", jobs[int(chance * len(jobs))]["job_id"])

    # ---- the cluster

    def _cancel(self, chance):
        jobs = self.world.open_jobs()
        if jobs:
            job = jobs[int(chance * len(jobs))]
            self.world.note(f"somebody cancels job {job['job_id']} of {job['asset']}")
            self.world.cancel(job)

    def _kill_function(self, chance):
        found = self.world.functions()
        if found:
            node, process = found[int(chance * len(found))]
            self.world.note(f"SIGKILL to the function of {node}")
            process.kill()

    def _gate(self, kind, how, seconds, wait=0.0):
        order = {"how": how, "until": time.time() + seconds, "seconds": wait}
        part = self.world.gates / f".{kind}"
        part.write_text(json.dumps(order))
        part.replace(self.world.gates / f"{kind}.json")
        self.world.note(f"for {seconds:.1f} s {kind}: {how} {wait:.1f}")

    def _lose_submit(self, chance):
        self._gate("submit", "lost", 1 + 2 * chance)

    def _late_submit(self, chance):
        self._gate("submit", "late", 3, 1 + 2 * chance)

    def _fail_status(self, chance):
        self._gate("status", "fail", 2 + 8 * chance)

    def _hang_status(self, chance):
        self._gate("status", "hang", 2 + 4 * chance)

    def _fail_cancel(self, chance):
        self._gate("cancel", "fail", 1 + 3 * chance)

    def _reconfigure(self, chance):
        self.world.note("scontrol reconfigure")
        self.world.cluster("scontrol", "reconfigure")

    def _restart_controller(self, chance):
        """Have no controller for a while; only where nobody else needs it.

        It is stopped, not killed: a kill loses what was submitted within seconds before.
        """
        file = Path(self.world.environment["SLURM_CONF"]).parents[1] / "run" / "slurmctld.pid"
        if not file.exists():  # it is away already
            return
        controller = psutil.Process(int(file.read_text()))
        self.world.note("slurmctld is stopped")
        controller.terminate()
        self._apart(_start_controller, self.world, controller, 1 + 8 * chance)

    def _hide_state(self, chance):
        """Have the cluster know nothing of a job that has begun."""
        folders = [f for f in self.world.jobs.glob("*") if (f / "stdout.log").exists()]
        folders = [f for f in folders if not (f / "exit.json").exists()]
        if folders:
            folder = sorted(folders)[int(chance * len(folders))]
            self.world.note(f"the state of {folder.name[:8]} is hidden")
            self._apart(_hide, folder / "mock.json", 1 + 2 * chance)

    # ---- files and databases

    def _lock(self, chance):
        self.world.note("platform.db is locked")
        self._apart(_lock, self.world.home / "platform.db", 1 + 4 * chance)

    def _tear_exit(self, chance):
        """Cut the next exit record short, and make it whole after a while."""
        before = set(self.world.jobs.glob("*/exit*.json"))

        def tear():
            new = sorted(set(self.world.jobs.glob("*/exit*.json")) - before)
            if not new:
                return False
            text = new[0].read_bytes()
            if not text.endswith(b"\n"):
                return False
            new[0].write_bytes(text[: int(chance * (len(text) - 1))])
            self.world.note(f"{new[0].parent.name[:8]}/{new[0].name} is cut short for a while")
            self._apart(_mend, new[0], text, 0.5 + 2 * chance)
            return True

        self._traps.append(tear)

    # ---- the moments that matter

    def _signal_when(self, what, found, chance):
        """Send a signal to all that build, as soon as something is there that was not."""
        self._build(chance)
        before = set(found())
        number = SIGNALS[int(chance * 1000) % len(SIGNALS)]

        def trap():
            new = set(found()) - before
            if not new:
                return False
            time.sleep(chance * chance * 0.3)
            self.world.note(f"{what}: {min(new)}")
            for process in self.world.waiting():
                with contextlib.suppress(psutil.Error):
                    process.send_signal(number)
                    self.world.note(f"{number.name} to {process.pid}")
            return True

        self._traps.append(trap)

    def _at_folder(self, chance):
        files = self.world.jobs.glob
        self._signal_when("a folder is there", lambda: (f.name[:8] for f in files("*")), chance)

    def _at_start(self, chance):
        logs = self.world.home.glob

        def started():
            return (f"{f.name} {f.stat().st_size}" for f in logs("log/*.jsonl"))

        self._signal_when("a function began or ended", started, chance)

    def _at_exit(self, chance):
        files = self.world.jobs.glob

        def ended():
            return (f"{f.parent.name[:8]}/{f.name}" for f in files("*/exit*.json"))

        self._signal_when("a job ended", ended, chance)

    def _in_submit(self, chance):
        """Hit who builds while its submit is under way, which then arrives or has arrived."""
        how = "slow" if chance < 0.5 else "late"
        self._gate("submit", how, 4, 1 + 3 * (chance % 0.5))

        def said():
            seen = self.world.gates / "seen"
            lines = seen.read_text().splitlines() if seen.exists() else []
            return (line for line in lines if '"submit"' in line)

        self._signal_when("a submit is under way", said, chance)


def _go_on(world, process, seconds):
    time.sleep(seconds)
    with contextlib.suppress(psutil.Error):
        process.send_signal(signal.SIGCONT)
        world.note(f"SIGCONT to {process.pid}, after {seconds:.0f} s")


def _lock(path, seconds):
    with contextlib.closing(sqlite3.connect(path, timeout=30, isolation_level=None)) as raw:
        try:
            raw.execute("BEGIN IMMEDIATE")
        except sqlite3.OperationalError:
            return
        time.sleep(seconds)
        raw.execute("ROLLBACK")


def _mend(path, text, seconds):
    time.sleep(seconds)
    path.write_bytes(text)


def _hide(path, seconds):
    hidden = path.with_suffix(".hidden")
    with contextlib.suppress(OSError):
        path.rename(hidden)
        time.sleep(seconds)
        with contextlib.suppress(FileExistsError):  # where there is a newer one
            path.hardlink_to(hidden)
        hidden.unlink()


def _start_controller(world, former, seconds):
    with contextlib.suppress(psutil.Error):
        former.wait(60)
    time.sleep(seconds)
    conf = world.environment["SLURM_CONF"]
    done = subprocess.run(
        ["slurmctld", "-f", conf], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL, check=False, timeout=60,
    )  # fmt: skip
    world.note(f"slurmctld starts again ({done.returncode})")
