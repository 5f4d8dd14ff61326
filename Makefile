# Two commands do everything on a fresh machine: `make demo` and `make test`.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
PIP    := $(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt

.PHONY: demo test lint format bench clean

demo: $(VENV)/base
	$(BIN)/python -m paper.demo

test: lint
	OMP_NUM_THREADS=1 $(BIN)/pytest -n 2  # two workers of one thread each: more threads than cores wait for each other

lint: $(VENV)/dev
	$(BIN)/ruff check src paper tests benchmarks scripts conftest.py
	$(BIN)/ruff format --check src paper tests benchmarks scripts conftest.py
	$(BIN)/mypy

format: $(VENV)/dev
	$(BIN)/ruff check --fix src paper tests benchmarks scripts conftest.py
	$(BIN)/ruff format src paper tests benchmarks scripts conftest.py

bench: $(VENV)/bench
	$(BIN)/python -m benchmarks

$(VENV)/base: pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --upgrade "pip>=25.1"
	$(PIP) -e ".[plots]"
	touch $@

$(VENV)/dev: $(VENV)/base
	$(PIP) -e ".[all]" --group test --group lint
	touch $@

$(VENV)/bench: $(VENV)/dev
	$(PIP) --group bench
	touch $@

clean:
	rm -rf $(VENV) build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
