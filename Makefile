# Everything a newcomer needs is `make run` and `make test`. Python 3.11+ is all that must be there.
PYTHON ?= python3
ARGS ?=

.PHONY: run test test-browser chaos bench check format lock openapi clean env-run env-dev
.DEFAULT_GOAL := run

run: env-run ## start the whole system in the foreground; Ctrl-C drains and stops it
	@exec .venv/bin/hookyard up

test: env-dev ## the whole test suite (ARGS are passed to pytest)
	@.venv/bin/python -m pytest -n 2 --dist worksteal --ignore=tests/browser $(ARGS)

test-browser: env-dev ## the dashboard in a real browser; skipped where there is none (ARGS are passed to pytest)
	@.venv/bin/python -m tests.browser $(ARGS)

chaos: env-dev ## seeded storms over the whole system, see docs/chaos.md (ARGS: --seed N --seeds N --seconds N --faults a,b)
	@.venv/bin/python -m tests.chaos $(ARGS)

bench: env-dev ## what this machine can do, and how much of it is left, see docs/performance.md (ARGS: --all, --only A,B, --guard)
	@.venv/bin/python -m bench $(ARGS)

check: env-dev ## format, lint, types, import rules
	.venv/bin/ruff format --check .
	.venv/bin/ruff check .
	.venv/bin/mypy .
	.venv/bin/lint-imports

format: env-dev ## rewrite what ruff can put right
	.venv/bin/ruff format .
	.venv/bin/ruff check --fix .

COMPILE = .venv/bin/pip-compile --quiet --allow-unsafe --generate-hashes --strip-extras \
	--no-emit-find-links --no-emit-index-url --no-emit-trusted-host
lock: env-dev ## take pyproject.toml's dependencies into the lock files
	$(COMPILE) --output-file=requirements/run.txt pyproject.toml
	$(COMPILE) --extra=dev --constraint=requirements/run.txt --output-file=requirements/dev.txt pyproject.toml

openapi: env-dev ## describe the API in docs/openapi.json
	@.venv/bin/python -c 'import pathlib, ops.api.app as api; api.write(pathlib.Path("docs/openapi.json"))'

clean: ## forget the environment and the caches; data in .hookyard stays
	rm -rf .venv .mypy_cache .pytest_cache .ruff_cache .import_linter_cache .hypothesis build *.egg-info
	find . -name __pycache__ -type d -not -path './.hookyard/*' -prune -exec rm -rf {} +

env-run env-dev:
	@command -v $(PYTHON) >/dev/null || { echo "hookyard needs Python 3.11 or newer, found no $(PYTHON)" >&2; exit 1; }
	@$(PYTHON) requirements/build.py $(@:env-%=%)
