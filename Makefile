.DEFAULT_GOAL := help
.PHONY: help demo quick console console-test test soak chaos check format lock bench reference environment servers
bin := .venv/bin
unexport PYTHONDONTWRITEBYTECODE # every test process would compile the code and rewrite the asserts anew

help: ## what there is
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-12s %s\n", $$1, $$2 }' Makefile

environment: ## the Python environment, .venv
	@scripts/bootstrap

servers: environment ## environments of the MCP servers that the demo uses, .tools/servers
	@scripts/server-env time git

console: environment ## builds the console into src/starling/console
	@scripts/console

demo: servers ## starts the platform, sends it a request, shows what happens, stops
	@scripts/console || echo "The console could not be built; all else works without it." >&2
	@$(bin)/python examples/demo/run.py

quick: environment ## unit and contract tests, in less than a minute
	$(bin)/python -m pytest -n auto tests/unit tests/contract

test: servers ## all tests, but for soak tests and long chaos rounds
	@scripts/server-env sqlite
	@scripts/node-servers
	@scripts/console
	$(bin)/python -m pytest -n auto --dist loadfile --no-loadscope-reorder

console-test: servers ## all tests of pages
	@scripts/console
	$(bin)/python -m pytest -n auto --dist loadfile -m "not soak" tests/console

soak: servers ## tests of races and outages again, with many rounds and real waiting times
	@$(bin)/python -m tests.support.wrong_clock
	$(bin)/python -m pytest -n auto --dist worksteal -m soak --timeout 900

chaos: environment ## breaks everything 200 times in 10 minutes; CHAOS="--seed 7 --minutes 1 --faults 20" says otherwise
	@$(bin)/python -m tests.chaos $(CHAOS)

checks := layout lint types imports dependencies
.PHONY: $(checks)
check: $(checks) ## what a change has to pass besides the tests; `make -k check` goes on after a failure

$(checks): environment
layout:
	$(bin)/ruff format --check
lint:
	$(bin)/ruff check
types:
	$(bin)/pyright
imports:
	$(bin)/lint-imports --no-logo
dependencies:
	$(bin)/deptry src migrations
	scripts/lock-fits

format: environment ## lays the code out and corrects what can be corrected
	$(bin)/ruff format
	$(bin)/ruff check --fix

lock: ## locks what pyproject.toml asks for; scripts/lock --upgrade takes the newest of everything
	scripts/lock

bench: environment ## measures all figures in half an hour; results in bench/results.jsonl
	@$(bin)/python -m bench.run

reference: environment ## writes docs/reference from the code
	@$(bin)/python scripts/reference.py
