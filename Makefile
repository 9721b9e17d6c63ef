# Two commands do everything on a fresh machine: `make run` and `make test`.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
CHROMIUM := $(shell command -v chromium || command -v chromium-browser || command -v google-chrome)

.PHONY: help run test test-browser test-flower test-huggingface lint docs docs-serve docs-tables wheel test-wheel same-bits bench-cpu bench-gpu bench-peers bench-scale bench-wire clean

$(READY): pyproject.toml constraints.txt CMakeLists.txt $(wildcard native/*)
	@echo 'installing into $(VENV); this takes a few minutes the first time'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile --constraint constraints.txt --editable '.[dev]'
	@ls src/feddst/_native.*so >/dev/null 2>&1 || echo 'feddst._native could not be built, so feddst goes without it;' \
		'to see why: $(BIN)/pip install --verbose --editable .'
	touch $@

help: ## list what there is
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "%-14s%s\n", $$1, $$2}' $(MAKEFILE_LIST)

run: $(READY) ## install, and compare three methods on MNIST
	$(BIN)/feddst compare --preset quick --out runs/quick

lint: $(READY) ## ruff and mypy
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# Two processes on two cores: in each PyTorch has one thread, as several would wait for one another's cores. Tests start
# many a Python, which reads what the first one compiled, even where the environment forbids to keep it.
test: export OMP_NUM_THREADS = 1
test: export PYTHONDONTWRITEBYTECODE =

# In a browser too where there is one.
test: lint ## lint, then all tests but those of test-flower
	$(BIN)/python -m pytest --numprocesses 2 -m '$(if $(CHROMIUM),not deployment and not huggingface,not deployment and not browser and not huggingface)'
	@$(if $(CHROMIUM),true,echo 'There is no Chromium here: pages were not looked at in a browser.')

test-browser: $(READY) ## the tests that look at pages in Chromium
	$(BIN)/python -m pytest -m browser

test-flower: $(READY) ## the tests that start Flower's own processes: minutes
	$(BIN)/python -m pytest -m deployment --durations 5

# They come last on Python's path, so that what they bring along hides nothing of ours.
test-huggingface: $(READY) ## the tests with Hugging Face's packages, which it installs: 400 MB
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --target $(VENV)/huggingface 'datasets>=4.4,<5' 'pyarrow>=21'
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --target $(VENV)/huggingface 'flwr-datasets>=0.6.1' seaborn
	$(BIN)/python -c 'import sys, pytest; sys.path.append("$(VENV)/huggingface"); sys.exit(pytest.main(["-m", "huggingface"]))'

# The wheel is built from the source distribution, so that this too is known to hold everything.
wheel: $(READY) ## the source distribution and the wheel, into dist/
	$(BIN)/python -m pip install --quiet --disable-pip-version-check 'build>=1.2'
	rm -rf dist
	FEDDST_REQUIRE_NATIVE=1 $(BIN)/python -m build --outdir dist

test-wheel: $(READY) ## try that wheel in an empty environment
	$(BIN)/python scripts/try_wheel.py dist

# The variable silences a notice on the theme's own future.
docs: $(READY) ## the documentation as a site
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

docs-serve: $(READY) ## the same on loopback, made again as pages change
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs serve --dev-addr 127.0.0.1:8000

docs-tables: $(READY) ## the tables on the pages, from the records in results/
	$(BIN)/python -m scripts.tables

# The commit that weights are held against, and what it trains on this machine.
BASE ?= 3c2f083
BASE_BITS = runs/same-bits/$(BASE).json

$(BASE_BITS): scripts/compare_commits.py scripts/play_cases.py | $(READY)
	$(BIN)/python scripts/compare_commits.py digest $(BASE) --out $@

same-bits: $(READY) $(BASE_BITS) ## show that weights are, bit for bit, those of the commit BASE
	$(BIN)/python scripts/compare_commits.py digest --here --out runs/same-bits/here.json
	$(BIN)/python scripts/compare_commits.py compare $(BASE_BITS) runs/same-bits/here.json

# What each measures; ARGS are its options, and ARGS=--help lists them: make bench-cpu ARGS='--jobs mnist --turns 1'.
bench-cpu: $(READY) ## measure rounds on this CPU, beside PyTorch
	$(BIN)/python -m benchmarks.cpu $(ARGS)

bench-gpu: $(READY) ## measure training steps on this GPU, beside PyTorch
	$(BIN)/python -m benchmarks.gpu $(ARGS)

bench-peers: $(READY) ## measure rounds beside other frameworks
	$(BIN)/python -m benchmarks.peers $(ARGS)

bench-scale: $(READY) ## measure the server of many clients
	$(BIN)/python -m benchmarks.scale $(ARGS)

bench-wire: $(READY) ## measure updates on the wire: bytes and speed
	$(BIN)/python -m benchmarks.wire $(ARGS)

clean: ## remove what the others made
	rm -rf $(VENV) build dist site src/feddst/_native.*so .mypy_cache .ruff_cache .pytest_cache .hypothesis
