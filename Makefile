# make demo   sets everything up and runs the main job        make test   sets everything up and passes the tests
# make bench  measures what the README states                 make lint   the static checks only
#
# Where pip's configured sources do not carry the CPU build of torch, name the CPU wheel index that pytorch.org's
# "Start Locally" page shows:  make demo PIP_EXTRA_INDEX_URL=<that index>   (an environment variable works as well)

PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV   ?= .venv
BIN    := $(VENV)/bin
HASH   := $(shell cat requirements/cpu.txt pyproject.toml | sha256sum | cut -c1-16)
STAMP  := $(VENV)/.bidirl-$(HASH)
ARGS   ?=

ifdef PIP_EXTRA_INDEX_URL
export PIP_EXTRA_INDEX_URL
endif
export DS_ACCELERATOR ?= cpu
export HF_HUB_OFFLINE ?= 1

.PHONY: env demo test bench lint clean

env: $(STAMP)

$(STAMP):
	@test -n "$(PYTHON)" || { echo "make: Python 3.11 is needed; pass PYTHON=/path/to/python3.11"; exit 2; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info[:2] != (3, 11))' || \
	  { echo "make: $(PYTHON) is not Python 3.11, for which requirements/cpu.txt is pinned; pass PYTHON=…"; exit 2; }
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --no-deps setuptools==78.1.1
	$(BIN)/python -m pip install --quiet --no-deps --requirement requirements/cpu.txt
	$(BIN)/python -m pip install --quiet --no-deps --no-build-isolation --editable .
	@$(BIN)/python -c 'import torch' || { echo "make: this torch does not load here; pass" \
	  "PIP_EXTRA_INDEX_URL=<the CPU wheel index named on pytorch.org's Start Locally page> after 'make clean'"; exit 2; }
	@rm -f $(VENV)/.bidirl-*
	@touch $@

demo: env
	$(BIN)/python -m experiments.demo $(ARGS)

lint: env
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache

test: lint
	$(BIN)/python -m pytest $(ARGS)

bench: env
	$(BIN)/python -m experiments.bench $(ARGS)

clean:
	rm -rf $(VENV) build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
