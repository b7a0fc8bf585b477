# Two commands matter: `make demo` and `make test`. Both need python3 and make, nothing else.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed

.PHONY: demo run test check bench schema clean
.DELETE_ON_ERROR:

demo: $(STAMP)  ## one node, a real small model; DEMO_ARGS=--once stops after the answers
	$(BIN)/xgen-model demo $(DEMO_ARGS)

run: $(STAMP)  ## the agent: make run RUN_ARGS="--manifest manifests --hub ./hub"
	$(BIN)/xgen-model run $(RUN_ARGS)

test: $(STAMP)  ## every test, with a real llama.cpp, a real S3 server and real processes
	$(BIN)/python -m pytest $(TEST_ARGS)

check: $(STAMP)  ## format, lint, types, layers
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

bench: $(STAMP)  ## no benchmark is written yet
	@echo "no benchmark is written yet"; exit 1

schema: $(STAMP)  ## regenerate schema/manifest.schema.json
	$(BIN)/xgen-model schema > schema/manifest.schema.json

clean:
	rm -rf $(VENV)

$(STAMP): pyproject.toml constraints.txt
	@$(PYTHON) scripts/make_venv.py $(VENV)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[dev]'
	@touch $@
