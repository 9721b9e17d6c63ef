# Two commands do everything on a fresh machine: `make run` and `make test`.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

.PHONY: run test test-flower lint clean

$(READY): pyproject.toml constraints.txt CMakeLists.txt $(wildcard native/*)
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[dev]'
	@ls src/feddst/_native.*so >/dev/null 2>&1 || echo 'feddst._native could not be built, so feddst goes without it;' \
		'to see why: $(BIN)/pip install --verbose --editable .'
	touch $@

run: $(READY)
	$(BIN)/feddst compare --preset quick --out runs/quick

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

test: lint
	$(BIN)/python -m pytest --numprocesses 2

test-flower: $(READY)
	$(BIN)/python -m pytest -m deployment --durations 5

clean:
	rm -rf $(VENV) build src/feddst/_native.*so .mypy_cache .ruff_cache .pytest_cache .hypothesis
