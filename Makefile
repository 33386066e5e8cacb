# Two commands: `make serve` and `make test`. Needs Linux x86-64, Python >= 3.11 (headers, venv), g++ >= 12, make and a
# Python package index. Everything else is installed, hash-locked, into .venv.

PYTHON ?= python3
MODEL  ?= smollm2
HOST   ?= 127.0.0.1
PORT   ?= 8000

BIN   := .venv/bin
STAMP := .venv/stamps
PIP   := $(BIN)/python -m pip --disable-pip-version-check --quiet

# What the compiled core is made of: a change in any of these rebuilds it.
CORE := pyproject.toml CMakeLists.txt $(shell find native -name '*.cpp' -o -name '*.h' -o -name '*.inc' -o -name CMakeLists.txt)

.PHONY: help setup serve lab extras test lint types unit format lock sanitize bench-serving bench-check bench-peers bench-endpoints \
	bench-scheduling bench-flow bench-gateway bench-simulator bench-policies bench-prompts wheel-check clean
.DELETE_ON_ERROR:

help:
	@sed -n 's/^## //p' $(MAKEFILE_LIST)

## make serve          set everything up and serve the demo model on http://127.0.0.1:8000
serve: setup
	$(BIN)/headway serve $(MODEL) --host $(HOST) --port $(PORT)

## make setup          the set-up alone; afterwards .venv/bin/headway is the command
setup: $(STAMP)/core

## make lab            the set-up with what `headway bench` needs besides: numpy, scipy, pyarrow, plotly
lab: setup $(STAMP)/lab

## make extras         the set-up with what Redis, JWT, traces and prompts of code need: the extras gateway and editor
extras: setup $(STAMP)/extras

## make test           set-up, then lint, types and tests
test: setup $(STAMP)/dev
	@$(MAKE) --no-print-directory lint types unit

lint: $(STAMP)/dev
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/lint-imports --no-logo

types: $(STAMP)/dev
	$(BIN)/mypy

unit: setup $(STAMP)/dev
	$(BIN)/python -m pytest $(PYTEST_ARGS)

## make sanitize       native code under Address-, UndefinedBehavior- and ThreadSanitizer
sanitize: $(STAMP)/base
	PATH="$(CURDIR)/$(BIN):$$PATH" scripts/sanitize

## make bench-serving  median step under 64 streaming clients against the same step offline
bench-serving: setup $(STAMP)/dev
	$(BIN)/python benchmarks/serving.py $(BENCH_ARGS)

## make bench-check    whether the measuring client may be believed on this machine (best of three tries)
bench-check: lab
	@for try in 1 2 3; do $(BIN)/headway bench --self-test && exit 0; done; exit 1

## make bench-peers    against llama.cpp and OpenVINO GenAI, in environments of their own (docs/performance.md)
bench-peers: setup $(STAMP)/dev
	PYTHONPATH=benchmarks $(BIN)/python -m peers $(BENCH_ARGS)

## make bench-endpoints  served: against llama-server and vLLM, all measured by headway bench (docs/performance.md)
bench-endpoints: setup $(STAMP)/dev
	PYTHONPATH=benchmarks $(BIN)/python -m endpoints $(BENCH_ARGS)

## make bench-scheduling  what scheduling promises, shown by the lab; llama-server and vLLM at their own knee (docs/performance.md)
bench-scheduling: setup $(STAMP)/dev
	PYTHONPATH=benchmarks $(BIN)/python -m scheduling $(BENCH_ARGS)

## make bench-flow     a burst and a scan, static limits against dynamic ones, in virtual time (docs/performance.md)
bench-flow: setup $(STAMP)/dev
	PYTHONPATH=benchmarks $(BIN)/python -m flow_control $(BENCH_ARGS)

## make bench-gateway  what the gateway itself costs a request and an idle stream (docs/performance.md)
bench-gateway: setup $(STAMP)/dev
	PYTHONPATH=benchmarks $(BIN)/python -m gateway_overhead $(BENCH_ARGS)

## make bench-simulator  how far `headway simulate` is off the real engine on this machine (docs/simulator.md)
bench-simulator: lab $(STAMP)/dev
	PYTHONPATH=benchmarks $(BIN)/python benchmarks/simulator_accuracy.py $(BENCH_ARGS)

## make bench-policies  scheduling policies side by side, simulated (docs/simulator.md)
bench-policies: lab $(STAMP)/dev
	$(BIN)/python benchmarks/simulated_policies.py $(BENCH_ARGS)

## make bench-prompts  what ways of building prompts cost and keep (docs/performance.md)
bench-prompts: setup $(STAMP)/dev
	PYTHONPATH=benchmarks $(BIN)/python -m prompts $(BENCH_ARGS)

## make wheel-check    build the wheel, install it in a clean venv, answer one prompt from it
wheel-check: setup $(STAMP)/dev
	scripts/check-wheel

## make format         format the Python sources
format: $(STAMP)/dev
	$(BIN)/ruff check --fix-only
	$(BIN)/ruff format

## make lock           renew the pinned dependencies in requirements/*.txt
lock: $(STAMP)/dev
	scripts/lock

## make clean          remove what was built (the model cache stays)
clean:
	rm -rf .venv build dist

$(STAMP)/base: requirements/build.txt requirements/runtime.txt
	@PYTHON="$(PYTHON)" scripts/check-tools
	@echo "installing dependencies (hash-locked)"
	@test -d $(STAMP) || "$(PYTHON)" -m venv --clear .venv  # no stamp: none yet, or one that was interrupted
	@$(PIP) install --require-hashes -r requirements/build.txt -r requirements/runtime.txt
	@mkdir -p $(STAMP) && touch $@

$(STAMP)/lab: requirements/lab.txt | $(STAMP)/base
	@echo "installing what the lab needs (hash-locked)"
	@$(PIP) install --require-hashes -r requirements/lab.txt
	@touch $@

$(STAMP)/extras: requirements/gateway.txt requirements/editor.txt | $(STAMP)/base
	@echo "installing what several gateways, traces and prompts of code need (hash-locked)"
	@$(PIP) install --require-hashes -r requirements/gateway.txt -r requirements/editor.txt
	@touch $@

$(STAMP)/dev: requirements/dev.txt $(STAMP)/lab $(STAMP)/extras
	@echo "installing lint, type and test tools (hash-locked)"
	@$(PIP) install --require-hashes -r requirements/dev.txt
	@touch $@

$(STAMP)/core: $(STAMP)/base $(CORE)
	@echo "building the native core (about a minute)"
	@PATH="$(CURDIR)/$(BIN):$$PATH" $(PIP) install --no-index --no-build-isolation --no-deps --editable .
	@touch $@
