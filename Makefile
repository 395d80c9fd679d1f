# Two commands are all a newcomer needs: `make demo` and `make test`. `make help` lists the rest.

VENV ?= .venv
RUN := $(VENV)/bin
STAMP := $(VENV)/.installed

# Real kubelets, Hubs and browsers on two busy cores: what failed is tried once more by itself, in a
# fresh cluster, and both runs stand in the output. What fails twice has failed.
AGAIN := $(RUN)/pytest --last-failed --last-failed-no-failures none --timeout 900

.DEFAULT_GOAL := help
.PHONY: help demo down test test-fast test-unit test-release test-thorough test-cluster bench docs lint format lock clean

help: ## This list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 16

# `make demo KUBECONFIG=FILE` uses a cluster that you have. Only when it is said here: nobody wants
# pods in production because of a variable that some other shell has set.
demo: $(STAMP) ## Bring up a one-machine cluster with simulated cards and run eight notebooks on them
	$(RUN)/gpushare demo $(if $(filter command line,$(origin KUBECONFIG)),--kubeconfig $(KUBECONFIG))

down: $(STAMP) ## Take the demo's cluster down; nothing of it stays
	$(RUN)/gpushare playground down

test: lint test-unit test-release test-cluster ## Everything: style and types, unit tests, tests on a real cluster

test-fast: $(STAMP) ## The inner loop: unit tests but those that start whole programs
	$(RUN)/pytest tests/unit -m "not slow" --numprocesses auto --dist worksteal --quiet

test-unit: $(STAMP) ## All unit tests; no cluster, no root
	$(RUN)/pytest tests/unit --numprocesses auto --dist loadfile --quiet || $(AGAIN) tests/unit

test-thorough: $(STAMP) ## What CI runs besides: many examples, and 10,000 random steps of a cluster and its troubles
	GPUSHARE_STEPS=10000 HYPOTHESIS_PROFILE=thorough $(RUN)/pytest tests/unit/gpushare \
		$(addprefix tests/unit/extender/test_,$(addsuffix .py,machine fuzz fleet line preemption)) \
		--numprocesses auto --dist worksteal --timeout 1800 --quiet

test-release: $(STAMP) ## Wheel and source distribution, installed with each extra
	$(RUN)/pytest tests/release --quiet

test-cluster: $(STAMP) ## Tests on the playground's real cluster and in a real browser (need root; skipped with the reason without)
	scripts/chromium
	$(RUN)/pytest tests/cluster tests/browser --timeout 900 --durations 25 || $(AGAIN) tests/cluster tests/browser

bench: $(STAMP) ## Measure; JSON under build/bench
	$(RUN)/python -m tests.bench

docs: $(STAMP) ## The site, under build/site
	$(RUN)/sphinx-build -W --keep-going -q -b dirhtml -d build/site-trees docs build/site

lint: $(STAMP) ## Style (ruff) and types (mypy)
	$(RUN)/ruff check .
	$(RUN)/ruff format --check .
	$(RUN)/mypy

format: $(STAMP) ## Let ruff mend what it can
	$(RUN)/ruff check --fix .
	$(RUN)/ruff format .

lock: $(STAMP) ## Resolve requirements.lock anew
	$(RUN)/uv pip compile --universal --all-extras --generate-hashes --python-version 3.11 \
		--no-annotate --no-header --no-emit-index-url --no-emit-find-links \
		pyproject.toml -o requirements.lock

$(STAMP): scripts/venv pyproject.toml requirements.lock hatch_build.py $(wildcard device_plugin/api/*.proto)
	scripts/venv $(VENV)
	@touch $@

clean: ## Remove what was built here (the cluster's binaries stay in the user's cache)
	rm -rf $(VENV) build dist
