# Everything runs in .venv, which the first target that needs it creates and fills.
PYTHON ?= python3
BIN := .venv/bin
READY := .venv/.ready
OLDEST := .venv-oldest
PEERS := .venv-peers
# A process for each core, with one thread each: most tests are too small to share among threads.
PARALLEL := --numprocesses auto --maxprocesses 8 --dist worksteal

.PHONY: setup demo test test-all setup-oldest test-oldest fuzz check bench peers docs clean

setup: $(READY)

$(READY): pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --constraint constraints.txt --editable '.[dev,docs,examples]'
	touch $@

demo: $(READY)
	$(BIN)/dial demo

# Everything but what is marked slow, in an order of chance: the first lines say with which
# --randomly-seed the same order comes again, and `-p no:randomly` is the order of the files.
test: $(READY)
	OMP_NUM_THREADS=1 $(BIN)/pytest $(PARALLEL) $(TESTS)

# With what is marked slow.
test-all: $(READY)
	OMP_NUM_THREADS=1 $(BIN)/pytest $(PARALLEL) -m '' $(TESTS)

# The oldest versions that pyproject.toml allows; `make test-oldest TESTS=tests/backbones` is a part.
# What they warn of among each other is not for us to mend.
test-oldest: $(OLDEST)/.ready
	OMP_NUM_THREADS=1 $(OLDEST)/bin/pytest $(PARALLEL) --pythonwarnings default $(TESTS)

setup-oldest: $(OLDEST)/.ready

$(OLDEST)/.ready: pyproject.toml constraints-oldest.txt
	test -x $(OLDEST)/bin/python || $(PYTHON) -m venv $(OLDEST)
	$(OLDEST)/bin/pip install --quiet --constraint constraints-oldest.txt --editable '.[dev]'
	touch $@

# Tens of thousands of damaged files, others at each start; some hours. `make test` tries a thousand.
fuzz: $(READY)
	DIAL_FUZZ=long OMP_NUM_THREADS=1 $(BIN)/pytest --timeout 36000 tests/fuzzing

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

# The command's page, and the site in site/.
docs: $(READY)
	$(BIN)/typer dial.cli utils docs --name dial --title 'The command' --output docs/command.md
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build

clean:
	rm -rf .venv $(OLDEST) $(PEERS) build dist site *.egg-info src/*.egg-info .pytest_cache .mypy_cache .ruff_cache
