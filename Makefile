# Everything runs in .venv, which the first target makes. Another Python: make test PYTHON=python3.12
PYTHON ?= python3
BIN := .venv/bin

.PHONY: demo test browser fuzz chaos hostile check lint types imports doctest docs

demo: .venv/core
	$(BIN)/longtail demo

test: .venv/dev
	$(BIN)/python -m pytest -m 'not browser'
	@echo "The tests in a browser were left out: make browser runs them, and needs Chromium (Debian: apt install chromium)."

browser: .venv/dev
	$(BIN)/python -m pytest -m browser tests

# Longer by hand: make fuzz SECONDS=3600
SECONDS ?= 60
fuzz: .venv/dev
	$(BIN)/python benchmarks/fuzz.py --seconds $(SECONDS)

# One recipe, many kills: make chaos RECIPES=paco KILLS=50. All of them: make chaos RECIPES=--all
RECIPES ?= cross_entropy ride paco
KILLS ?= 6
chaos: .venv/dev
	$(BIN)/python benchmarks/chaos.py $(RECIPES) --kills $(KILLS)

hostile: .venv/dev
	$(BIN)/python benchmarks/hostile.py

check: lint types imports doctest docs

lint: .venv/dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: .venv/dev
	$(BIN)/mypy

imports: .venv/dev
	$(BIN)/lint-imports

doctest: .venv/dev
	$(BIN)/python -m pytest src

docs: .venv/dev
	$(BIN)/zensical build --strict --clean
	@! grep -rnE --include='*.html' '<(script|link|img|iframe)[^>]+(src|href)="?(https?:)?//' site || \
		{ echo "The pages above load something from another host: they must work without a network."; exit 1; }

define install
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "longtail needs Python 3.11 or newer, got $$($(PYTHON) --version 2>&1): try make $(MAKECMDGOALS) PYTHON=python3.12"; exit 1; }
	@test -x $(BIN)/pip || $(PYTHON) -m venv .venv || \
		{ echo "Python could not make a virtual environment: on Debian and Ubuntu, apt install python3-venv"; exit 1; }
	@echo "Installing into .venv: torch is large, a first time takes some minutes."
	@test "$$(uname)" != Linux || command -v nvidia-smi > /dev/null || test -n "$$PIP_EXTRA_INDEX_URL" || \
		echo "This takes the PyTorch for GPUs, 5.2 GB. The README says how to take that for CPUs, 0.2 GB."
	@$(BIN)/python -m pip install -qq --disable-pip-version-check --editable '$(1)'
endef

.venv/core: pyproject.toml
	$(call install,.)
	@touch .venv/core

.venv/dev: pyproject.toml
	$(call install,.[dev])
	@touch .venv/core .venv/dev
