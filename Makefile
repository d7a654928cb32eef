# All set-up is done by these targets: a Debian with python3 and make is enough.
#
#   PYTHON=python3.12 make test     another interpreter (after `make clean`)
#   WORKERS=0 make test             the tests in one process, as a debugger wants it
#   ARGS='-k graph' make test       further arguments of pytest

PYTHON ?= python3
VENV ?= .venv
# two for each processor, since tests wait for other processes, but no more than 8
WORKERS ?= $(shell n=$$(($$(nproc) * 2)); echo $$((n < 8 ? n : 8)))
ARGS ?=
SEEDS ?= 1

BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed

.NOTPARALLEL:
.PHONY: help venv demo dev test found lint types bench chaos clean

help: ## show the targets
	@sed -n 's/^\([a-z]*\):.*## /  make \1\t/p' $(MAKEFILE_LIST) | expand -t 16

venv: $(INSTALLED)

$(INSTALLED): pyproject.toml .ci/make-venv
	@.ci/make-venv '$(PYTHON)' '$(VENV)'
	@touch $@

# Dagster's own commands look for their home in .env only; one that names another home stays.
.env: $(INSTALLED)
	@test -d "$$($(BIN)/dotenv -f .env get DAGSTER_HOME 2>/dev/null)" || \
	  $(BIN)/dotenv -f .env set DAGSTER_HOME '$(CURDIR)' >/dev/null
	@touch .env

demo: .env ## build a model, change its data, rebuild only what is stale
	@DAGSTER_HOME='$(CURDIR)' exec $(BIN)/python -m examlops_dagster.demo

dev: .env ## open Dagster on http://localhost:3000 with what the demo built
	@DAGSTER_HOME='$(CURDIR)' PATH='$(abspath $(BIN))':"$$PATH" exec $(BIN)/dagster dev

test: found lint types ## lint, types and tests
	@.ci/with-postgres $(BIN)/pytest -n $(WORKERS) --dist worksteal $(ARGS)

found: $(INSTALLED) # what some tests use when it is there
	@.ci/found

lint: $(INSTALLED) ## ruff: rules and format
	@$(BIN)/ruff check . .ci/with-postgres tests/cluster/with-slurm
	@$(BIN)/ruff format --check . .ci/with-postgres tests/cluster/with-slurm

types: $(INSTALLED) ## mypy --strict
	@$(BIN)/mypy

bench: $(INSTALLED) ## every benchmark, as ratios side by side with plain Dagster and peers
	@for file in benchmarks/[a-z]*.py; do \
	  echo "== $$file"; $(BIN)/python "$$file" || exit 1; \
	done

chaos: $(INSTALLED) ## storms of faults at random over real jobs: SEEDS=1-20
	@EXAMLOPS_TEST_CHAOS_SEEDS='$(SEEDS)' $(BIN)/pytest -n 0 tests/orchestrators/test_chaos.py

clean: ## remove the virtual environment, the caches and all builds of this home
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis .coverage*
	rm -rf history schedules storage logs platform.db* .logs_queue .nux .telemetry
	rm -rf examlops_dagster/demo/data
	find . -name __pycache__ -not -path './.git/*' -prune -exec rm -rf {} +
