# Needs Python 3.11+ and make, nothing else: every target sets up its own environment first.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

.DEFAULT_GOAL := help
.PHONY: audit help setup demo test test-slow test-all fuzz coverage lint format bench bench-select bench-world bench-flower bench-train bench-demo bench-capture bench-clone soak bench-gpu bench-compare-gpu bench-convolutions studies judge docs figures lock clean

help:  ## show this list
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## ?/  make \1\t/' | expand -t 22

$(READY): pyproject.toml requirements-dev.lock
	@$(PYTHON) -c "import sys; sys.exit('fedpick needs Python 3.11 or newer, this is ' + sys.version.split()[0] + ': call make PYTHON=python3.11' if sys.version_info < (3, 11) else 0)"
	@echo "Setting up $(VENV) (a few minutes and 2 GB, once) ..."
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes --requirement requirements-dev.lock
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	@touch $@

setup: $(READY)  ## only set up the environment

demo: $(READY)  ## set up, then two short comparisons: what selection can gain, and what it costs
	rm -rf fedpick-runs/demo
	$(BIN)/fedpick demo

test: $(READY)  ## set up, then run all tests except the slow ones
	$(BIN)/python -m pytest -n auto --dist worksteal -m "not slow"

# Quick tests about the numbers of training: for `make test` XLA optimises them little, here as for users.
NUMBERS := tests/learn tests/simulate tests/experiment/test_stacked.py

test-slow: $(READY)  ## run the tests that build wheels, start processes or take minutes
	$(BIN)/python -m pytest -n auto --dist loadfile -m slow
	$(BIN)/python -m pytest -n auto --dist worksteal -m "not slow" --as-users $(NUMBERS)

PYTHONS ?= 3.11 3.12 3.13

test-all:  ## run the quick tests with each supported Python that is installed, each in its own environment
	@for version in $(PYTHONS); do \
	  python=""; \
	  for found in python$$version $$HOME/.pyenv/versions/$$version.*/bin/python; do \
	    if $$found -c "" 2>/dev/null; then python=$$found; break; fi; \
	  done; \
	  if [ -z "$$python" ]; then echo "Python $$version is not installed: skipped"; continue; fi; \
	  echo "Python $$version: $$python"; \
	  $(MAKE) --no-print-directory VENV=.venv-$$version PYTHON=$$python test || exit 1; \
	done

FUZZ_SECONDS ?= 600

fuzz: $(READY)  ## random attacks on files, texts and states for ten minutes; findings go to tests/fuzz/found.txt
	$(BIN)/python tests/fuzz/attack.py --seconds $(FUZZ_SECONDS)

coverage: $(READY)  ## measure which branches the quick tests reach, and list the lines that they do not
	$(BIN)/python -m pytest -n auto --dist worksteal -m "not slow" --cov --cov-report=term-missing

lint: $(READY) audit  ## check style, types, the direction of imports and known vulnerabilities
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

audit: $(READY)  ## look for known vulnerabilities in the lock and in what may be installed (offline, from .ci/advisories.txt)
	$(BIN)/python .ci/audit.py

format: $(READY)  ## format the code
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: bench-select bench-world bench-flower bench-train  ## run all benchmarks except those for a GPU

bench-select: $(READY)  ## measure time and memory of every policy, up to a million clients
	$(BIN)/python benchmarks/bench_select.py

bench-world: $(READY)  ## measure rounds per second of complete runs, and memory for a million clients
	$(BIN)/python benchmarks/bench_world.py

bench-flower: $(READY)  ## measure the Flower strategy's overhead over plain FedAvg, and a choice among 100,000 clients
	$(BIN)/python benchmarks/bench_flower.py

bench-train: $(READY)  ## compare training speed with PyTorch, Flower and fedjax (sets up their environments first)
	$(BIN)/python benchmarks/bench_train.py

bench-demo: $(READY)  ## measure a comparison of six policies from the command to its table, with and without compiled code
	$(BIN)/python benchmarks/bench_demo.py

bench-capture: $(READY)  ## measure what false reports gain under each policy, into docs/trust.md (ten minutes)
	$(BIN)/python benchmarks/bench_capture.py

bench-clone: $(READY)  ## measure what a stranger waits for: setting up, demo and tests in a fresh clone; writes the README's lines
	$(BIN)/python benchmarks/bench_clone.py --test --readme

soak: $(READY)  ## play 20,000 rounds of a Flower server and 200,000 simulated ones; fails if memory or time per round grows
	$(BIN)/python benchmarks/soak.py

bench-gpu: $(READY)  ## compare training speed on a GPU with a PyTorch loop (needs a GPU, JAX for it, and PyTorch)
	$(BIN)/python benchmarks/bench_gpu.py

bench-compare-gpu: $(READY)  ## measure `fedpick compare` on a GPU: many runs in one call against one by one (needs a GPU)
	$(BIN)/python benchmarks/bench_compare_gpu.py

bench-convolutions: $(READY)  ## measure forms of the convolution layer on a GPU, Pallas kernels among them (needs a GPU)
	$(BIN)/python benchmarks/gpu/convolutions.py

studies: $(READY)  ## rerun the papers' experiments in full into docs/studies (well over an hour on 2 cores)
	$(BIN)/fedpick reproduce --out docs/studies
	$(MAKE) judge

judge: $(READY)  ## judge the stored results in docs/studies anew, draw their figures, and write the index, the advice and the README's numbers
	$(BIN)/fedpick judge --draw --out docs/studies --page README.md --guide docs/which-policy.md

docs: $(READY)  ## build the documentation as a web site in site/
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

figures: $(READY)  ## draw the figures of the front page and of the README, and write the sentences under them
	$(BIN)/python docs/_hooks/figures.py

lock:  ## renew requirements-dev.lock, with the hash of every file, from pyproject.toml
	$(PYTHON) -m venv $(VENV)-lock
	$(VENV)-lock/bin/python -m pip install --quiet uv
	$(VENV)-lock/bin/uv pip compile --quiet --universal --python-version 3.11 --extra dev --generate-hashes --no-emit-package fedpick --no-header --no-annotate pyproject.toml --output-file requirements-dev.lock
	rm -rf $(VENV)-lock

clean:  ## remove all build results and the environment
	rm -rf $(VENV) $(PYTHONS:%=.venv-%) .coverage build dist site .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
	find src tests -name __pycache__ -type d -prune -exec rm -rf {} +
