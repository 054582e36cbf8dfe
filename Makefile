# Two commands do everything on a fresh machine with Python 3.11+ and make: `make demo` and `make test`.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin

.PHONY: demo test lint validation clean

$(VENV)/.ready: pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; assert sys.version_info >= (3, 11), "poseidon_sim needs Python 3.11 or newer; run make PYTHON=python3.11"'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[fast]'
	touch $@

$(VENV)/.ready-dev: $(VENV)/.ready
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[fast,dev]'
	touch $@

demo: $(VENV)/.ready  ## Poseidon's own question: which strategy wins for VGG19-22K on 10 and 40 Gbit/s Ethernet
	$(BIN)/python experiments/demo.py

test: $(VENV)/.ready-dev  ## all tests
	$(BIN)/python -m pytest -n 2 --dist loadfile

lint: $(VENV)/.ready-dev
	$(BIN)/ruff check .
	$(BIN)/mypy

clean:
	rm -rf $(VENV) out build dist .pytest_cache .mypy_cache .ruff_cache
