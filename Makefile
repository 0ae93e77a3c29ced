# make serve   everything on this machine: http://localhost:8421
# make test    everything the tests need, then all of them
# make check   formatting, lint, types, layers, templates
# make pictures   take the screenshots of docs/ again
# make bench   measurements (minutes to hours): figures and JSON in benchmarks/results
# make bench-training   the same for training over many workers: figures and JSON in docs/training

PYTHON ?= python3
PORT ?= 8421
DATA ?= salmon-data
export PYTHON

.PHONY: serve test check bench bench-training pictures lock clean

serve:
	@requirements/install serve
	@exec .venv/bin/salmon serve --port $(PORT) --data $(DATA)

test:
	@requirements/install test
	@requirements/install-chromium
	@$(MAKE) --no-print-directory check
	@.venv/bin/python -m pytest

check:
	@requirements/install test
	.venv/bin/ruff format --check .
	.venv/bin/ruff check .
	.venv/bin/pyright
	.venv/bin/lint-imports
	.venv/bin/djlint --check --lint --quiet templates

bench:
	@requirements/install test
	OMP_NUM_THREADS=1 .venv/bin/python -m benchmarks.search
	OMP_NUM_THREADS=1 .venv/bin/python -m benchmarks.refit
	OMP_NUM_THREADS=1 .venv/bin/python -m benchmarks.round
	OMP_NUM_THREADS=1 .venv/bin/python -m benchmarks.efficiency --quick
	OMP_NUM_THREADS=1 .venv/bin/python -m benchmarks.participants
	OMP_NUM_THREADS=1 .venv/bin/python -m benchmarks.console --bundle
	.venv/bin/python -m benchmarks.page

bench-training:
	@requirements/install test
	OMP_NUM_THREADS=1 .venv/bin/python -m benchmarks.training.network_clock
	OMP_NUM_THREADS=1 .venv/bin/python -m benchmarks.training.batch_growth
	OMP_NUM_THREADS=1 .venv/bin/python -m benchmarks.training.periods
	OMP_NUM_THREADS=1 .venv/bin/python -m benchmarks.training.compression
	OMP_NUM_THREADS=1 .venv/bin/python -m benchmarks.training.replicas
	OMP_NUM_THREADS=1 .venv/bin/python -m benchmarks.training.noise_scale
	OMP_NUM_THREADS=1 .venv/bin/python -m benchmarks.training.hyperband
	OMP_NUM_THREADS=1 .venv/bin/python -m benchmarks.training.scaling
	.venv/bin/python -m benchmarks.training.tables

pictures:
	@requirements/install test
	SALMON_PICTURES=1 .venv/bin/python -m pytest -q tests/browser

lock:
	@requirements/install test
	.venv/bin/python -m pip install --quiet pip-tools
	.venv/bin/python requirements/lock.py

clean:
	rm -rf .venv build dist *.egg-info
