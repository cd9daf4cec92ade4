# Needs Python 3.11+ and make, nothing else: every target sets up its own environment first.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
DEMO_READY := $(VENV)/.ready-demo
READY := $(VENV)/.ready

# A lock is complete, so nothing is resolved: what is set up depends neither on the day nor on the version of pip.
INSTALL := -m pip install --quiet --disable-pip-version-check --no-deps
LOCKED := $(INSTALL) --require-hashes --requirement
OURSELVES := $(INSTALL) --no-build-isolation --editable .
PAPERS := $(INSTALL) --no-build-isolation --editable ./papers

.DEFAULT_GOAL := help
.PHONY: audit help setup setup-demo demo test test-slow test-flower test-torch test-all fuzz mutants coverage lint format bench bench-select bench-world bench-flower bench-train bench-demo bench-capture bench-algorithms bench-clone soak bench-gpu bench-compare-gpu bench-convolutions studies judge policies docs house figures lock clean

help:  ## show this list
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## ?/  make \1\t/' | expand -t 22

$(DEMO_READY): pyproject.toml requirements.lock
	@$(PYTHON) -c "import sys; sys.exit('fedpick needs Python 3.11 or newer, this is ' + sys.version.split()[0] + ': call make PYTHON=python3.11' if sys.version_info < (3, 11) else 0)"
	@echo "Setting up $(VENV) (about a minute and 1.3 GB, once) ..."
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python $(LOCKED) requirements.lock
	$(BIN)/python $(OURSELVES)
	@touch $@

$(READY): $(DEMO_READY) requirements-dev.lock papers/pyproject.toml
	@echo "Adding the tools for development to $(VENV) (about a minute and 1.2 GB, once) ..."
	$(BIN)/python $(LOCKED) requirements-dev.lock
	$(BIN)/python $(PAPERS)
	@touch $@

setup: $(READY)  ## only set up the environment for development

setup-demo: $(DEMO_READY)  ## only set up what users need: command line, training, tables and plots

demo: $(DEMO_READY)  ## set up what it needs, then two short comparisons: what selection can gain, and what it costs
	rm -rf fedpick-runs/demo
	$(BIN)/fedpick demo

test: $(READY)  ## set up, then run all tests except the slow ones
	$(BIN)/python -m pytest -n auto --dist worksteal -m "not slow"

# Quick tests about the numbers of training: for `make test` XLA optimises them little, here as for users.
NUMBERS := tests/learn tests/simulate tests/experiment/test_stacked.py

# The slow tests of Flower are left to test-flower, which runs them with the oldest and with the newest version.
test-slow: $(READY)  ## run the tests that build wheels, start processes or take minutes
	$(BIN)/python -m pytest -n auto --dist loadfile -m slow --ignore tests/flower
	$(BIN)/python -m pytest -n auto --dist worksteal -m "not slow" --as-users $(NUMBERS)
	$(MAKE) test-flower
	$(MAKE) test-torch

FLOWERS := 1.38 1.42

test-flower:  ## run the tests of Flower with the oldest and the newest version, side by side, each in its own environment
	$(MAKE) $(FLOWERS:%=$(VENV)-flower-%/.ready)
	$(MAKE) -j2 $(FLOWERS:%=test-flower-%)

$(VENV)-flower-%/.ready: tests/flower/flwr-%.lock pyproject.toml
	@echo "Setting up $(@D) (about a minute and 1.6 GB, once) ..."
	$(PYTHON) -m venv $(@D)
	$(@D)/bin/python $(LOCKED) $<
	$(@D)/bin/python $(OURSELVES)
	$(@D)/bin/python .ci/closed.py $<
	@touch $@

.PRECIOUS: $(VENV)-flower-%/.ready

# Ray gets a folder of its own, where it does not find the other version's cluster; its name must be short for sockets.
test-flower-%: $(VENV)-flower-%/.ready
	folder=$$(mktemp -d /tmp/ray-XXXXXX) && RAY_TMPDIR=$$folder $(VENV)-flower-$*/bin/python -m pytest tests/flower; \
	code=$$?; rm -rf $$folder; exit $$code

# PyTorch is in no lock: on Linux its usual build brings gigabytes of CUDA. Which build this version takes is the machine's
# choice: name PyTorch's index of CPU builds in PIP_EXTRA_INDEX_URL to get that without. The lock holds what it requires.
TORCH := torch==2.13.0
TORCH_LOCK := tests/pytorch/torch.lock
DATA_SETS := datasets flwr-datasets
NO_CUDA := cuda-bindings cuda-pathfinder cuda-toolkit nvidia-cublas nvidia-cuda-cccl nvidia-cuda-nvrtc nvidia-cudnn-cu13 \
  nvidia-cusparselt-cu13 nvidia-nccl-cu13 nvidia-nvshmem-cu13 triton

test-torch: $(VENV)-torch/.ready  ## run the tests of PyTorch models, in an environment of their own
	FEDPICK_TORCH_TESTS=needed $(VENV)-torch/bin/python -m pytest tests/pytorch

$(VENV)-torch/.ready: $(TORCH_LOCK) pyproject.toml
	@echo "Setting up $(@D) (about a minute and 2 GB, once) ..."
	$(PYTHON) -m venv $(@D)
	$(@D)/bin/python $(LOCKED) $<
	$(@D)/bin/python -m pip install --quiet --disable-pip-version-check $(TORCH)
	$(@D)/bin/python $(OURSELVES)
	$(@D)/bin/python .ci/closed.py $<
	@touch $@

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

fuzz: $(READY)  ## random attacks on files, texts, states and servers for ten minutes; findings go to tests/fuzz/found.txt
	$(BIN)/python tests/fuzz/attack.py --seconds $(FUZZ_SECONDS)

# make mutants MUTANTS="--rooms policies sampling --count 100 --seed 7"
mutants: $(READY)  ## change 300 places of the library, one at a time, and list the changes that no quick test notices (half an hour of one core)
	$(BIN)/python tests/mutants/mutants.py $(MUTANTS)

coverage: $(READY)  ## measure which branches the quick tests reach, and list the lines that they do not
	$(BIN)/python -m pytest -n auto --dist worksteal -m "not slow" --cov --cov-report=term-missing

lint: $(READY) audit  ## check style, types, the direction of imports and known vulnerabilities
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python .ci/rooms.py

audit: $(READY)  ## look for known vulnerabilities and for missing packages in the locks (offline; from .ci/advisories.txt)
	$(BIN)/python .ci/audit.py
	$(BIN)/python .ci/closed.py

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

bench-capture: $(READY)  ## measure what false reports gain under each policy, into docs/trust.md (15 minutes of one core)
	$(BIN)/python benchmarks/bench_capture.py

bench-algorithms: $(READY)  ## measure rounds to a level of FedAvg, FedProx, SCAFFOLD and FedDyn (two minutes of one core)
	$(BIN)/python benchmarks/bench_algorithms.py

bench-clone: $(READY)  ## measure what a stranger waits for: setting up, demo and tests in a fresh clone; writes the README's lines
	$(BIN)/python benchmarks/bench_clone.py --test --readme

soak: $(READY)  ## play 20,000 rounds of a Flower server, 200,000 simulated ones and 10,000,000 tasks without rounds; fails if memory or time grows
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

judge: $(READY)  ## judge the stored results in docs/studies anew, add what a GPU measured to the archives, and write the index, the advice and the README's numbers
	$(BIN)/fedpick judge --pack --out docs/studies --page README.md --guide docs/which-policy.md --paces docs/rounds-or-asynchronous.md

policies: $(READY)  ## write what the repository keeps of the table of policies: README's list, names for type checkers
	$(BIN)/python docs/_hooks/policy_table.py

docs: $(READY)  ## build the documentation as a web site in site/
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

house: $(READY)  ## write the list of rooms and modules on the page about the architecture
	$(BIN)/python docs/_hooks/house.py

figures: $(READY)  ## draw the figures of the front page and of the README, and write the sentences under them
	$(BIN)/python docs/_hooks/figures.py

COMPILE = $(VENV)-lock/bin/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --only-binary :all: --no-emit-package fedpick --no-header --no-annotate pyproject.toml

# Wheels only: what is built from source is built with tools of the day, which no lock holds.
# Versions that are still allowed stay; to renew one, delete it from requirements-dev.lock first, or the whole file.
# The other locks take their versions from that one; they hold what the pipe names, too.
lock:  ## renew the locks, with the hash of every file, from pyproject.toml
	$(PYTHON) -m venv $(VENV)-lock
	$(VENV)-lock/bin/python -m pip install --quiet --disable-pip-version-check uv
	$(COMPILE) --extra dev --output-file requirements-dev.lock
	rm -f requirements.lock
	printf "%s\n" editables hatchling | $(COMPILE) - --extra cli --extra learn --extra report --constraint requirements-dev.lock --output-file requirements.lock
	for version in $(FLOWERS); do \
	  lock=tests/flower/flwr-$$version; \
	  cp requirements-dev.lock $$lock.lock; \
	  printf "%s\n" "flwr[simulation]==$$version.*" editables hatchling hypothesis pytest | $(COMPILE) - --extra cli --extra flower --extra learn --extra report \
	    $$(test -e $$lock.override && echo --override $$lock.override) --output-file $$lock.lock || exit 1; \
	done
	cp requirements-dev.lock $(TORCH_LOCK)
	printf "%s\n" "$(TORCH)" $(DATA_SETS) editables hatchling hypothesis pytest | $(COMPILE) - --extra cli --extra learn --extra report --extra torch \
	  --override $(TORCH_LOCK:.lock=.override) $(NO_CUDA:%=--no-emit-package %) --no-emit-package torch --output-file $(TORCH_LOCK)
	rm -rf $(VENV)-lock
	$(MAKE) audit

clean:  ## remove all build results and the environment
	rm -rf $(VENV) $(PYTHONS:%=.venv-%) $(FLOWERS:%=$(VENV)-flower-%) $(VENV)-torch .coverage build dist site .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
	find src tests papers -name __pycache__ -type d -prune -exec rm -rf {} +
