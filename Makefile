# Everything runs from .venv; `make` alone lists the targets.
PYTHON ?= python3
PYTEST_ARGS ?= -q
TEST_JOBS ?= 2
CMAKE ?= cmake
SANITIZE ?= address,undefined
SCHEDULES ?= 10000
EMULATED_FILES ?= 500
WHEEL_PYTHONS ?= $(PYTHON)
VENV := .venv
BIN := $(VENV)/bin
PLACE := $(VENV)/.place
STAMP := $(VENV)/.installed
EXTRAS := $(VENV)/.extras
DOCS := $(VENV)/.docs
NATIVE := $(shell find fused_ops -name '*.cpp' -o -name '*.cu' -o -name '*.h')
LINTED := $(wildcard qgraph transforms cli tests benchmarks examples docs/builder)
PIP := $(BIN)/python -m pip --disable-pip-version-check
# Shows the elapsed time and what pip does; the whole output if the command fails.
STEP := $(PYTHON) tests/helpers/step.py
# The build folder is kept, so that only what changed is compiled. Build isolation would forbid
# that; hence the build requirements are installed first. They include those of pyproject.toml.
BUILD_TOOLS := 'scikit-build-core>=1.0' 'nanobind>=3.1,<3.2' 'cmake>=3.18' 'ninja>=1.11'
INSTALL := $(PIP) install --no-build-isolation --config-settings=build-dir=$(VENV)/native --editable
# All tests of a file stay in one process: its fixtures are made once.
PARALLEL := $(BIN)/python -m pytest -n $(TEST_JOBS) --dist loadfile

.DEFAULT_GOAL := help
.PHONY: help venv demo train-demo test test-fast test-extras test-gpu test-real test-slow simulate fuzz test-native test-avx512 test-aarch64 native-tests lint format types golden assets bench measure docs pages wheel test-wheel clean

help:  ## list the targets
	@grep -hE '^[a-z0-9-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*##/ \t/' | expand -t 14

# A new package is not seen by an editable install until it is installed again.
PACKAGES := $(shell find qgraph transforms cli -name '__init__.py')

# Scripts in .venv hold its path: in a copied or moved folder .venv is made anew.
ifneq ($(shell cat $(PLACE) 2>/dev/null),$(CURDIR))
.PHONY: $(PLACE) $(STAMP) $(EXTRAS) $(DOCS)
endif

$(PLACE):
	@$(STEP) "making $(VENV)" $(PYTHON) -m venv --clear $(VENV)
	@echo '$(CURDIR)' > $@

# A stamp is as old as the start of the build: a file edited meanwhile is newer.
$(STAMP): pyproject.toml CMakeLists.txt $(NATIVE) $(PACKAGES) | $(PLACE)
	@touch $@.begun
	@test -e $@ || $(STEP) "updating pip" $(PIP) install --upgrade pip
	@$(STEP) "installing build tools" $(PIP) install $(BUILD_TOOLS)
	@$(STEP) "installing qgraph and its tools" $(INSTALL) '.[dev]'
	@mv $@.begun $@

$(EXTRAS): pyproject.toml | $(STAMP)
	@touch $@.begun
	@$(STEP) "installing PyTorch, stable-baselines3, Ray, games" $(INSTALL) '.[dev,extras]'
	@mv $@.begun $@

$(DOCS): pyproject.toml | $(STAMP)
	@touch $@.begun
	@$(STEP) "installing mkdocs" $(INSTALL) '.[dev,docs]'
	@mv $@.begun $@

venv: $(STAMP)  ## make .venv with qgraph (editable) and every tool; PYTHON=python3.12 picks another

demo: $(STAMP)  ## quantize the digits network and compare it with float
	@$(BIN)/python examples/digits/demo.py

train-demo: $(STAMP)  ## train the digits network anew (examples/digits/digits.pb)
	@$(BIN)/python examples/digits/train.py

test: lint types test-fast  ## lint, types and the fast tests

test-fast: $(STAMP)  ## the fast tests; PYTEST_ARGS="-k name" picks some; TEST_JOBS=4 uses 4 processes
	@$(PARALLEL) $(PYTEST_ARGS)

test-extras: $(EXTRAS)  ## the tests of optional packages (PyTorch, Ray, games); one that is missing fails
	@$(PARALLEL) $(PYTEST_ARGS) --require-extras -m 'not real and not fuzz and (extra or not slow)'

test-gpu: $(STAMP)  ## on a machine with a GPU: the kernels' bits and bandwidth, training steps; prints tables
	@$(BIN)/python -m benchmarks.gpu_check $(if $(JSON),--json $(JSON))

test-real: $(STAMP)  ## the tests on real networks (downloads them once)
	@$(BIN)/python -m pytest $(PYTEST_ARGS) -m real || [ $$? -eq 5 ]

test-slow: $(STAMP)  ## the slow tests
	@$(BIN)/python -m pytest $(PYTEST_ARGS) -m 'slow and not real' || [ $$? -eq 5 ]

simulate: $(STAMP)  ## 10,000 schedules of learner, actors and what is between them (needs a C++ compiler); SCHEDULES=500 runs fewer
	@$(BIN)/python -m tests.rl.simulation --schedules $(SCHEDULES)

fuzz: $(STAMP)  ## random networks through every form, and mutated files: half an hour
	@$(BIN)/python -m pytest $(PYTEST_ARGS) -m fuzz

test-native: NATIVE_BUILD := build/native-$(SANITIZE)
test-native: NATIVE_OPTIONS := -DQGRAPH_SANITIZE=$(SANITIZE)
test-native: native-tests  ## the kernels alone, under ASan and UBSan; SANITIZE=thread for TSan (needs cmake)

test-avx512: NATIVE_BUILD := build/native-emulated
test-avx512: NATIVE_OPTIONS := -DQGRAPH_EMULATE_AVX512=ON
test-avx512: native-tests  ## the kernels for AVX-512 on a CPU that has only AVX2 (needs cmake, libsimde-dev)

# Two CPUs: without and with instructions for dot products.
test-aarch64: NATIVE_BUILD := build/native-aarch64
test-aarch64: NATIVE_OPTIONS := -DCMAKE_TOOLCHAIN_FILE=fused_ops/aarch64-linux-gnu.cmake
test-aarch64:  ## the kernels for 64-bit Arm, by emulation (needs cmake, g++-aarch64-linux-gnu, qemu-user)
	@for tool in aarch64-linux-gnu-g++ qemu-aarch64; do command -v $$tool >/dev/null || { \
	    echo "$$tool is missing: apt install g++-aarch64-linux-gnu qemu-user"; exit 1; }; done
	@for cpu in cortex-a53 max; do \
	    $(MAKE) --no-print-directory native-tests NATIVE_BUILD='$(NATIVE_BUILD)' \
	        NATIVE_OPTIONS='$(NATIVE_OPTIONS)' NATIVE_FILES='$(EMULATED_FILES)' \
	        RUN="qemu-aarch64 -L /usr/aarch64-linux-gnu -cpu $$cpu" || exit 1; done

native-tests:
	@command -v $(CMAKE) >/dev/null || { echo "cmake is missing: install it, or name it by CMAKE=..."; exit 1; }
	@$(CMAKE) -S . -B $(NATIVE_BUILD) -DQGRAPH_NATIVE_TESTS=ON $(NATIVE_OPTIONS) >/dev/null
	@$(CMAKE) --build $(NATIVE_BUILD) -j $(TEST_JOBS) >/dev/null
	@$(RUN) $(NATIVE_BUILD)/core_test
	@$(RUN) $(NATIVE_BUILD)/engine_test fused_ops/tests/every_op.qgi $(NATIVE_FILES)
	@$(RUN) $(NATIVE_BUILD)/actor_test fused_ops/tests/every_op.qga $(NATIVE_FILES)

lint: $(STAMP)  ## ruff, clang-format and phrases that read badly, checking only
	@$(BIN)/ruff check -q $(LINTED)
	@$(BIN)/ruff format -q --check $(LINTED) || { echo "run: make format"; exit 1; }
	@$(BIN)/python -m tests.helpers.english
	@$(BIN)/clang-format --dry-run -Werror $(NATIVE) 2>$(VENV)/.unformatted || { \
	    sed -n 's/:[0-9]*: error: code should be clang-formatted.*/: not formatted/p' \
	    $(VENV)/.unformatted | uniq | grep . && echo "run: make format" \
	    || cat $(VENV)/.unformatted; exit 1; }

types: $(STAMP)  ## mypy, strict
	@$(BIN)/mypy

format: $(STAMP)  ## let ruff and clang-format rewrite the sources
	@$(BIN)/ruff check -q --fix $(LINTED)
	@$(BIN)/ruff format -q $(LINTED)
	@$(BIN)/clang-format -i $(NATIVE)

golden: $(STAMP)  ## write again what is made from definitions: ops.h, golden files, tables and pages in docs
	@$(BIN)/python -m tests.helpers.golden

assets: $(STAMP)  ## fetch the real networks and images into the cache, all at once
	@$(BIN)/python -m benchmarks.assets

bench: $(STAMP)  ## time the native kernels beside their numpy versions
	@$(BIN)/python -m benchmarks.kernels

measure: $(STAMP)  ## measure again the times that were transcribed, and make their pages; BUDGET=1200 starts no more after 20 minutes
	@$(BIN)/python -m benchmarks.measure $(if $(BUDGET),--budget $(BUDGET)); failed=$$?; $(BIN)/python -m tests.helpers.golden; exit $$failed

docs: $(DOCS)  ## the documentation site, in build/site; warnings and broken links are errors
	@NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict --quiet
	@$(BIN)/python docs/builder/check_links.py build/site

wheel: $(STAMP)  ## dist/: a source distribution, and a manylinux wheel for each of WHEEL_PYTHONS
	@rm -rf build/wheels
	@$(STEP) "packing the sources" $(BIN)/python -m build --sdist --outdir build/wheels
	@for python in $(WHEEL_PYTHONS); do $(STEP) "building the wheel for $$python" \
	    $(PIP) --python "$$(command -v $$python)" wheel --no-deps --wheel-dir build/wheels build/wheels/*.tar.gz || exit 1; done
	@PATH="$(CURDIR)/$(BIN):$$PATH" $(STEP) "checking what the wheels link" $(BIN)/auditwheel repair \
	    --exclude libtensorflow_framework.so.2 --wheel-dir dist build/wheels/*.whl
	@cp build/wheels/*.tar.gz dist && ls dist

test-wheel: $(STAMP)  ## the fast tests against the wheel of PYTHON in dist/, in a new environment without a compiler
	@$(BIN)/python -m tests.helpers.wheel --python $(PYTHON) $(PYTEST_ARGS)

pages: $(DOCS)  ## run the commands and notebooks of the documentation, and store what they print
	@$(BIN)/python docs/builder/sessions.py README.md $$(grep -rl '^```console' docs --include='*.md')
	@$(BIN)/python docs/builder/notebooks.py docs/notebooks/*.ipynb

clean:  ## remove .venv and what tools left behind
	@rm -rf $(VENV) build dist .mypy_cache .pytest_cache .ruff_cache .hypothesis
