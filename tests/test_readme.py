"""The README's transcript is run, and its code blocks are loaded."""

import os
import re
import subprocess
from pathlib import Path

from command import COMMAND

CHECKOUT = Path(__file__).parents[1]
README = (CHECKOUT / "README.md").read_text(encoding="utf-8")
WITHIN_A_JOB = {"EXAMLOPS_ARRAY_INDEX", "EXAMLOPS_ARRAY_OFFSET"}
"""Variables that one line of our run.sh tells the next."""


def section(name):
    [found] = re.findall(rf"<!-- run: {name} -->(.*?)<!-- end: {name} -->", README, re.DOTALL)
    return found


def blocks(text, language):
    return re.findall(rf"```{language}\n(.*?)```", text, re.DOTALL)


def exa(folder, *arguments):
    environment = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("EXAMLOPS_", "DAGSTER_", "PLATFORM_DB"))
    }
    environment["XDG_CACHE_HOME"] = str(folder / "cache")
    return subprocess.run(
        [COMMAND, *arguments],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def test_the_transcript_is_what_the_commands_print(tmp_path):
    text = section("transcript")
    [module] = blocks(text, "python")
    (tmp_path / "pipeline.py").write_text(module, encoding="utf-8")
    [console] = blocks(text, "console")
    for part in console.strip().split("$ ")[1:]:
        command, _, expected = part.partition("\n")
        result = exa(tmp_path, *command.split()[1:])
        assert result.returncode == 0, result.stderr
        assert result.stdout.strip() == expected.strip(), command


def test_the_snapshots_are_what_the_commands_print(tmp_path):
    [console] = blocks(section("snapshots"), "console")
    for part in console.strip().split("$ ")[1:]:
        command, _, expected = part.partition("\n")
        if command.startswith("exa "):
            result = exa(tmp_path, *command.split()[1:])
            assert result.returncode == 0, result.stderr
            assert result.stdout.strip() == expected.strip(), command
        else:
            subprocess.run(["bash", "-c", command], cwd=tmp_path, timeout=300, check=True)


def test_the_declarations_load_and_build(tmp_path):
    [module] = blocks(section("module"), "python")
    (tmp_path / "declared.py").write_text(module, encoding="utf-8")
    status = exa(tmp_path, "-m", "declared", "assets", "status")
    assert status.returncode == 0, status.stderr
    built = exa(tmp_path, "-m", "declared", "assets", "materialize", "daily_report", "jobs_daily")
    assert built.returncode == 0, built.stderr
    assert (tmp_path / "report.json").is_file()
    assert "jobs_daily (3 partitions)" in built.stdout


def test_the_policy_holds_back_what_the_command_beside_it_asks_for(tmp_path):
    [module] = blocks(section("transcript"), "python")
    (tmp_path / "pipeline.py").write_text(module, encoding="utf-8")
    [policy] = blocks(README, "yaml")
    (tmp_path / "policy.yaml").write_text(policy, encoding="utf-8")
    [command] = re.findall(
        r"^\$ exa (assets materialize .* --resources gpus=8.*)$", README, re.MULTILINE
    )
    exa(tmp_path, "init")
    exa(tmp_path, "assets", "declare", "PM100")
    held = exa(tmp_path, "-m", "pipeline", *command.split())
    assert held.returncode == 1, held.stderr
    assert "matched policy rule 'many-gpus'" in held.stderr


def test_every_command_that_is_named_exists(tmp_path):
    named = set(re.findall(r"`exa ((?:(?:approvals|assets|audit|data|hpc) )?[a-z][a-z-]*)", README))
    assert named
    for command in named:
        shown = exa(tmp_path, *command.split(), "--help")
        assert shown.returncode == 0, command


def test_the_aliases_load_and_build(tmp_path):
    [module] = blocks(section("aliases"), "python")
    (tmp_path / "aliased.py").write_text(module, encoding="utf-8")
    built = exa(tmp_path, "-m", "aliased", "assets", "materialize", "summary", "announce", "log")
    assert built.returncode == 0, built.stderr
    assert "rebuilt load, summary, announce, log" in built.stdout


def test_every_setting_that_the_package_reads_is_named_and_no_other():
    read = set()
    for path in (CHECKOUT / "examlops_dagster").rglob("*.py"):
        read |= set(re.findall(r"\bEXAMLOPS_[A-Z0-9_]+", path.read_text(encoding="utf-8")))
    short = set(re.findall(r"`(_[A-Z0-9_]+)`", README))  # `EXAMLOPS_HPC_SSH_HOST`, `_SSH_USER`
    named = set(re.findall(r"\bEXAMLOPS_[A-Z0-9_]+", README))
    missing = {name for name in read - named if not name.endswith(tuple(short))}
    assert missing == WITHIN_A_JOB
    assert named - read == set()
