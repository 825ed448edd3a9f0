# Two commands do everything on a fresh machine: `make demo` and `make test`.
# Both set up .venv first; the stamp makes the second run fast.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt
export MPLBACKEND := Agg

.PHONY: help demo test test-all check bench docs pages report format clean

help:
	@echo "make demo      set up, then run the main job (writes results/demo/)"
	@echo "make test      set up, then every check: format, lint, types, import order, tests"
	@echo "make test-all  the same with the slow tests"
	@echo "make bench     set up the peers, then measure speed and memory beside them"
	@echo "make docs      the documentation site (site/index.html); fails on any warning or broken link"
	@echo "make pages     the pages of docs that are made from the studies' results"
	@echo "make report    every study on one page, from the results that are here (runs/report.html)"
	@echo "make format    write the house formatting"
	@echo "make clean     remove the virtual environment and caches"

$(VENV)/.ready: pyproject.toml studies/pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "posterity needs Python 3.11 or newer, this is " + sys.version.split()[0] + ": set PYTHON=python3.12, say")'
	@echo "setting up $(VENV) (once, a minute or two)"
	@$(PYTHON) -m venv $(VENV)
	@$(PIP) --editable '.[dev]' --editable './studies[digits]'
	@touch $@

$(VENV)/.bench: $(VENV)/.ready benchmarks/peers.txt
	@echo "setting up the benchmark's peers (once)"
	@$(PIP) --editable '.[dev,bench]' --editable ./studies
	@$(PIP) --no-deps --requirement benchmarks/peers.txt
	@touch $@

$(VENV)/.demo: $(VENV)/.ready
	@echo "setting up the demo's recordings (once)"
	@# Only its data file is read: what the package would import stays away.
	@$(PIP) --no-deps seglearn
	@touch $@

$(VENV)/.extras: $(VENV)/.bench
	@echo "setting up the libraries that examples and their tests use (once)"
	@$(PIP) --editable '.[dev,bench,datasets,examples,notebooks]'
	@touch $@

demo: $(VENV)/.demo
	$(BIN)/posterity demo

check: $(VENV)/.ready
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

# A process for each core with one thread each; the tests of a file stay together, so that they share what they have trained.
PYTEST := OMP_NUM_THREADS=1 $(BIN)/pytest -n auto --maxprocesses 8 --dist loadscope $(COVERAGE)

test: check $(VENV)/.demo
	$(PYTEST) -m "not slow"

test-all: check $(VENV)/.demo $(VENV)/.extras
	$(PYTEST)

bench: $(VENV)/.bench
	$(BIN)/python -m benchmarks

$(VENV)/.docs: $(VENV)/.ready
	@echo "setting up the documentation's tools (once)"
	@$(PIP) --editable '.[docs]'
	@touch $@

docs: $(VENV)/.docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

pages: $(VENV)/.ready
	$(BIN)/posterity study pages

report: $(VENV)/.ready
	$(BIN)/posterity study report --out runs/report.html

format: $(VENV)/.ready
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

clean:
	rm -rf $(VENV) .mypy_cache .pytest_cache .ruff_cache .hypothesis .import_linter_cache
