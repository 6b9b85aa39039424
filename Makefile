# The only commands a person must know. Each does all of its own set-up; `make help` lists them.
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
export OPENBLAS_NUM_THREADS ?= 1
unexport PYTHONDONTWRITEBYTECODE  # compiled test files halve the start of the tests

.DEFAULT_GOAL := help
.PHONY: help setup train app test test-fast docs bench bundle screenshots clean

help:            ## list the commands
	@grep -E '^[a-z-]+: .*##' Makefile | sed -E 's/:[^#]*## /\t/' | expand -t 12

$(BIN)/pip:      # written after $(BIN)/python: an environment without it is half made
	@$(PYTHON) -c 'import sys; sys.exit("LeafClinic needs Python 3.11 or newer. Name one: make PYTHON=python3.12 ..." \
	  if sys.version_info < (3, 11) else 0)'
	$(PYTHON) -m venv --clear $(VENV)

$(VENV)/.installed: pyproject.toml | $(BIN)/pip
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable .
	touch $@

$(VENV)/.tested: pyproject.toml | $(BIN)/pip
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[test]'
	touch $(VENV)/.installed $@

setup: $(VENV)/.installed   ## create the environment in .venv and install LeafClinic there

train: $(VENV)/.installed   ## make demo photos, train on them with our own kernels, name the model file
	$(BIN)/leafclinic train --demo --preset demo --out runs/demo --overwrite

app: $(VENV)/.installed     ## open the window (on Linux: `make packages` first if it does not start)
	$(BIN)/leafclinic

test:            ## everything that is checked without a GPU
	@$(MAKE) --no-print-directory --jobs=2 types suite

.PHONY: types suite
types: $(VENV)/.tested
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/mypy docs/screenshots/take.py

suite: $(VENV)/.tested test-packages
	QT_QPA_PLATFORM=offscreen $(BIN)/python -m pytest -n auto --maxprocesses 8 --dist loadgroup

FAST := tests/core/ops tests/core/models tests/core/onnx tests/core/data tests/core/diagnosis $(wildcard tests/core/test_*.py) \
        tests/benchmarks tests/test_architecture.py tests/test_documentation.py tests/test_prose.py
test-fast: $(VENV)/.tested  ## the inner loop, under a minute: references, data, diagnosis, command lines, house rules
	$(BIN)/ruff check .
	$(BIN)/python -m pytest -q -n auto --maxprocesses 8 --dist loadgroup -m 'not gpu and not slow and not thorough' $(FAST)

docs: $(VENV)/.tested       ## write the tables of figures into README and docs, and check what the pages name
	$(BIN)/python -m benchmarks.tables
	$(BIN)/python -m pytest -q tests/test_documentation.py tests/benchmarks/test_tables.py

screenshots: $(VENV)/.installed   ## take the pictures of the window in the README
	$(BIN)/python docs/screenshots/take.py

bench: $(VENV)/.tested      ## time our engine and its peers, interleaved (installs PyTorch)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[compare]'
	$(BIN)/python -m benchmarks.cpu_train_step
	$(BIN)/python -m benchmarks.loader

bundle: $(VENV)/.installed  ## dist/leafclinic: a folder that runs without Python (PyInstaller)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check 'pyinstaller>=6.15'
	$(BIN)/pyinstaller packaging/leafclinic.spec --noconfirm --distpath dist --workpath build/bundle

clean:           ## remove the environment and caches (runs and models stay)
	rm -rf $(VENV) build dist .pytest_cache .mypy_cache .ruff_cache .import_linter_cache

.PHONY: packages
packages:        ## system libraries the window needs (Debian, Ubuntu; needs root, says so)
	@sh packaging/install_packages.sh

.PHONY: test-packages
test-packages:   ## also the programs that tests run: Xvfb, poppler, Chromium
	@sh packaging/install_packages.sh packaging/apt.txt packaging/apt-tests.txt
