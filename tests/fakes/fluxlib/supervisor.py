"""The process that runs the jobs of one submit, and takes orders about them."""

import contextlib
import json
import os
import signal
import subprocess
import time
from pathlib import Path

from fluxlib import placing
from fluxlib.instance import HOSTS, event, f58

TICK = 0.02
KILL_SECONDS = 5.0


def supervise(instance, ids):
    environment = json.loads(instance.path(ids[0], ".env").read_text())
    jobs = [Supervised(instance, instance.load(int(number)), environment) for number in ids]
    while jobs:
        jobs = [job for job in jobs if not job.step()]
        time.sleep(TICK)
    return 0


class Supervised:
    def __init__(self, instance, job, environment):
        self.instance = instance
        self.job = job
        self.environment = environment
        self.process = None
        self.ends_at = None
        self.kill_at = None
        self.result = None
        self.room = {}
        self.lost_at = None

    def step(self):
        """Do what is due; true when the job is over."""
        for order in self.instance.orders(self.job["id"]):
            self._obey(order)
        if self.job["state"] == "INACTIVE":
            return True
        if self.process is None:
            return self._start()
        return self._watch()

    def _obey(self, order):
        if "cancel" in order and self.job["state"] != "INACTIVE":
            self._raise("cancel", order["cancel"])
            self.result = "CANCELED"
            if self.process is None:
                self._inactive(-128, None)
            else:
                self._signal(signal.SIGTERM)
                self.kill_at = time.monotonic() + KILL_SECONDS
        if "kill" in order and self.process is not None:
            self._signal(order["kill"])
        if "urgency" in order:
            self.job["urgency"] = order["urgency"]
            self.instance.save(self.job)

    def _start(self):
        job = self.job
        if job["unsatisfiable"]:
            self._raise("alloc", f"unsatisfiable request: {job['unsatisfiable']}")
            self.result = "FAILED"
            self._inactive(1, None)
            return True
        room = None if job["urgency"] == 0 else self.instance.take(job["asked"])
        if room is None:
            return False
        self.room = room
        job["state"] = "RUN"
        job["room_ranks"] = sorted(room)
        job["nnodes"] = len(room)
        if job["kind"] == "batch":
            job["ntasks"] = len(room)
        job["ncores"] = sum(len(cores) for cores, _ in room.values())
        job["annotations"] = {"sched": {"resource_summary": placing.summary(room)}}
        job["t_run"] = event(job, "alloc", annotations=job["annotations"])
        if job["duration"]:
            job["expiration"] = job["t_run"] + job["duration"]
            self.ends_at = time.monotonic() + job["duration"]
        event(job, "start")
        self.instance.save(job)
        try:
            self.process = self._spawn()
        except FileNotFoundError as error:
            return self._not_started(127, error)
        except PermissionError as error:
            return self._not_started(126, error)
        except IsADirectoryError as error:
            return self._not_started(126, error)
        return self.process is None

    def _spawn(self):
        job = self.job
        number = job["id"]
        cwd = job["cwd"] if Path(job["cwd"]).is_dir() else "/tmp"  # what Flux does
        with contextlib.ExitStack() as files:
            try:
                out = files.enter_context(self._log("output", ".stdout", cwd))
                err = (
                    out
                    if not job["error"] and job["output"]
                    else files.enter_context(self._log("error", ".stderr", cwd))
                )
            except OSError:
                self._raise("exec", "shell_init: No such file or directory")
                self.result = "FAILED"
                self.instance.give_back(self.room)
                self._inactive(1, None)
                return None
            # without --input the job would wait for ever
            stdin = (
                files.enter_context((Path(cwd) / job["input"]).open("rb"))
                if job["input"]
                else subprocess.PIPE
            )
            argv = [self._expanded(word) for word in job["command"]]
            if job["kind"] == "batch":
                script = self.instance.path(number, ".script")
                script.write_text(job["script"])
                script.chmod(0o700)
                argv = [str(script), *argv[1:]]
            return subprocess.Popen(
                argv, cwd=cwd, env=self._variables(), stdin=stdin, stdout=out, stderr=err,
                start_new_session=True,
            )  # fmt: skip

    def _variables(self):
        job = self.job
        plain = f58(job["id"], plain=True)
        gpus = self.room[job["room_ranks"][0]][1]
        own = {"FLUX_URI": f"local://{self.instance.folder}/local-0", "FLUX_JOB_SIZE": str(job["ntasks"]),
               "FLUX_JOB_NNODES": str(job["nnodes"]), "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
               "CUDA_VISIBLE_DEVICES": ",".join(map(str, gpus)) or "-1"}  # fmt: skip
        own["FLUX_ENCLOSING_ID" if job["kind"] == "batch" else "FLUX_JOB_ID"] = plain
        if job["cc"] is not None:
            own["FLUX_JOB_CC"] = str(job["cc"])
        return {**self.environment, **own}

    def _log(self, key, suffix, cwd):
        named = self.job[key]
        if named is None:
            return self.instance.path(self.job["id"], suffix).open("wb")
        return (Path(cwd) / self._expanded(named)).open("wb")

    def _expanded(self, text):
        number = self.job["id"]
        known = {"id": f58(number, plain=False), "id.dec": str(number), "name": self.job["name"],
                 "id.f58plain": f58(number, plain=True), "tmpdir": str(self.instance.folder)}  # fmt: skip
        for name, value in known.items():
            text = text.replace("{{" + name + "}}", value)
        return text

    def _not_started(self, code, error):
        host = HOSTS[self.job["room_ranks"][0]]
        note = f"task 0 (host {host}): start failed: {self.job['command'][0]}: {error.strerror}"
        self._raise("exec", note)
        self.result = "FAILED"
        self.instance.give_back(self.room)
        self._inactive(code, code << 8)
        return True

    def _watch(self):
        now = time.monotonic()
        self._lose_nodes()
        if self.ends_at is not None and now >= self.ends_at:
            self.ends_at = None
            self._raise("timeout", "resource allocation expired")
            self.result = "TIMEOUT"
            self._signal(signal.SIGALRM)
            self.kill_at = now + KILL_SECONDS
        if self.kill_at is not None and now >= self.kill_at:
            self.kill_at = None
            self._signal(signal.SIGKILL)
        code = self.process.poll()
        if code is None:
            return False
        if self.process.stdin is not None:
            self.process.stdin.close()
        self.instance.give_back(self.room)
        if self.job["kind"] == "batch" and code:
            self._broker_says(code)
        code = 128 - code if code < 0 else code
        if self.lost_at == self.job["room_ranks"][0]:
            code = 1  # what is left of its shell is not known
        self.result = self.result or ("FAILED" if code else "COMPLETED")
        self._inactive(code, code << 8)
        return True

    def _broker_says(self, code):
        """Add what the nested instance says of its script to the log of the job."""
        named = self.job["error"] or self.job["output"]
        if named is None:
            return
        how = signal.strsignal(-code) if code < 0 else "Exited"
        now = time.strftime("%b %d %H:%M:%S", time.gmtime())
        age = time.time() - self.job["t_run"]
        with (Path(self.job["cwd"]) / self._expanded(named)).open("a") as log:
            log.write(
                f"{now}.{0:06} UTC {time.gmtime().tm_year} broker.err[0]: "
                f"rc2.0: {self.instance.path(self.job['id'], '.script')} {how} "
                f"(rc={128 - code if code < 0 else code}) {age:.1f}s\n"
            )

    def _signal(self, number):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, number)

    def _lose_nodes(self):
        """End as Flux does it: a nested instance goes on, unless it lost its first node."""
        lost = [rank for rank in self.job["room_ranks"] if rank in self.instance.lost()]
        if not lost or self.lost_at is not None:
            return
        self.lost_at = rank = lost[0]
        shell = self.job["room_ranks"].index(rank)
        where = f"node failure on {HOSTS[rank]}"
        if self.job["kind"] == "batch" and shell:
            self._raise("node-failure", f"{where} (shell rank {shell})", severity=2)
            return
        self._raise("exec", f"{where} (rank {rank})")
        self.result = "FAILED"
        self._signal(signal.SIGTERM if shell else signal.SIGKILL)
        self.kill_at = time.monotonic() + KILL_SECONDS

    def _raise(self, kind, note, severity=0):
        self.job["exception"] = {"occurred": True, "severity": severity, "type": kind, "note": note}
        event(self.job, "exception", type=kind, severity=severity, note=note, userid=os.getuid())
        self.instance.save(self.job)

    def _inactive(self, code, waitstatus):
        job = self.job
        job["returncode"] = code
        job["result"] = self.result
        job["success"] = self.result == "COMPLETED"
        if waitstatus is None:
            job["t_cleanup"] = time.time()
        else:
            job["waitstatus"] = waitstatus
            job["t_cleanup"] = event(job, "finish", status=waitstatus)
            event(job, "release", ranks="all", final=True)
            event(job, "free")
        job["t_inactive"] = event(job, "clean")
        job["state"] = "INACTIVE"
        self.instance.save(job)
