# make test   everything CI checks, from a bare clone: virtual environment, dependencies, linters, types, tests
# make demo   nine census divisions as nine local daemons fit one model; needs no more than a bare clone
# make image  the container image, from a wheelhouse; BASE=... names its base (default: a slim official Python)
# make proto, make docs   the generated code, and the reference of all settings
# make pictures   docs/images, drawn from a demonstration
# make figures   the long figures of benchmarks/, each printed beside its bound
# make results   docs/results.md: every study at 100 repetitions (over an hour on two cores; goes on where it stopped)

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# One BLAS thread per process: what a node process runs with, and what every figure assumes.
export OPENBLAS_NUM_THREADS := 1
export OMP_NUM_THREADS := 1

.PHONY: test lint types figures results pictures proto docs demo image wheelhouse clean

$(VENV)/.installed: pyproject.toml
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable .
	@touch $@

$(VENV)/.ready: $(VENV)/.installed
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
	@touch $@

demo: $(VENV)/.installed
	$(BIN)/desmr demo

test: $(VENV)/.ready lint types
	$(BIN)/python -m pytest -rs tests/containers
	$(BIN)/python -m pytest -n 2 --ignore tests/containers

lint: $(VENV)/.ready
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/python proto/generate.py --check
	$(BIN)/python docs/generate.py --check

types: $(VENV)/.ready
	$(BIN)/mypy
	$(BIN)/mypy deploy/wheelhouse.py deploy/smoke.py
	$(BIN)/mypy deploy/kubernetes/render.py

wheelhouse:
	$(PYTHON) deploy/wheelhouse.py

# A wheelhouse that is there is used as it is: it may have been carried in.
image: $(if $(wildcard deploy/wheelhouse/*.whl),,wheelhouse)
	docker build -f deploy/Dockerfile -t desmr-node $(if $(BASE),--build-arg BASE=$(BASE)) .

figures: $(VENV)/.ready
	$(BIN)/python -m benchmarks

results: $(VENV)/.ready
	set -e; for name in $$($(BIN)/desmr study list | awk 'NR > 1 { print $$1 }'); do \
		$(BIN)/desmr study $$name --out desmr-study/$$name; done
	$(BIN)/python docs/results.py desmr-study

pictures: $(VENV)/.ready
	$(BIN)/desmr demo --plot docs/images

proto: $(VENV)/.ready
	$(BIN)/python proto/generate.py

docs: $(VENV)/.ready
	$(BIN)/python docs/generate.py

clean:
	rm -rf $(VENV) build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
