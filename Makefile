# Everything runs in .venv. `make` alone lists the targets.
.DEFAULT_GOAL := help
.PHONY: help setup demo test test-unit test-integration test-adapters test-e2e lint format types \
	contracts bench clean

# One thing after the other: two pips in one venv disturb each other under `make -j`.
.NOTPARALLEL:

VENV := .venv
BIN := $(VENV)/bin
PYTEST := $(BIN)/python -m pytest
INPUTS := pyproject.toml constraints.txt scripts/install.sh
export GPU ?= 0

help: ## List what can be done
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-18s %s\n", $$1, $$2 }' Makefile

setup: $(VENV)/.core ## Create .venv, install, fetch the default checkpoint (GPU=1 for CUDA)
	@$(BIN)/scriptorium models fetch

demo: setup ## Transcribe the recordings in samples/ and print the transcripts
	@scripts/demo.sh

test: test-unit test-integration test-adapters test-e2e ## Run every suite against real services

test-unit: $(VENV)/.test ## Fast tests without I/O
	$(PYTEST) tests/unit

test-integration: setup $(VENV)/.test ## Real database, Redis and S3 servers, started here
	$(PYTEST) -n 3 --dist loadfile tests/integration

test-adapters: setup $(VENV)/.test ## Models on the CPU
	$(PYTEST) -n 2 --dist loadfile tests/adapters

test-e2e: setup $(VENV)/.test ## Real processes, end to end
	$(PYTEST) -n 2 --dist loadgroup tests/e2e

lint: $(VENV)/.lint ## Check style and formatting
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

format: $(VENV)/.lint ## Rewrite what can be rewritten by itself
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

types: $(VENV)/.lint ## Check types (mypy --strict)
	$(BIN)/mypy

contracts: $(VENV)/.lint ## Check who imports whom
	$(BIN)/lint-imports

bench: setup $(VENV)/.bench ## Install what benchmarks compare with, and say how they are run
	@sed -n '1,/^Times on/p' benchmarks/README.md

clean: ## Remove .venv and caches; data and checkpoints stay
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache .coverage
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(VENV)/.core: $(INPUTS)
	@scripts/install.sh core
	@touch $@

$(VENV)/.test: $(VENV)/.core
	@scripts/install.sh test
	@touch $@

$(VENV)/.lint: $(VENV)/.core
	@scripts/install.sh lint
	@touch $@

$(VENV)/.bench: $(VENV)/.core
	@scripts/install.sh bench
	@touch $@
