# `make demo` and `make check` need Python 3.11 or later and make, nothing else.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
DEMO_OUT ?= runs/digits
SITE_OUT ?= build/site
PYTHONS ?=

# Modules are compiled when they are first imported, and stay so: most of PyTorch never is.
export PYTHONDONTWRITEBYTECODE :=

.DEFAULT_GOAL := help
.PHONY: help demo test check malformed worlds power-cuts timing wheel soundness audits flower jax-privacy kills figures runs transcripts site notebooks lock clean

help:  ## Print this list.
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-11s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: $(VENV)/.runtime  ## Train the demo model and show where its report is.
	@rm -rf "$(DEMO_OUT)"
	@$(BIN)/turnout train --example digits --out "$(DEMO_OUT)"

test: $(VENV)/.dev  ## Run the whole test suite.
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest --numprocesses auto

check: $(VENV)/.dev  ## Run everything that a change must pass: format, lint, types, contracts, tests.
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright
	$(BIN)/lint-imports
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest --numprocesses auto

malformed: $(VENV)/.dev  ## Send the coordinator 50,000 bodies that no device sends.
	TURNOUT_BODIES=50000 $(BIN)/python -m pytest tests/service/test_malformed.py

kills: $(VENV)/.dev  ## Kill coordinator and witness 1,000 times while devices talk.
	OMP_NUM_THREADS=1 TURNOUT_KILLS=1000 $(BIN)/python -m pytest tests/service/test_killed.py

timing: $(VENV)/.dev  ## Hold the times of devices' messages against their data, 200 turns a side.
	OMP_NUM_THREADS=1 $(BIN)/python benchmarks/timing.py

worlds: $(VENV)/.dev  ## Play 10,000 simulated worlds of clients, crashes and lies.
	OMP_NUM_THREADS=1 TURNOUT_WORLDS=10000 $(BIN)/python -m pytest tests/service/test_simulated_runs.py

wheel: $(VENV)/.dev  ## Build and check the package; run the README from it, on each of PYTHONS, and src without its service.
	OMP_NUM_THREADS=1 $(BIN)/python tests/meta/wheel.py $(PYTHONS:%=--python %)

soundness: $(VENV)/.dev  ## Hold bounds of 3,800 random questions against programs that share no code.
	OMP_NUM_THREADS=1 $(BIN)/python -W error benchmarks/soundness.py
	OMP_NUM_THREADS=1 $(BIN)/python -W error benchmarks/soundness.py --control --share 0.2

audits: $(VENV)/.dev  ## Hold bounds of many random shuffles against exact laws; play 10⁵ bandit runs.
	TURNOUT_AUDITS=20 $(BIN)/python -m pytest tests/accounting/shuffling/test_shuffle_audit.py
	TURNOUT_BANDIT_RUNS=100000 $(BIN)/python -m pytest -s tests/bandits/test_audit.py tests/bandits/test_linucb_audit.py

flower:  ## Run the adapter for Flower on Flower itself, in an environment of its own.
	PYTHONPATH=src "$$($(PYTHON) benchmarks/peers/environment.py flower)" -m pytest -q -c /dev/null --rootdir . benchmarks/peers/flower

jax-privacy:  ## Hold the adapter for JAX Privacy against the library, in an environment of its own.
	PYTHONPATH=src "$$($(PYTHON) benchmarks/peers/environment.py jax-privacy)" -m pytest -q -c /dev/null --rootdir . benchmarks/peers/jax_privacy

power-cuts: $(VENV)/.dev  ## Cut the coordinator's power 20,000 times.
	TURNOUT_POWER_CUTS=20000 $(BIN)/python -m pytest tests/service/test_power_cuts.py

figures: $(VENV)/.runtime  ## Draw the papers' figures, our curve in each, and convex order anew.
	$(BIN)/python benchmarks/figures
	$(BIN)/python benchmarks/figures/tables.py
	$(BIN)/python benchmarks/convex_order_picture.py

runs: $(VENV)/.runtime  ## Train CLDP-SGD (the thesis' Figures 4.2, 5.7), personal models and messages (hours; it resumes).
	$(BIN)/python benchmarks/cldp_sgd.py
	$(BIN)/python benchmarks/cldp_sgd.py --as-printed --seeds 1
	$(BIN)/python benchmarks/cldp_sgd.py --draw
	$(BIN)/python benchmarks/personal.py
	$(BIN)/python benchmarks/private_messages.py --json docs/figures/private_messages.json --out docs/figures/private_messages.svg

EXAMPLES := tabular image_folder pretrained shakespeare devices
.PHONY: examples $(EXAMPLES:%=example-%)
examples: $(EXAMPLES:%=example-%)  ## Run the examples on data and models of one's own.

$(EXAMPLES:%=example-%): example-%: $(VENV)/.dev
	$(BIN)/python examples/$*/run.py runs/$*

transcripts: $(VENV)/.dev  ## Write into README and docs what their commands print today.
	OMP_NUM_THREADS=1 $(BIN)/python tests/meta/transcripts.py

site: $(VENV)/.dev  ## Build the documentation site with the API reference; warnings are errors.
	$(BIN)/python -m sphinx -W --keep-going -q -b html -d $(SITE_OUT).doctrees docs $(SITE_OUT)

notebooks: $(VENV)/.dev  ## Build the notebooks of the tutorials and run them in a kernel.
	PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/python tests/meta/notebooks.py build/notebooks

lock: $(VENV)/.dev  ## Write the lock files anew from pyproject.toml.
	$(INSTALL) pip-tools
	$(BIN)/python requirements/lock.py

clean:  ## Remove the environment and everything that was built or run.
	rm -rf $(VENV) runs build dist .pytest_cache .ruff_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
	rm -rf src/*.egg-info

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "turnout needs Python 3.11 or later")'
	$(PYTHON) -m venv $(VENV)
	$(INSTALL) $(PIP)

# The pip that comes with Python 3.11 needs twice the time to read the package index.
PIP := pip==26.3
# Each stamp is newer than the lock that the environment was made from.
INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile
$(VENV)/.runtime $(VENV)/.dev: $(VENV)/.%: requirements/%.lock pyproject.toml | $(BIN)/python
	$(INSTALL) --requirement $<
	$(INSTALL) --no-deps --no-build-isolation --editable .
	@touch $@
