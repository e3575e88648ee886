.DEFAULT_GOAL := help
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
# Two spinning OpenMP threads on busy cores are a hundred times slower than one: one thread per process, passive waiting.
export OMP_NUM_THREADS ?= 1
export OMP_WAIT_POLICY ?= PASSIVE
WORKERS ?= 2

.PHONY: help setup test test-slow test-cluster coverage fuzz mutants soak lint format types bench demo clean

help:  ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

$(STAMP): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[test]'
	@touch $@

setup: $(STAMP)  ## Create the virtual environment and install everything into it

# COVERAGE=1 runs the same tests and measures them: the workers and the commands that tests start as processes of their
# own measure themselves (`patch` in pyproject.toml).
test: lint types $(STAMP)  ## Lint, types, doctests and tests (COVERAGE=1: held to the least coverage of src, too)
	$(if $(COVERAGE),rm -f .coverage .coverage.*)
	$(BIN)/python $(if $(COVERAGE),-m coverage run) -m pytest -n $(WORKERS) --dist loadfile -m 'not slow and not cluster'
	$(if $(COVERAGE),$(BIN)/python -m coverage combine --quiet && $(BIN)/python tests/coverage_limits.py)

test-slow: $(STAMP)  ## The tests that take minutes
	$(BIN)/python -m pytest -n $(WORKERS) --dist loadfile -m slow

test-cluster: $(STAMP)  ## The tests that start a Ray cluster on this machine
	$(BIN)/python -m pytest -m 'cluster and not slow'

coverage:  ## `make test`, held to the least coverage of src by line and by branch
	$(MAKE) test COVERAGE=1

# atheris is installed beside the environment, not into it: it has wheels for few platforms, and nothing else needs it.
FUZZ_SECONDS ?= 300
$(VENV)/fuzz-tools: $(STAMP)
	$(BIN)/python -m pip install --quiet --target $@ atheris==3.0.0 || { mkdir -p $@; \
	  echo 'atheris cannot be installed here, so make fuzz works with Hypothesis alone; remove $@ to try again.'; }

fuzz: $(STAMP) $(VENV)/fuzz-tools  ## Damaged files to every reader, for FUZZ_SECONDS
	PYTHONPATH=$(VENV)/fuzz-tools $(BIN)/python tests/fuzz --seconds $(FUZZ_SECONDS)

mutants: $(STAMP)  ## Plant 100 faults per room and count those that its tests notice; resumes (ROOMS=kernels: only some)
	$(BIN)/python tests/mutants.py $(ROOMS)

SOAK_SECONDS ?= 1800
soak: $(STAMP)  ## Train, predict, audit over and over in one process: memory and open files stay flat
	PYTHONPATH=tests $(BIN)/python tests/soak.py --seconds $(SOAK_SECONDS)

lint: $(STAMP)  ## Check style
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(STAMP)  ## Check types
	$(BIN)/mypy

format: $(STAMP)  ## Fix style
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# Freed memory stays with the process, as PyTorch's guide to CPU performance advises: page faults would blur every ratio.
bench: export MALLOC_TRIM_THRESHOLD_ = 2000000000
bench: export MALLOC_MMAP_THRESHOLD_ = 2000000000
bench: export MALLOC_TOP_PAD_ = 200000000
bench: $(STAMP)  ## Measure ratios side by side and write results/bench.json (GROUPS=posterior: only some)
	$(BIN)/python -m benchmarks $(GROUPS)

demo: $(STAMP)  ## Trust and the paper at toy scale, on embedded data: a table and a page
	$(BIN)/calibrant demo

clean:  ## Remove everything that the other targets made
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis .coverage .coverage.* fuzz-failures mutants.jsonl demo
