# Everything here sets up what it needs: Python ≥ 3.11, git and make are enough.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed
UV     := $(BIN)/uv pip
ARGS   ?=

.DEFAULT_GOAL := help
.PHONY: help run test check fmt bench lock clean

help: ## what the targets do
	@grep -hE '^[a-z]+:.*## ' $(MAKEFILE_LIST) | sed 's/:.*## /\t/'

$(BIN)/python:
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed; set PYTHON=python3.x")'
	$(PYTHON) -m venv $(VENV)

# uv comes into the environment with pip once; the lock keeps it there.
$(STAMP): $(BIN)/python pyproject.toml requirements.lock
	@test -x $(BIN)/uv || $(BIN)/python -m pip install --quiet --disable-pip-version-check uv
	$(UV) sync --quiet --python $(BIN)/python --require-hashes requirements.lock
	$(UV) install --quiet --python $(BIN)/python --no-deps --editable .
	@touch $@

run: $(STAMP) ## start the memory server: embedded Postgres, local model (ARGS='--port 8765')
	$(if $(wildcard .env),set -a && . ./.env && set +a && )$(BIN)/corbits-memory serve $(ARGS)

check: $(STAMP) ## format check, lint, types, import contracts
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

test: check ## all checks and all tests, on a Postgres that the tests start themselves
	$(BIN)/pytest -n auto --dist loadfile $(ARGS)

bench: $(STAMP) ## figures of docs/benchmarks.md
	$(BIN)/python -m benchmarks $(ARGS)

fmt: $(STAMP) ## format and mend what can be mended
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

lock: $(STAMP) ## resolve the dependencies anew
	$(UV) compile --quiet --universal --python-version 3.11 --generate-hashes \
	  --no-header --no-annotate --extra server --group test --group lint pyproject.toml -o requirements.lock

clean: ## remove the environment and caches
	rm -rf $(VENV) .mypy_cache .pytest_cache .ruff_cache .import_linter_cache dist
