# make demo   sets everything up and runs the main job on a bundled misbehaving script
# make test   sets everything up; lint, types, and a suite that uses every part of the product once
# make test-all        lint, types and all tests: half an hour on two cores
# make test-quick      the tests to run while you work: about two minutes on two cores
# make snapshots       rewrites the texts that users read, as the tests hold them
# make bench           how fast it all is, beside its peers; writes docs/benchmarks.md
# make bench-logs      one part of that: doctor, hang, real_models, growth, report, capture, logs, cli,
#                      large, large_gpu
# make bench-aoti      a faulty package, beside AOTInductor's debugging guide done by hand
# make bench-sentinel  what the sentinel costs, and how soon it notices a fault
# make bench-profile   what profiling costs, and whether its times and floors hold
# make bench-slow      slow programs whose cause is known, and what the tool says of them
# make docs            writes the generated parts of README.md and docs/
# make guides          runs the commands of docs/guides, whose output the guides show
# make site            builds the site of the docs in site/
# make web             builds the page's script and styles from web/ (needs node)
# make battery         the doctor on every planted fault; writes docs/battery.md
# make cases           the doctor on every labelled script; writes docs/cases.md
# make endings         every way a program can end, under every command; writes docs/endings.md
# make models          the doctor on real models; writes docs/models.md

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --constraint constraints.txt

BENCHES := doctor hang real_models growth report capture logs cli large large_gpu

.PHONY: demo test test-all test-quick all-tests everyday-tests snapshots check docs guides site web bench $(BENCHES:%=bench-%) bench-aoti bench-sentinel bench-profile bench-slow battery cases models endings recordings clean

demo: $(VENV)/.installed
	@bash examples/demo.sh $(BIN)/inductoscope

# Tests in the order that tests/conftest.py gives them.
PYTEST := $(BIN)/python -m pytest --no-loadscope-reorder

# What mypy leaves idle of a small machine is for the first tests.
test: $(VENV)/.installed-dev
	@$(MAKE) --no-print-directory --jobs 2 check everyday-tests

test-all: $(VENV)/.installed-dev
	@$(MAKE) --no-print-directory --jobs 2 check all-tests

# One more at a time than a small machine has cores: many tests wait for something to stall.
# Compiled first: each of the hundreds of processes would otherwise compile what it imports.
all-tests everyday-tests: $(VENV)/.installed-dev
	$(BIN)/python -m compileall -q src
	$(if $(filter everyday-tests,$@),INDUCTOSCOPE_TEST_QUICK=1) \
		$(PYTEST) -n 3 $(if $(filter everyday-tests,$@),--everyday)

# Rewrites what tests/**/__snapshots__ hold of the texts that users read; look at the diff.
snapshots: $(VENV)/.installed-dev
	$(PYTEST) -n 2 --snapshot-update tests/unit

# Only files that have such a test: collecting the others imports torch.
test-quick: $(VENV)/.installed-dev
	INDUCTOSCOPE_TEST_QUICK=1 $(PYTEST) -n 2 -m "unit or fuzz or smoke" tests/unit tests/fuzz \
		$(shell grep -rl --include='test_*.py' mark.smoke tests)

check: $(VENV)/.installed-dev
	$(BIN)/ruff check src tests bench battery docs
	$(BIN)/ruff format --check src tests bench battery docs
	$(BIN)/mypy

docs: $(VENV)/.installed
	$(BIN)/python docs/generate.py

# Takes about ten minutes. make guides GUIDES="hang nan" runs only these.
GUIDES :=
guides: $(VENV)/.installed
	$(BIN)/python docs/guide_pages.py $(GUIDES)
	$(BIN)/python docs/generate.py

site: $(VENV)/.installed-docs
	$(BIN)/python -m mkdocs build --strict --quiet

# Takes hours. What has a result at this commit is not measured again unless it is named:
# make bench BENCH="logs cli". What cannot be installed is missing in the tables, which say so.
BENCH :=
bench: $(VENV)/.installed-dev
	-@$(MAKE) --no-print-directory --keep-going $(VENV)/.installed-peers $(VENV)/.installed-models
	$(BIN)/python -m bench $(BENCH)

$(BENCHES:%=bench-%): bench-%:
	@$(MAKE) --no-print-directory bench BENCH=$*

# Takes an hour; --resume leaves out what bench-results/aoti.json already has.
bench-aoti: $(VENV)/.installed
	$(BIN)/python -m bench.aoti --json bench-results/aoti.json --markdown docs/aoti.md

bench-sentinel: $(VENV)/.installed
	$(BIN)/python -m bench.sentinel --json bench-results/sentinel.json

bench-profile: $(VENV)/.installed
	$(BIN)/python -m bench.profile --json bench-results/profile.json

# Takes about 40 minutes.
bench-slow: $(VENV)/.installed
	$(BIN)/python -m bench.slow --json bench-results/slow.json

web: $(VENV)/.installed
	$(BIN)/python web/typescript.py
	cd web && npm ci --no-audit --no-fund && npm run build

endings: $(VENV)/.installed
	$(BIN)/python -m battery.endings.run --markdown docs/endings.md

battery: $(VENV)/.installed
	$(BIN)/python -m battery.run --markdown docs/battery.md

# make cases CASES="tests/cases more/cases" adds folders of your own.
CASES := tests/cases
cases: $(VENV)/.installed
	$(BIN)/python -m battery.run $(CASES:%=--stored %) --jobs 2 \
		--limit 600 --markdown docs/cases.md --json docs/cases.json

# make models MODELS=gpt2,swin JOBS=4 chooses models, and how many run at a time. What has a result
# is not run again; remove bench-results/models.jsonl to start anew.
MODELS :=
JOBS := 1
models: $(VENV)/.installed-models
	PYTHONPATH=src:$(VENV)/models $(BIN)/python -m battery.models.run --resume --only "$(MODELS)" \
		--jobs $(JOBS) --markdown docs/models.md --json docs/models.json

# Recorded once and kept beside the scripts that made them; run after a change of the format.
recordings: $(VENV)/.installed-dev
	$(BIN)/python tests/data/recordings/record.py

$(VENV)/.created:
	$(PYTHON) -m venv $(VENV)
	@touch $@

$(VENV)/.installed: $(VENV)/.created pyproject.toml constraints.txt
	$(PIP) torch --editable .
	@touch $@

$(VENV)/.installed-dev: $(VENV)/.installed
	$(PIP) --editable '.[dev]'
	@touch $@

$(VENV)/.installed-docs: $(VENV)/.installed
	$(PIP) --editable '.[docs]'
	@touch $@

# The newest tlparse, away from everything else.
$(VENV)/.installed-peers: $(VENV)/.created
	$(PYTHON) -m venv $(VENV)/peers
	$(VENV)/peers/bin/python -m pip install --quiet --upgrade tlparse
	@touch $@

$(VENV)/.installed-models: $(VENV)/.installed battery/models/requirements.txt
	$(BIN)/python battery/models/install.py $(VENV)/models
	@touch $@

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache
