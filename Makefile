# make lab     opens the course          make check       the fast tests, under a minute
# make test    everything CI runs        make notebooks   all notebooks anew from their text; one: make notebook N=04
# make reset N=04   a notebook as delivered, yours kept beside it
PYTHON ?= python3
BIN := .venv/bin
# PyTorch's own index of CPU builds: PyPI's build for Linux brings several GB of CUDA along.
TORCH_CPU := https://download.pytorch.org/whl/cpu

.PHONY: lab test check lint notebooks notebook check-notebooks nbval test-seeds reset links clean

# The stamp says that .venv is current: then no target calls pip, and everything works offline.
.venv/current: requirements.txt pyproject.toml
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --no-deps --retries 0 --timeout 5 --index-url $(TORCH_CPU) torch==2.13.0 || true
	$(BIN)/pip install --quiet -r requirements.txt
	$(BIN)/pip install --quiet --no-deps --editable .
	touch $@

lab: .venv/current
	$(BIN)/jupyter lab notebooks/00_start_here.ipynb

# The two that run notebooks need one core each.
test: lint
	$(MAKE) -j2 check-notebooks nbval
	$(BIN)/pytest -q

check: lint
	$(BIN)/pytest -q -m "not slow"

lint: .venv/current
	$(BIN)/ruff check
	$(BIN)/ruff format --check

notebooks: .venv/current
	$(BIN)/python tools/notebooks.py build

notebook: .venv/current
	$(BIN)/python tools/notebooks.py build $(N)

# First with nbclient, which notices a dead kernel at once; nbval, which compares the outputs, waits for its time limit.
check-notebooks: .venv/current
	$(BIN)/python tools/notebooks.py twice

nbval: .venv/current
	$(BIN)/pytest -q --nbval notebooks

# Every notebook must stay true with other random numbers.
test-seeds: .venv/current
	COURSE_SEED_SHIFT=1 $(BIN)/pytest -q --nbval-lax notebooks
	COURSE_SEED_SHIFT=2 $(BIN)/pytest -q --nbval-lax notebooks

reset: .venv/current
	$(BIN)/python tools/reset.py $(N)

links: .venv/current
	$(BIN)/python tools/links.py

clean:
	rm -rf .venv build *.egg-info
