# One command per chore, the same for people and for CI. Needs Python 3.11 (or newer, with PyBullet from elsewhere) and make.
PYTHON ?= $(shell for p in python3.11 python3.12 python3.13 python3.14 python3.15 python3; do \
	$$p -c 'import sys, venv, ensurepip; sys.exit(sys.version_info[:2] < (3, 11))' 2>/dev/null && { echo $$p; break; }; done)
# One torch version that resolves to a CPU build where there is one; a plain "torch" may pull a set of CUDA packages.
TORCH ?= torch==2.13.0
VENV := .venv
PART ?= kernels
BIN := $(VENV)/bin
# `make test` is four parts. Tests that start, kill and await processes, or robots in real time: their part leaves the
# processors to another one. The last ones need the kernels that the learner's part and the robot's compile.
PROCESSES := tests/test_cache.py tests/test_systems.py tests/test_wheel.py \
	tests/env/create2/test_clients.py tests/env/create2/test_watchdog.py tests/env/hardware/test_backend_stops.py \
	$(addprefix tests/agent/test_,exports.py watch.py ending.py resume.py resume_bodies.py \
	sharded_life.py compiled.py stop_button.py) tests/env/test_robot_cli_stops.py tests/env/test_ros2_robot.py \
	tests/env/create2/test_commands.py tests/env/critterbot/test_emulator_lines.py
# Tests that measure how soon a robot stops: after the others, since its processes must get a processor at once.
REAL_TIME := tests/agent/test_stop_in_time.py
# Tests of tests/agent that run with the robot's, so that both processors are busy to the end. Those of Stable-Baselines3
# are among them: PyTorch is imported once.
MOVED := $(filter-out $(PROCESSES) $(REAL_TIME),$(wildcard $(addprefix tests/agent/test_,bags.py cells.py comp*.py ev*.py judging.py \
	o*.py p*.py re*.py sb3.py [u-z]*.py)))
# They compile what the robot's part needs too: first, so that it is not compiled twice at the same time.
SHARED := tests/agent/test_cli.py tests/agent/test_bench.py
LEARNER := $(filter-out $(SHARED) $(MOVED) $(PROCESSES) $(REAL_TIME),$(wildcard tests/agent/test_*.py))
# A thread that waits for another sleeps and leaves its core to the other part; many short steps take half the time.
THREADS := OMP_NUM_THREADS=1 OMP_WAIT_POLICY=passive
# Numba colours each message of the overloads that it tries and rejects, which nobody reads.
export NUMBA_DISABLE_ERROR_MESSAGE_HIGHLIGHTING := 1
# Processes that tests start read byte code instead of compiling the packages, a fifth of their time, wherever `make` runs.
export PYTHONDONTWRITEBYTECODE :=
# Compiled kernels are kept between runs, keyed by the content of the sources; bounds-checked ones elsewhere, since numba
# would take the one for the other.
COMPILED = NUMBA_CACHE_DIR=$(CURDIR)/.build/numba/compiled $(THREADS)
CHECKED = NUMBA_CACHE_DIR=$(CURDIR)/.build/numba/checked $(THREADS) NUMBA_BOUNDSCHECK=1
INTERPRETED = $(THREADS) NUMBA_DISABLE_JIT=1
# Functions of scripts for a reader have few hints.
LOOSELY = --allow-untyped-defs --allow-incomplete-defs --allow-untyped-calls --no-warn-unused-ignores

.PHONY: demo test test-learner test-robot test-processes test-checked test-interpreted test-all test-page check mutants bench dist notebooks docs address clean
.DEFAULT_GOAL := test

$(BIN)/python:
	@test -n "$(PYTHON)" || { echo "no Python from 3.11 on with venv and pip was found; install one, or name it: make PYTHON=/path/to/python3.11" >&2; exit 2; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --upgrade pip

$(VENV)/.demo: $(BIN)/python pyproject.toml
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e .
	@touch $@

$(VENV)/.dev: $(BIN)/python pyproject.toml
	$(BIN)/python -m pip install --quiet --disable-pip-version-check '$(TORCH)'
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[sb3,dev]'
	@touch $@

demo: $(VENV)/.demo  ## A robot lives in its pen for 60,000 steps while 795 demons learn
	@mkdir -p runs; n=1; while [ -e runs/demo-$$n ]; do n=$$((n + 1)); done; \
	$(BIN)/horde learn --backend simulator --steps 60000 --seed 0 --out runs/demo-$$n

check: $(VENV)/.dev  ## Lint, format, types, layering, spelling, plain lines
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/mypy $(LOOSELY) docs/gallery/*.py
	$(BIN)/lint-imports
	$(BIN)/codespell
	$(BIN)/python .ci/plain_code.py

# The interpreted subset finds what test-checked finds, an index that is too large, without compiling; test-all has both,
# and the coverage, which takes half as long again.
# Two parts begin when it is done: the learner's has then compiled most of what they need.
test: $(VENV)/.dev  ## Compiled, in four parts; a small subset interpreted
	@echo "four parts, two and then three at a time; each is shown when it is done, the longest after some minutes"
	$(MAKE) --no-print-directory -j 3 --output-sync=target FIRST=test-interpreted test-learner test-interpreted \
		test-robot test-processes
	$(MAKE) --no-print-directory -j 2 --output-sync=target test-stop-create2 test-stop-critterbot

test-learner: $(VENV)/.dev
	$(COMPILED) $(BIN)/python -m pytest $(SHARED) $(LEARNER) horde_agent --ignore=horde_agent/sb3.py

test-robot: $(VENV)/.dev $(FIRST)
	$(COMPILED) $(BIN)/python -m pytest tests/env $(filter-out $(PROCESSES),$(wildcard tests/test_*.py)) tests/bench \
		tests/oracles horde_env $(MOVED) horde_agent/sb3.py $(addprefix --ignore=,$(PROCESSES))

test-processes: $(VENV)/.dev $(FIRST)
	$(COMPILED) $(BIN)/python -m pytest $(PROCESSES)

# One robot each, since a robot's processes wait most of the time.
test-stop-%: $(VENV)/.dev
	$(COMPILED) $(BIN)/python -m pytest $(REAL_TIME) -k $*

test-checked: $(VENV)/.dev
	$(CHECKED) $(BIN)/python -m pytest -m 'kernels and not slow'

test-interpreted: $(VENV)/.dev
	$(INTERPRETED) $(BIN)/python -m pytest -m 'kernels and not slow' $$(grep -rl --include="*.py" pytest.mark.kernels tests)

test-all: $(VENV)/.dev  ## Everything, the slow tests too, and the coverage of the interpreted ones
	$(COMPILED) $(BIN)/python -m pytest -m ''
	$(CHECKED) $(BIN)/python -m pytest -m kernels
	$(INTERPRETED) $(BIN)/python -m coverage run -m pytest -m kernels
	$(BIN)/python -m coverage report --include='horde_agent/kernels/*,horde_agent/tiles.py,horde_env/sim/*,horde_env/robots/critterbot/simulator/*'

test-page: $(VENV)/.dev  ## The live page in Chromium: the system's, or else Playwright's own
	$(BIN)/python -m pip install --quiet --disable-pip-version-check playwright
	command -v chromium chromium-browser >/dev/null || $(BIN)/python -m playwright install chromium
	$(COMPILED) $(BIN)/python -m pytest -m browser

mutants: $(VENV)/.dev  ## Mutation tests by cosmic-ray on a copy of the last commit. Hours; PART is kernels, learning or hardware
	$(BIN)/python -m pip install --quiet --disable-pip-version-check cosmic-ray
	rm -rf .build/mutants && mkdir -p .build/mutants/copy
	git archive HEAD | tar -x -C .build/mutants/copy
	ln -s $$(realpath ../shared) .build/mutants/shared
	cd .build/mutants/copy && export PATH=$(CURDIR)/$(BIN):$$PATH PYTHONPATH=. OMP_NUM_THREADS=1 && \
	cosmic-ray init tests/mutants/$(PART).toml session.sqlite && \
	cosmic-ray exec tests/mutants/$(PART).toml session.sqlite && cr-report --show-pending session.sqlite

bench: $(VENV)/.dev  ## The figures of the README, measured here and now
	$(BIN)/horde bench --full --out runs/bench
	$(BIN)/horde bench --stream simulator --skip max,env --out runs/bench-simulator
	$(BIN)/python -m tests.bench

$(VENV)/.dist: $(BIN)/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check build twine check-wheel-contents 'validate-pyproject[all]'
	@touch $@

dist: $(VENV)/.dist  ## The wheel and the sdist, checked, in dist/
	rm -rf dist
	$(BIN)/python -m build --outdir dist
	$(BIN)/twine check --strict dist/*
	$(BIN)/check-wheel-contents dist/*.whl
	$(BIN)/validate-pyproject pyproject.toml

$(VENV)/.notebooks: $(VENV)/.demo
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[notebooks]'
	@touch $@

notebooks: $(VENV)/.notebooks  ## Three notebooks in .build/notebooks, made from scripts and pages, and run
	$(BIN)/python examples/notebooks/make.py --run

$(VENV)/.docs: $(VENV)/.dev
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[docs,dash]'
	@touch $@

docs: $(VENV)/.docs  ## The documentation site in .build/site: every script of the gallery is run, warnings are errors
	for script in docs/pictures.py docs/moving_picture.py docs/gallery/*.py; do OMP_NUM_THREADS=1 MPLBACKEND=Agg $(BIN)/python $$script || exit 1; done
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

address: $(BIN)/python  ## The repository's public address, wherever it stands: make address ADDRESS=https://github.com/OWNER/REPOSITORY
	$(BIN)/python .ci/address.py "$(ADDRESS)"

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .import_linter_cache .hypothesis .coverage dist build
