PYTHON ?= python3.11
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

.PHONY: demo test test-all lint bench clean

demo: $(READY)
	$(BIN)/mercer reproduce brownian --scale quick --out runs/brownian-quick --overwrite

# What each change can break, in minutes.
test: $(READY)
	$(BIN)/python -m pytest -n 2 -m "not slow"

# The long, statistical tests, the experiments at smoke scale, and 32-bit floats.
test-all: $(READY)
	$(BIN)/python -m pytest -n 2 -m slow
	MERCER_TEST_FLOAT32=1 $(BIN)/python -m pytest tests

lint: $(READY)
	$(BIN)/ruff check src tests benchmarks
	$(BIN)/ruff format --check src tests benchmarks
	$(BIN)/pyright

bench: $(READY)
	$(BIN)/python benchmarks/core.py

$(READY): requirements.lock pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --requirement requirements.lock
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	touch $(READY)

clean:
	rm -rf $(VENV) runs bench
