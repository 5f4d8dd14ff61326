# Two commands do everything on a fresh machine: `make demo` and `make test`.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
PIP    := $(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt
CODE   := src paper examples tests benchmarks scripts conftest.py
# Two workers of one thread each: more threads than cores wait for each other.
PYTEST := OMP_NUM_THREADS=1 $(BIN)/pytest -n 2

.PHONY: demo test test-fast test-random lint format docs bench release-check clean

demo: $(VENV)/base
	$(BIN)/python -m paper.demo

test: lint
	$(PYTEST)

test-fast: $(VENV)/dev      # without the slow tests
	$(PYTEST) -m "not slow"

test-random: $(VENV)/dev    # property tests with new random examples
	HYPOTHESIS_PROFILE=random $(PYTEST) -m "not slow" tests

lint: $(VENV)/dev
	$(BIN)/ruff check $(CODE)
	$(BIN)/ruff format --check $(CODE)
	$(BIN)/mypy

format: $(VENV)/dev
	$(BIN)/ruff check --fix $(CODE)
	$(BIN)/ruff format $(CODE)

docs: $(VENV)/docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

bench: $(VENV)/bench
	$(BIN)/python -m benchmarks

release-check: $(VENV)/docs  # build wheel and sdist, install the wheel elsewhere, and try it
	rm -rf dist
	$(BIN)/python -m build --outdir dist
	$(BIN)/twine check --strict dist/*
	PYTHON=$(PYTHON) scripts/try_wheel.sh dist/*.whl

$(VENV)/base: pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --upgrade "pip>=25.1"
	$(PIP) -e ".[plots]"
	touch $@

$(VENV)/dev: $(VENV)/base
	$(PIP) -e ".[all]" --group test --group lint
	touch $@

$(VENV)/docs: $(VENV)/dev
	$(PIP) --group docs --group release
	touch $@

$(VENV)/bench: $(VENV)/dev
	$(PIP) --group bench
	touch $@

clean:
	rm -rf $(VENV) build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
