# The two commands of the README: `make bench` and `make test`. Everything they need goes into .venv here.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
WORKERS ?= 2

.PHONY: bench test test-slow lint nightly report benchmarks clean

## run the smoke suite on real models: measure, judge, remember, draw
bench: $(STAMP)
	$(BIN)/python -m pytest suites/smoke.qbench.toml -n $(WORKERS) --dist loadscope --qbench-report html --qbench-report md --qbench-report png

## run the tests that take seconds
test: $(STAMP)
	$(BIN)/python -m pytest -n $(WORKERS) -m "not slow"

## run the tests that take minutes
test-slow: $(STAMP)
	$(BIN)/python -m pytest -n $(WORKERS) -m slow

## format check, lint, types, layers
lint: $(STAMP)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

## run the nightly suite, add to the history, write the report, exit by the gates
nightly: $(STAMP)
	$(BIN)/python -m pytest suites/nightly.qbench.toml -n $(WORKERS) --dist loadscope --qbench-report html --qbench-report md --qbench-report png

## draw the report again from the history alone
report: $(STAMP)
	$(BIN)/qbench report

$(STAMP): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[dev]"
	touch $(STAMP)

clean:
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
