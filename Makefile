# `make demo` and `make test` are all the set-up there is. TORCH="torch==..." installs a given build of torch first.
PYTHON ?= python3
VENV ?= .venv
BIN = $(VENV)/bin

.PHONY: demo test test-all lint docs clean

demo: $(VENV)/demo
	$(BIN)/frostline demo

test: $(VENV)/test
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest --numprocesses auto --dist worksteal $(PYTEST)

test-all: PYTEST = -m "not every"
test-all: test

lint: $(VENV)/test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

docs: $(VENV)/docs
	$(BIN)/sphinx-build --fail-on-warning --keep-going --quiet --builder html docs build/docs

$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV)
	$(if $(TORCH),$(BIN)/pip install --quiet "$(TORCH)")

$(VENV)/%: $(VENV)/bin/python pyproject.toml
	$(BIN)/pip install --quiet --editable ".[$*]"
	touch $@

clean:
	rm -rf $(VENV) .mypy_cache .pytest_cache .ruff_cache .hypothesis build
