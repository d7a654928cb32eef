"""The real command, each time in a new process, with nothing of this one's settings."""

import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from dataclasses import dataclass

import pytest
from command import COMMAND

LIMIT_SECONDS = 300  # only what hangs takes as long

SEED = """\
from examlops_dagster import asset


@asset("jpcp_features", kind="feature", deps=["PM100"])
def build_jpcp_features(**upstream):
    print("features from", upstream)


@asset("jpcp_model", kind="model", deps=["jpcp_features"])
def train_jpcp(**upstream):
    print("model from", upstream)
"""
"""The module of the first seed, which also prints."""


@dataclass(frozen=True)
class Done:
    """How a command ended."""

    code: int
    out: str
    err: str

    @property
    def json(self):
        return json.loads(self.out)

    @property
    def is_quiet(self):
        return "Traceback" not in self.err + self.out


class Started:
    """A command that runs; what it writes goes to files, so that it never waits for a reader."""

    def __init__(self, argv, folder, environment, stem):
        self._out, self._err = (stem.with_suffix(suffix) for suffix in (".out", ".err"))
        self._folder = folder
        with self._out.open("w") as out, self._err.open("w") as err:
            self._process = subprocess.Popen(
                argv,
                cwd=folder,
                env={**environment, "PYTHONFAULTHANDLER": "1"},
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                # a shell without job control hands an ignored SIGINT down to all that it starts
                preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # noqa: PLW1509
            )

    @property
    def pid(self):
        return self._process.pid

    def until(self, text):
        """Wait until it has written a text to stderr."""
        self._wait(lambda: text in self._err.read_text())

    def until_file(self, name):
        """Wait until a function has written a file, and give its text."""
        path = self._folder / name
        self._wait(lambda: path.exists() and path.read_text())
        return path.read_text()

    def send(self, number):
        """Send a signal to it, and to nothing that it started."""
        self._process.send_signal(number)

    def finish(self, code=0):
        """Wait for its end, and see that its exit code is the expected one."""
        try:
            self._process.wait(LIMIT_SECONDS)
        except subprocess.TimeoutExpired:
            self.send(signal.SIGABRT)  # it says where each of its threads is
            self._process.wait()
            pytest.fail(f"it hung; {self._out.read_text()} {self._err.read_text()}")
        done = Done(self._process.returncode, self._out.read_text(), self._err.read_text())
        assert code is None or done.code == code, done
        return done

    def end(self):
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait()

    def _wait(self, condition):
        deadline = time.monotonic() + LIMIT_SECONDS
        while not condition():
            ended = self._process.poll() is not None and not condition()
            if ended or time.monotonic() > deadline:
                pytest.fail(f"it never came; {self._out.read_text()} {self._err.read_text()}")
            time.sleep(0.02)


class Exa:
    """Runs ``exa`` in a folder, and what else a test does there."""

    def __init__(self, folder, cache):
        self.folder = folder
        self._cache = cache
        self._started = []

    def __call__(self, *words, code=0, cwd=None, **environment):
        """Run a command to its end, and see that its exit code is the expected one."""
        return self._run([COMMAND, *words], code, cwd, environment)

    def python(self, text, *words, code=0, **environment):
        """Run Python in the folder, with its home."""
        environment.setdefault("DAGSTER_HOME", str(self.folder))
        argv = [sys.executable, "-c", textwrap.dedent(text), *words]
        return self._run(argv, code, None, environment)

    def trace(self, *words, code=0):
        """Run a command, and give the names of the modules that it imported."""
        argv = [sys.executable, "-X", "importtime", "-m", "examlops_dagster.cli", *words]
        lines = self._run(argv, code, None, {}).err.splitlines()
        return {line.rpartition("|")[2].strip() for line in lines if line.startswith("import time")}

    def start(self, *words, **environment):
        """Start a command, and give it."""
        number = len(self._started)
        started = Started(
            [COMMAND, *words],
            self.folder,
            self.environment(environment),
            self._cache / f"{self.folder.parent.name}-{number}",
        )
        self._started.append(started)
        return started

    def close(self):
        for started in self._started:
            started.end()

    def write(self, name, text):
        path = self.folder / name
        path.write_text(textwrap.dedent(text), encoding="utf-8")
        return path

    def apart(self, pipeline, cache):
        """Write a pipeline, and take a cache of its own: the jobs of its mock count from 1."""
        cache.mkdir()
        self._cache = cache
        self.write("pipeline.py", pipeline)
        self.write("pyproject.toml", '[tool.examlops]\nmodules = ["pipeline"]\n')

    def lines(self, name):
        """Give the lines that functions have added to a file; none where there is no file."""
        path = self.folder / name
        return path.read_text().splitlines() if path.exists() else []

    def states(self, *words):
        """Give the state of each asset by name."""
        return {
            row["name"]: row["state"] for row in self("assets", "status", "--json", *words).json
        }

    def versions(self, *words):
        """Give the version of each asset by name."""
        rows = self("assets", "status", "--json", *words).json
        return {row["name"]: row["version"] for row in rows}

    def files(self):
        """Give the content of every file below the folder."""
        return {p: p.read_bytes() for p in sorted(self.folder.rglob("*")) if p.is_file()}

    def environment(self, more=()):
        own = (
            "DAGSTER_",
            "EXAMLOPS_",
            "PREFECT_",
            "PYTHONPATH",
            "PLATFORM_DB",
            "TYPER_",
            "COLUMNS",
        )
        kept = {name: value for name, value in os.environ.items() if not name.startswith(own)}
        # A module that is changed twice in a second is not read from its old bytecode.
        settings = {"XDG_CACHE_HOME": str(self._cache), "PYTHONDONTWRITEBYTECODE": "1"}
        return {**kept, **settings, **dict(more)}

    def _run(self, argv, code, cwd, environment):
        done = subprocess.run(
            argv,
            cwd=cwd or self.folder,
            env=self.environment(environment),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=LIMIT_SECONDS,
            check=False,
        )
        found = Done(done.returncode, done.stdout, done.stderr)
        assert code is None or found.code == code, f"{argv[1:]} ended with {found}"
        return found


@pytest.fixture(scope="session")
def cache(tmp_path_factory):
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(scope="session")
def built(tmp_path_factory, cache):
    """Give a home in which a pipeline that prints was built once; tests leave it as it is."""
    command = Exa(tmp_path_factory.mktemp("built"), cache)
    command.write(
        "pipeline.py",
        """\
        import os
        from examlops_dagster import asset

        print("printed at import")

        @asset("jpcp_features", kind="feature", deps=["PM100"])
        def features(**upstream):
            print("printed", upstream)
            os.system("echo printed by a child")

        @asset("jpcp_model", kind="model", deps=["jpcp_features"], timeout_seconds=None)
        def model(**upstream):
            print("printed here", upstream)
            os.system("echo printed by a child of ours")
        """,
    )
    command("assets", "declare", "PM100")
    command.report = command("-m", "pipeline", "assets", "materialize", "jpcp_model", "--json")
    return command


@pytest.fixture
def exa(tmp_path, cache):
    """Give the command in an empty folder."""
    folder = tmp_path / "project"
    folder.mkdir()
    command = Exa(folder, cache)
    yield command
    command.close()


@pytest.fixture(scope="module")
def shared(tmp_path_factory, cache):
    """Give the command in a folder that the tests of a module share."""
    command = Exa(tmp_path_factory.mktemp("shared"), cache)
    yield command
    command.close()


@pytest.fixture
def seed(exa):
    """Give the command in the folder of the first seed, with nothing built."""
    exa.write("pipeline.py", SEED)
    exa("assets", "declare", "PM100", "--kind", "dataset")
    return exa
