# The contract with CI and with newcomers: every duty is one target, and each sets up what it needs.

PY ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
CORE := $(VENV)/.core
DEV := $(VENV)/.dev
LOCK := requirements.lock
TORCH ?= torch==2.13.0
# What any build of it needs; the libraries of CUDA come along with the builds that need them.
OF_TORCH := filelock fsspec jinja2 networkx setuptools sympy typing-extensions

# One thread beats two for networks of this size, and keeps parallel tests from fighting.
export OMP_NUM_THREADS ?= 1
export MPLBACKEND ?= Agg
export SDL_VIDEODRIVER ?= dummy

# What `nightly` compares the speed with: an older commit, and those jobs of benchmarks/commits.py.
# Processor time counts, since other programs may run.
SINCE ?= cd01f1f
TIMED ?= fit fit_ensemble job iql

# The files that hold such tests: collecting all takes as long as many of them.
marked = $(sort $(shell grep -rl --include='*.py' 'mark\.$(1)' tests))

# What `test` runs. `check` adds the slow ones: all at once, the longest first.
TESTS = not slow

PROPERTIES = $(sort $(shell grep -rl --include='*.py' 'import given' tests))

.DEFAULT_GOAL := help
.PHONY: help install demo test slow browser newest lock check lint format types imports docs site nightly \
  wheel interop rllib lerobot migrate bench clean

help: ## show this list
	@grep -E '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

$(VENV)/pyvenv.cfg:
	@command -v $(PY) >/dev/null || { echo "Python is missing. Install it: apt-get install python3 python3-venv (Debian), brew install python (macOS)."; exit 1; }
	@$(PY) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "preferl needs Python 3.11 or newer, and $(PY) is $$($(PY) -V). Name another one: make PY=python3.12 ..."; exit 1; }
	@$(PY) -m venv $(VENV) || { rm -rf $(VENV); echo "Python's venv module is missing. Install it: apt-get install python3-venv (Debian)."; exit 1; }

# The lock has the hash of every file that is installed, except for torch: each machine has its own
# build, and pip takes it where uv would take gigabytes of CUDA. uv installs the rest in seconds and
# compares hashes; pip does where uv cannot, and takes the developers' tools along.
PIP = $(BIN)/python -m pip install -q --disable-pip-version-check
define install_with
	@sed -n '/^uv==/,/[^\\]$$/p' $(LOCK) > $(VENV)/uv.lock && $(PIP) --require-hashes -r $(VENV)/uv.lock || true
	@$(PIP) --no-deps $(TORCH)
	@VIRTUAL_ENV=$(CURDIR)/$(VENV) $(BIN)/uv pip install -q -b $(LOCK) -c $(LOCK) -e '$(1)' \
	  || { $(PIP) --no-deps --require-hashes -r $(LOCK) && $(PIP) $(TORCH) \
	    && $(PIP) --no-deps --no-build-isolation -e .; }
	@touch $@
endef

$(CORE): $(VENV)/pyvenv.cfg pyproject.toml $(LOCK)
	@echo "Installing preferl into $(VENV) (about half a minute, once) ..."
	$(call install_with,.)

$(DEV): $(CORE)
	@echo "Installing the developers' tools into $(VENV) ..."
	$(call install_with,.[dev])

install: $(DEV) ## set up .venv with everything a developer needs

demo: $(CORE) ## teach an agent from 40 comparisons and write a report
	@$(BIN)/preferl demo

test: $(DEV) ## the default tests
	$(BIN)/python -m pytest -m "$(TESTS)" -n 2 --dist worksteal --durations=25

slow: $(DEV) ## the tests that learn, and whole runs
	$(BIN)/python -m pytest $(call marked,slow) -m "slow and not browser" -n 2 --dist worksteal --durations=10

browser: $(DEV) ## whole rounds in a browser
	$(BIN)/python -m pytest $(call marked,browser) -m "slow and browser" -n 2 --dist worksteal

lint: $(DEV) ## format, lint and spelling
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/codespell

format: $(DEV) ## rewrite the code in the house format
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

types: $(DEV) ## mypy, strict
	$(BIN)/mypy

imports: $(DEV) ## imports point one way
	$(BIN)/lint-imports

docs: $(DEV) ## the site in docs/_build/html; every link, name and code block
	PREFERL_NOTEBOOKS=1 $(BIN)/python -m pytest tests/docs -m "slow or not slow" -q

site: $(DEV) ## the site in docs/_build/html, without tests and with notebooks as they are
	$(BIN)/python -m sphinx -q -D nb_execution_mode=off -d docs/_build/doctrees docs docs/_build/html

nightly: $(DEV) ## the longest tests, damaged files, random examples, fuzzed requests, the wheel, speed
	PREFERL_NIGHTLY=1 $(BIN)/python -m pytest $(PROPERTIES) -n 2
	PREFERL_NIGHTLY=1 $(BIN)/python -m pytest tests/hostile -m "slow or not slow" -n 2
	PREFERL_FUZZ_REQUESTS=50000 $(BIN)/python -m pytest tests/annotate/test_fuzz.py -m "slow or not slow"
	PREFERL_NIGHTLY=1 $(BIN)/python -m pytest $(call marked,nightly) -m nightly -n 2
	$(MAKE) wheel
	$(BIN)/python benchmarks/commits.py $(SINCE) $(TIMED) --clock processor --strict \
	  --results $(VENV)/commits.json

wheel: $(DEV) ## install the built wheel beside nothing but torch, and use it
	.ci/wheel $(BIN)/python $(TORCH)

# Of other RL libraries, for the tests that need them; everything else stays as the lock has it.
INTEROP := sb3-contrib==2.9.2 sbx-rl==0.28.0 skrl==2.1.1 torchrl==0.14.1

interop: ## other RL libraries with our wrappers, in .venv-interop
	$(MAKE) VENV=.venv-interop .venv-interop/.interop
	.venv-interop/bin/python -m pytest tests/interop

# Of the lock's version of Ray; it brings the gymnasium that it pins.
RLLIB := 'ray[rllib]$(shell sed -n 's/^ray\(==[0-9.]*\).*/\1/p' $(LOCK))'

rllib: ## agents of RLlib with learned rewards in its EnvRunners, in .venv-rllib
	$(MAKE) VENV=.venv-rllib .venv-rllib/.rllib
	RAY_worker_niceness=0 .venv-rllib/bin/python -m pytest tests/rllib -m "slow or not slow"

migrate: $(DEV) ## converters of docs/migrate on files that imitation saves, in .venv-imitation
	PYTHONPATH=benchmarks $(BIN)/python -c "import run; run.peer_python()"
	$(BIN)/python -m pytest tests/migrate -m "slow or not slow"

# LeRobot caps torch and numpy below the lock's, and needs Python 3.12.
LEROBOT_PY ?= python3.12
LEROBOT := .venv-lerobot
LEROBOT_NEEDS := 'numpy<2.3' opencv-python-headless Pillow einops draccus==0.11.6 'huggingface-hub<2' \
  requests 'gymnasium<2' safetensors 'packaging<26' termcolor tqdm 'datasets<5' pandas pyarrow 'av<16' \
  jsonlines deepdiff imageio scipy pytest hypothesis

lerobot: $(LEROBOT)/.lerobot ## our reader, tables and rewards beside LeRobot, in .venv-lerobot
	PYTHONPATH=src $(LEROBOT)/bin/python -m pytest tests/lerobot -W ignore

$(LEROBOT)/.lerobot: Makefile
	@$(LEROBOT_PY) -c pass 2>/dev/null || { echo "LeRobot needs Python 3.12, and $(LEROBOT_PY) does not run. Name another one: make LEROBOT_PY=/path/to/python3.12 lerobot"; exit 1; }
	@$(LEROBOT_PY) -m venv $(LEROBOT)
	@$(LEROBOT)/bin/python -m pip install -q $(TORCH)
	@$(LEROBOT)/bin/python -m pip install -q --no-deps lerobot==0.6.1 torchvision==0.28.0
	@$(LEROBOT)/bin/python -m pip install -q $(LEROBOT_NEEDS)
	@touch $@

$(VENV)/.interop: ADDED := $(INTEROP)
$(VENV)/.rllib: ADDED := $(RLLIB)
$(VENV)/.rllib: OWN := gymnasium
$(VENV)/.interop $(VENV)/.rllib: $(CORE) Makefile
	@echo "Installing $(ADDED) into $(VENV) ..."
	@$(BIN)/python -m pip freeze --exclude-editable $(addprefix --exclude=,$(OWN)) > $(VENV)/core.txt
	@$(PIP) -c $(VENV)/core.txt pytest hypothesis $(ADDED)
	@touch $@

bench: $(DEV) ## speed beside the peers, ratios into benchmarks/results
	$(BIN)/python benchmarks/run.py
	$(BIN)/python benchmarks/offline.py
	OMP_NUM_THREADS=2 $(BIN)/python benchmarks/relabel.py
	OMP_NUM_THREADS=2 $(BIN)/python benchmarks/transformer.py
	$(BIN)/python benchmarks/decision_transformer.py

newest: ## the default tests on the newest Python there is: make newest PY=python3.13
	@$(PY) -c 'import sys; sys.exit(sys.version_info < (3, 12))' || { echo "$(PY) is not there, or no newer than the Python of the other targets. Name the newest for which torch and the locked packages have wheels: make newest PY=python3.13. Where this machine has none, nothing newer than 3.11 is tested."; exit 1; }
	$(MAKE) test VENV=.venv-$$($(PY) -c 'import sys; print("%d.%d" % sys.version_info[:2])') PY=$(PY)

lock: $(DEV) ## write requirements.lock anew; make lock UPGRADE=--upgrade takes newer versions
	@echo "torch; python_version < '3'" > $(VENV)/without-torch.txt
	printf '%s\n' $(OF_TORCH) | $(BIN)/uv pip compile -q pyproject.toml - --all-extras --universal \
	  --override $(VENV)/without-torch.txt --generate-hashes --no-annotate --no-header $(UPGRADE) -o $(LOCK)

check: $(DEV) ## what CI runs
	$(MAKE) --jobs=2 --output-sync lint imports
	$(MAKE) --jobs=2 types test TESTS="slow or not slow"

clean: ## remove what the targets made
	rm -rf $(VENV) .venv-* .mypy_cache .ruff_cache .pytest_cache .import_linter_cache docs/_build docs/notebooks
