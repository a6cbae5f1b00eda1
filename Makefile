# Every target makes its own virtual environment in .venv and installs what it needs; the second time is quick.
PYTHON ?= python3.11
BIN := .venv/bin
SOURCES := pyproject.toml CMakeLists.txt $(wildcard cpp/*)
PYTEST := $(BIN)/python -m pytest -n 2

.DELETE_ON_ERROR:
.PHONY: demo test test-all lint bench docs clean FORCE

demo: .venv/installed
	$(BIN)/knnpress demo

test: .venv/installed-test
	$(PYTEST)

test-all: .venv/installed-test
	$(PYTEST) -m ""

lint: .venv/installed-lint
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: .venv/installed-bench
	$(BIN)/python benchmarks/run.py

docs: .venv/installed-docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict
	@echo "build/site/index.html"

clean:
	rm -rf .venv build

.venv/bin/python:
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --upgrade "pip>=25.1"

# The editable install knows its modules by name: a new or removed one calls for a new install.
build/modules: FORCE
	@mkdir -p build
	@find src -name '*.py' | sort | cmp -s - $@ || find src -name '*.py' | sort > $@

.venv/installed: .venv/bin/python $(SOURCES) build/modules
	$(BIN)/python -m pip install --quiet "scikit-build-core>=1.0,<2" "nanobind>=3.1,<4" "cmake>=3.20" ninja
	$(BIN)/python -m pip install --quiet --no-build-isolation --editable .
	touch $@

.venv/installed-%: .venv/installed
	$(BIN)/python -m pip install --quiet --group $*
	touch $@
