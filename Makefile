# The two commands of the README: `make bench` and `make test`. Everything they need goes into .venv here, in the
# versions that constraints.txt pins; where packages come from is pip's own configuration.

# The first Python on the path that is new enough; PYTHON=… chooses another.
PYTHON ?= $(shell for python in python3 python3.14 python3.13 python3.12 python3.11; do \
	$$python -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$python && break; done)
WORKERS ?= 2
# Some tests wait for another process; a third worker uses the two cores meanwhile.
TEST_WORKERS ?= 3

VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
ORACLES := $(VENV)/.oracles
ENGINES := $(VENV)/.engines
OBJECTS := $(VENV)/.objects
SITE := $(VENV)/.site
PYTEST := $(BIN)/python -m pytest
REPORTS := --qbench-report html --qbench-report md --qbench-report png

# The stamp holds the folder it was made in. An environment that was cut short, moved, or has lost its Python does not
# answer with this folder, and is made anew.
ifneq ($(shell $(BIN)/python -c 'print(open("$(STAMP)").read())' 2>/dev/null),$(CURDIR))
.PHONY: $(STAMP)
endif

.DEFAULT_GOAL := setup
.PHONY: setup bench operators formats quantizers engines engines-table detection test golden test-slow test-random test-lowest test-newest test-oracles lint format nightly report doctor benchmarks bias-table zoo-table docs docs-serve help clean

setup: $(STAMP)  ## make .venv; every other target does it by itself (default)
	@echo "ready; 'make help' lists what can be made"

bench: $(STAMP)  ## run the smoke suite on real models: measure, judge, remember, draw
	$(PYTEST) suites/smoke.qbench.toml -n $(WORKERS) --dist loadscope $(REPORTS)

test: $(STAMP)  ## run the tests that take seconds
	$(PYTEST) -n $(TEST_WORKERS) --dist worksteal --ignore=tests/oracles --few-examples -m "not slow and not oracle"

golden: $(STAMP)  ## write the expected texts of tests/golden anew; read the difference before you commit it
	$(PYTEST) tests -n $(WORKERS) --write-golden

test-slow: $(OBJECTS)  ## run the tests that take minutes, and all examples of hypothesis (pytest's code 5: there are none)
	$(PYTEST) -n $(WORKERS) --dist worksteal -m "(slow or property) and not oracle" || test $$? -eq 5

test-random: $(STAMP)  ## run the properties on other examples than the last time; a failure prints how to repeat it
	$(PYTEST) -n $(WORKERS) -m "property and not oracle" --random-examples

test-lowest: $(STAMP)  ## the parts that touch other packages, with the lowest versions that are declared
	$(BIN)/python .ci/versions.py lowest

test-newest: $(STAMP)  ## the same with the newest versions that are to be had
	$(BIN)/python .ci/versions.py newest

test-oracles: $(ORACLES)  ## install the engines of the extra, and let them judge our arithmetics
	$(PYTEST) -n $(WORKERS) --dist worksteal -m oracle -rs

lint: $(STAMP)  ## format check, lint, types, layers, words, the maps of the code
	$(BIN)/python -m ruff format --check .
	$(BIN)/python -m ruff check .
	$(BIN)/python -m mypy
	$(BIN)/lint-imports --no-logo
	$(BIN)/python .ci/words.py
	$(BIN)/python benchmarks/structure.py --check
	$(BIN)/python benchmarks/gates.py --check
	$(BIN)/python benchmarks/hops.py --check

format: $(STAMP)  ## format the code, and fix what ruff can fix by itself
	$(BIN)/python -m ruff format .
	$(BIN)/python -m ruff check --fix .

operators: $(STAMP)  ## every engine and machine here, one operator at a time, bit by bit
	$(PYTEST) suites/operators.qbench.toml -n $(WORKERS) --dist loadscope

engines: $(ENGINES)  ## the same networks on every engine that can be installed here: measure, judge (minutes)
	$(PYTEST) suites/engines.qbench.toml -n $(WORKERS) --dist loadscope

engines-table: $(ENGINES)  ## the table of docs/evidence/engines.md anew: agreement, executed share, cause (half an hour)
	$(BIN)/python benchmarks/engines.py --write

nightly: $(STAMP)  ## run the nightly suite, add to the history, write the report, exit by the gates; try the gates too
	$(PYTEST) suites/nightly.qbench.toml -n $(WORKERS) --dist loadscope $(REPORTS)
	$(BIN)/python benchmarks/detection.py --subjects digits_cnn,digits_many_operators --reruns 100

detection: $(STAMP)  ## put every fault of the catalogue into real networks and write docs/detection.md (an hour)
	$(BIN)/python benchmarks/detection.py --reruns 500 --write

docs: $(SITE)  ## build the documentation into site/, and check its links
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --quiet --strict
	@echo "open site/index.html"

docs-serve: $(SITE)  ## show the documentation while you write it
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs serve

report: $(STAMP)  ## draw the report again from the history alone
	$(BIN)/qbench report

doctor: $(STAMP)  ## say what this computer and the suites are like
	$(BIN)/qbench doctor

formats: $(ENGINES)  ## int4 blocks, float8, MXFP4, NVFP4 and quantized caches on every engine here: docs/evidence/formats.md (half an hour)
	nice -n 10 $(BIN)/python benchmarks/formats.py --write

quantizers: $(STAMP)  ## quantizers of other people on five models; resumable, installs each tool
	$(BIN)/python benchmarks/quantizers.py --write

benchmarks: $(STAMP)  ## measure what qbench itself costs (docs/performance.md)
	@for script in $(filter-out benchmarks/digests.py benchmarks/fuzz_models.py benchmarks/trials.py benchmarks/detection% benchmarks/quantizers% benchmarks/formats.py benchmarks/rival_% benchmarks/esp_ppq_%,$(wildcard benchmarks/*.py)); do echo "== $$script"; $(BIN)/python $$script || exit 1; done

bias-table: $(STAMP)  ## measure examples/bias-and-scale and write its tables in docs (40 minutes)
	$(BIN)/python examples/bias_and_scale_table.py

zoo-table: $(STAMP)  ## score every network of the zoo in float and write the table of docs/zoo.md (three minutes)
	$(BIN)/python benchmarks/zoo_scores.py --write

$(STAMP): pyproject.toml engines/pyproject.toml zoo/pyproject.toml constraints.txt
	@test -n "$(PYTHON)" || { echo "qbench needs Python 3.11 or newer; name one: make PYTHON=/path/to/python3" >&2; exit 1; }
	@rm -f $(STAMP)
	@grep -qsxF "# made in $(CURDIR)" $(VENV)/pyvenv.cfg && $(BIN)/python -m pip --version >/dev/null 2>&1 || { \
		echo "making $(VENV)"; $(PYTHON) -m venv --clear $(VENV) && echo "# made in $(CURDIR)" >>$(VENV)/pyvenv.cfg; }
	@echo "installing what constraints.txt pins"
	@$(BIN)/python -m pip install --quiet --quiet --disable-pip-version-check --no-input -c constraints.txt -e ".[dev,fast,text,postgres,remote]" -e ./engines -e ./zoo
	@printf '%s' "$(CURDIR)" >$(STAMP)

# Engines that are not to be had here judge nothing: their tests skip and say so.
$(ORACLES): $(STAMP)
	@echo "installing the engines of the extra 'oracle'"
	@if $(BIN)/python -m pip install --quiet --quiet --disable-pip-version-check --no-input -c constraints.txt -e ".[oracle]"; \
		then touch $(ORACLES); else echo "the extra 'oracle' cannot be installed here: tests that need it skip" >&2; fi

# One environment: the pins of all engines agree. An engine that is not to be had here leaves its cells skipped.
$(ENGINES): $(STAMP)
	@for extra in openvino litert torch tvm; do \
		echo "installing the extra '$$extra'"; \
		$(BIN)/python -m pip install --quiet --quiet --disable-pip-version-check --no-input -c constraints.txt -e ".[$$extra]" || \
		echo "the extra '$$extra' cannot be installed here: its cells skip" >&2; done
	@touch $(ENGINES)

# The server of objects that slow tests of stores behind s3:// start on this computer.
$(OBJECTS): $(STAMP)
	@echo "installing the extra 'object-tests'"
	@if $(BIN)/python -m pip install --quiet --quiet --disable-pip-version-check --no-input -c constraints.txt -e ".[object-tests]"; \
		then touch $(OBJECTS); else echo "the extra 'object-tests' cannot be installed here: tests that need it skip" >&2; fi

$(SITE): $(STAMP)
	@echo "installing the extra 'docs'"
	@$(BIN)/python -m pip install --quiet --quiet --disable-pip-version-check --no-input -c constraints.txt -e ".[docs]"
	@touch $(SITE)

help:  ## list what can be made
	@sed -n 's/^\([a-z-]*\):.*##  *\(.*\)/\1|\2/p' $(MAKEFILE_LIST) | awk -F'|' '{ printf "make %-13s %s\n", $$1, $$2 }'

clean:  ## remove .venv and caches; baselines, history and reports stay
	rm -rf $(VENV) .venvs .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
