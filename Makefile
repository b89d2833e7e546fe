# Everything runs in .venv, which the first target that needs it creates and fills.
PYTHON ?= python3
BIN := .venv/bin
READY := .venv/.ready
PEERS := .venv-peers

.PHONY: setup demo test check bench peers docs clean

setup: $(READY)

$(READY): pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --constraint constraints.txt --editable '.[dev]'
	touch $@

demo: $(READY)
	$(BIN)/dial demo

# A process for each core, with one thread each: most tests are too small to share among threads.
test: $(READY)
	OMP_NUM_THREADS=1 $(BIN)/pytest --numprocesses auto --maxprocesses 8 --dist worksteal

check: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: $(READY)
	$(BIN)/python -m benchmarks.layers
	$(BIN)/python -m benchmarks.data
	$(BIN)/python -m benchmarks.training

# In an environment of their own: what they need is not for the project. torch comes first, because
# an unpinned one that another package asks for brings gigabytes of CUDA.
peers: $(PEERS)/.ready
	@echo 'Run the comparison with other libraries with, for example,'
	@echo '  $(PEERS)/bin/python -m benchmarks.peers --out runs/peers --tasks digits --steps 200'

$(PEERS)/.ready: pyproject.toml constraints.txt benchmarks/peers-requirements.txt
	test -x $(PEERS)/bin/python || $(PYTHON) -m venv $(PEERS)
	$(PEERS)/bin/pip install --quiet --constraint constraints.txt torch torchvision
	$(PEERS)/bin/pip install --quiet --constraint constraints.txt \
		--requirement benchmarks/peers-requirements.txt --editable '.[all]'
	touch $@

docs: $(READY)
	$(BIN)/typer dial.cli utils docs --name dial --title 'The command' --output docs/command.md

clean:
	rm -rf .venv $(PEERS) build *.egg-info src/*.egg-info .pytest_cache .mypy_cache .ruff_cache
