"""Writes run.sh: what a job was asked to run, every value quoted, none of the environment."""

from __future__ import annotations

import json
import os
import re
import shlex
import string
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from examlops_dagster.settings import ARRAY_INDEX, ARRAY_OFFSET, HPC_REMOTE_PYTHON, HPC_REMOTE_REPO

INDEX_VARIABLES = {"slurm": "SLURM_ARRAY_TASK_ID", "flux": "FLUX_JOB_CC"}
"""Where a scheduler tells a task of an array its index; ours is the one of all others."""

KILL_SECONDS = 30
"""Between SIGTERM and SIGKILL for a program that reached its time limit."""

_PACKAGE_ROOT = str(Path(__file__).resolve().parents[2])
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")


@dataclass(frozen=True)
class ScriptPlan:
    """What goes into run.sh.

    Attributes
    ----------
    title
        For people: the asset.
    token, folder
        Of the job.
    argv
        What is run.
    roots
        Folders for PYTHONPATH; None leaves it alone.
    variables
        Ours, that the program gets.
    setup
        Lines of shell that the user wrote, before the interpreter (``module load ...``).
    limit_seconds
        Of the program's running time.
    scheduler
        Its name says which variable has the index of a task.
    is_array
        Whether it is started once for each task, with ``variables.sh`` of the task's folder.
    takes_index
        Whether ``--index N`` follows what is run in an array.
    directory
        Working directory of the program; None for the job's folder.
    """

    title: str
    token: str
    folder: Path
    argv: Sequence[str]
    roots: Sequence[str] | None = None
    variables: Mapping[str, str] = field(default_factory=dict)
    setup: Sequence[str] = ()
    limit_seconds: float | None = None
    scheduler: str = ""
    is_array: bool = False
    takes_index: bool = True
    directory: str | None = None


def render(plan: ScriptPlan) -> str:
    """Give the text of run.sh."""
    lines = [
        f"export PYTHONPATH={quote(os.pathsep.join(plan.roots))}${{PYTHONPATH:+:$PYTHONPATH}}"
        if plan.roots
        else "",
        *(f"export {name}={quote(value)}" for name, value in plan.variables.items()),
    ]
    if plan.is_array:
        lines.append('. "$folder/in$task/variables.sh"')
    if plan.setup:
        lines.extend(("set +u", *plan.setup, "set -u"))
    if plan.directory is not None:
        lines.append(f"cd -- {quote(plan.directory)} || true")
    argv = " ".join(map(quote, plan.argv))
    return _SCRIPT.substitute(
        title=json.dumps(plan.title),
        folder=quote(str(plan.folder)),
        token=quote(plan.token),
        index=_index(plan),
        limit=""
        if plan.limit_seconds is None
        else f"timeout --signal=TERM --kill-after={KILL_SECONDS} {plan.limit_seconds:g}",
        whole_limit=-1 if plan.limit_seconds is None else int(plan.limit_seconds),
        prepare="\n".join(line for line in lines if line),
        argv=f'{argv} --index "$index"' if plan.is_array and plan.takes_index else argv,
    )


def quote(value: str) -> str:
    """Quote for bash, on one line: a line of its own could read as a directive of a scheduler."""
    if not _CONTROL.search(value):
        return shlex.quote(value)
    escaped = value.replace("\\", "\\\\").replace("'", "\\'")
    return "$'" + _CONTROL.sub(lambda m: f"\\{ord(m.group()):03o}", escaped) + "'"


def write_script(path: Path, text: str) -> None:
    """Write an executable file for this user alone."""
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o700)
    with os.fdopen(handle, "wb") as file:
        file.write(os.fsencode(text))
        os.fchmod(file.fileno(), 0o700)
        file.flush()
        os.fsync(file.fileno())


def job_python(environment: Mapping[str, str]) -> str:
    """Give the interpreter of jobs.

    ``EXAMLOPS_HPC_REMOTE_PYTHON``; else that of ``.venv`` in ``EXAMLOPS_HPC_REMOTE_REPO``; else
    this one.
    """
    named = environment.get(HPC_REMOTE_PYTHON)
    if named:
        return named
    repository = environment.get(HPC_REMOTE_REPO)
    if repository:
        return f"{repository.rstrip('/')}/.venv/bin/python"
    return sys.executable


def python_roots(
    module_root: str | None, working_directory: str | None, environment: Mapping[str, str]
) -> list[str]:
    """Give the folders for the PYTHONPATH of a job.

    Our package first, so that the job runs the code that wrote it; then the root of the
    function's module; then the working directory, where this process imports from it.
    ``site-packages`` is passed only to the interpreter that it belongs to: in front of another
    one's libraries it would mix two sets of compiled packages.
    """
    python = job_python(environment)
    found: list[str] = []
    on_path = working_directory is not None and ("" in sys.path or working_directory in sys.path)
    for root in (_PACKAGE_ROOT, module_root, working_directory if on_path else None):
        if root is None:
            continue
        installed = Path(root).name in ("site-packages", "dist-packages")
        if installed and python != sys.executable:
            continue
        moved = rerooted(root, environment)
        if moved not in found:
            found.append(moved)
    return found


def rerooted(path: str, environment: Mapping[str, str]) -> str:
    """Give the path on the cluster of something inside the repository.

    ``EXAMLOPS_HPC_REMOTE_REPO`` stands there for the repository of the working directory here.
    """
    repository = environment.get(HPC_REMOTE_REPO)
    local = _repository_of(path) if repository else None
    if not repository or local is None:
        return path
    return os.path.normpath(os.path.join(repository, os.path.relpath(path, local)))  # noqa: PTH118


def _repository_of(path: str) -> str | None:
    """Give the folder upward that is a checkout."""
    here = Path(path)
    for folder in (here, *here.parents):
        if (folder / ".git").exists():
            return str(folder)
    return None


def _index(plan: ScriptPlan) -> str:
    if not plan.is_array:
        return "index=\ntask="
    variable = INDEX_VARIABLES.get(plan.scheduler, ARRAY_INDEX)
    return f'index=$(( ${{{variable}:?}} + ${{{ARRAY_OFFSET}:-0}} ))\ntask=".$index"'


_SCRIPT = string.Template(
    r"""#!/usr/bin/env bash
# asset $title
set -euo pipefail
folder=$folder
token=$token
$index
if [ -e "$$folder/withdrawn$$task" ]; then
  echo "this job was given up before it started: nothing is run" >&2
  exit 0
fi
restart=$${SLURM_RESTART_COUNT:-0}
child= caught= signal=

# Kills for memory in this cgroup: a child can be killed while the program itself ends well.
# No subshells here and below: in a large array their forks are most of what a task costs.
oom_kills() {
  local kind path count=0 word number
  while IFS=: read -r _ kind path; do
    case $$kind in
      '') path=/sys/fs/cgroup$$path/memory.events ;;
      memory) path=/sys/fs/cgroup/memory$$path/memory.oom_control ;;
      *) continue ;;
    esac
    while read -r word number; do
      if [ "$$word" = oom_kill ]; then count=$$number; fi
    done < "$$path" || true
  done < /proc/self/cgroup || true
  kills=$${count//[^0-9]/}
}
oom_kills 2>/dev/null
oom_before=$$kills

# The exit record is the proof of how the job ended; it is there whole, or not at all.
record() {
  local code=$$? reached=false now
  trap - EXIT
  if [ -z "$$child" ] && [ "$$code" -eq 0 ]; then # by a line of set-up, or a file that it reads
    echo "the set-up ended the job before its program was started" >&2
    code=126
  fi
  trap '' HUP INT TERM ALRM USR1 USR2
  if [ $whole_limit -ge 0 ] && [ "$$SECONDS" -ge $whole_limit ]; then
    case $$code in 124 | 137) reached=true ;; esac
  fi
  oom_kills 2>/dev/null
  TZ=UTC0 printf -v now '%(%Y-%m-%dT%H:%M:%SZ)T' -1
  printf '{"token": "%s", "code": %d, "signal": "%s", "limit_reached": %s, "time": "%s", "host": "%s", "oom_kills": %d, "seconds": %d, "restart": %d, "index": "%s"}\n' \
    "$$token" "$$code" "$$signal" "$$reached" "$$now" \
    "$${HOSTNAME//[^A-Za-z0-9._-]/}" "$$((kills - oom_before))" "$$SECONDS" "$${restart//[^0-9]/}" "$$index" \
    > "$$folder/.exit$$task.$$$$"
  mv -f -- "$$folder/.exit$$task.$$$$" "$$folder/exit$$task.json"
  exit "$$code"
}
pass_on() {
  caught=$$1 signal=$$1
  [ -n "$$child" ] || exit "$$2"
  local passed=$$1 to=-$$child
  if [ $${#limit[@]} -gt 0 ]; then # timeout(1) passes on what would not end it unheard
    case $$1 in USR?) ;; *) to=$$child ;; esac
  elif [ "$$1" = ALRM ]; then # which is timeout's own sign for the end
    passed=TERM
  fi
  kill -s "$$passed" -- "$$to" 2>/dev/null || kill -s "$$passed" "$$child" 2>/dev/null || true
}
trap record EXIT
trap 'pass_on HUP 129' HUP
trap 'pass_on INT 130' INT
trap 'pass_on TERM 143' TERM
trap 'pass_on ALRM 142' ALRM # Flux ends a job so at its limit, and bash alone would say 0
trap 'pass_on USR1 138' USR1
trap 'pass_on USR2 140' USR2

# A scheduler that starts the job again leaves the files of the attempt before.
for left in "exit$$task.json" "messages$$task.jsonl" "outlets$$task.jsonl" "out$$task"; do
  if [ -e "$$folder/$$left" ]; then
    mv -f -- "$$folder/$$left" "$$folder/$$left.before.$$restart.$$$$"
  fi
done

cd -- "$$folder"
$prepare
limit=($limit)
command -v timeout >/dev/null 2>&1 || limit=()
set -m # a process group of its own, which the signals are passed on to
(
  trap '' USR1 USR2
  exec $${limit[@]+"$${limit[@]}"} $argv
) < /dev/null &
child=$$!
set +m
while :; do
  caught= code=0
  wait "$$child" || code=$$?
  [ -n "$$caught" ] || break
done
exit "$$code"
"""
)
