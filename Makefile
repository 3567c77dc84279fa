# Everything that people and CI run. `make help` lists the targets: the text after "##".

PYTHON ?= python3
UV ?= uv
BIN := .venv/bin
STUBS := clients/python/src/memoryd/v1
TOOLS := service/memoryd_server/sessions/tools.json
PIP := -m pip --disable-pip-version-check --no-input
GRPCURL_VERSION := v1.9.3
HAS_NPM := $(shell command -v npm 2>/dev/null)
HAS_GO := $(shell command -v go 2>/dev/null)
LLAMA_VERSION := $(shell sed -n 's/^llama-cpp-python==\([^ ]*\).*/\1/p' service/locks/local.lock)
LLAMA_WHEEL = $(wildcard .tools/wheels/llama_cpp_python-$(LLAMA_VERSION)-*.whl)
TEST_MODEL ?= $(or $(MEMORYD_TEST_MODEL),../shared/models/all-minilm-l6-v2-q8_0.gguf)
QMD_MODELS ?= ../shared/models/mkgguf.py
LOCK := --generate-hashes --no-header --no-annotate --universal --python-version 3.11

# What is checked and formatted; folders that do not exist yet are left out.
SOURCES := $(wildcard service clients/python tests benchmarks protos/tool_schemas.py)

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

.PHONY: help
help: ## Lists the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  %-18s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

## Running

.PHONY: setup
setup: .venv/.ready ## Makes .venv with the `memoryd` command in it; quick when nothing changed

.venv/.ready: service/locks/dev.lock pyproject.toml clients/python/pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { \
		echo "memoryd needs Python 3.11 or newer as \"$(PYTHON)\"; found: $$($(PYTHON) --version 2>&1 || true)."; \
		echo "Install it, or name another one: make PYTHON=python3.12 ..."; exit 1; }
	@$(PYTHON) -c 'import venv, ensurepip' 2>/dev/null || { \
		echo "Python's venv module is missing. On Debian and Ubuntu: apt install python3-venv"; exit 1; }
	@test -x $(BIN)/python && $(BIN)/python -c '' 2>/dev/null || { \
		echo "Making .venv ..."; $(PYTHON) -m venv --clear .venv; }
	@echo "Installing what service/locks/dev.lock names into .venv ..."
	@$(BIN)/python $(PIP) install -q --require-hashes -r service/locks/dev.lock
	@$(BIN)/python $(PIP) install -q --no-deps --no-build-isolation -e clients/python -e .
	@touch $@

.PHONY: setup-local
setup-local: .venv/.local-ready ## Adds embeddings on this machine (llama.cpp) to .venv; the first time it compiles for minutes

# The compiled wheel is kept and serves every .venv made later; GGML_NATIVE=OFF lets it run on other processors, too.
.venv/.local-ready: .venv/.ready service/locks/local.lock
	@mkdir -p .tools/wheels
	@awk '/^[^ ]/ {own = /^llama-cpp-python==/} own' service/locks/local.lock > .tools/wheels/compiled.lock
	@awk '/^[^ ]/ {own = /^llama-cpp-python==/} !own' service/locks/local.lock > .tools/wheels/others.lock
	@test -e "$(LLAMA_WHEEL)" || command -v c++ >/dev/null || { \
		echo "llama-cpp-python has to be compiled, and there is no C++ compiler."; \
		echo "On Debian and Ubuntu: apt install g++"; exit 1; }
	@test -e "$(LLAMA_WHEEL)" || { \
		echo "Compiling llama-cpp-python $(LLAMA_VERSION): some five minutes of processor time ..."; \
		CMAKE_ARGS="-DGGML_NATIVE=OFF" $(BIN)/python $(PIP) wheel -q --no-deps --require-hashes \
			-r .tools/wheels/compiled.lock -w .tools/wheels; }
	@$(BIN)/python $(PIP) install -q --require-hashes -r .tools/wheels/others.lock
	@$(BIN)/python $(PIP) install -q --no-deps --no-index --find-links .tools/wheels llama-cpp-python==$(LLAMA_VERSION)
	@touch $@

.PHONY: setup-lancedb
setup-lancedb: .venv/.lancedb-ready ## Adds LanceDB, which keeps entries, to .venv

.venv/.lancedb-ready: .venv/.ready service/locks/lancedb.lock
	@$(BIN)/python $(PIP) install -q --require-hashes -r service/locks/lancedb.lock
	@touch $@

# Beside .venv, as it pins other versions of what memoryd uses itself.
.PHONY: object-store
object-store: .tools/moto/.ready ## Installs an object store (moto) into .tools/moto, for the tests of entries in one

.tools/moto/.ready: .venv/.ready tests/object_store.lock
	@rm -rf .tools/moto
	@$(BIN)/python $(PIP) install -q --no-deps --require-hashes --target .tools/moto -r tests/object_store.lock
	@touch $@

.PHONY: serve
serve: setup ## Starts the daemon on the sample workspace, ready to be searched
	@mkdir -p -m 700 .memoryd
	$(BIN)/memoryd serve --workspace docs/sample-workspace --state-dir .memoryd --listen unix:.memoryd/memoryd.sock

.PHONY: fake-providers
fake-providers: setup ## Runs servers that speak the embedding providers' formats, with faults on request; Ctrl-C ends them
	PYTHONPATH=tests $(BIN)/python -m fake_providers

.PHONY: grpcurl
grpcurl: ## Installs grpcurl into .tools/bin, where Go is present
ifeq ($(HAS_GO),)
	@echo "Skipped: no Go, so no grpcurl. Its tests will be skipped."
else
	@test -x .tools/bin/grpcurl || GOBIN="$(CURDIR)/.tools/bin" go install github.com/fullstorydev/grpcurl/cmd/grpcurl@$(GRPCURL_VERSION)
endif

.PHONY: qmd
qmd: ## Installs the real qmd into .tools/qmd, for the tests of the backend that runs it
ifeq ($(HAS_NPM),)
	@echo "Skipped: qmd needs Node and npm, which are not here. Its tests run over a stand-in alone."
	@test "$$CI" != true || { echo "CI must not skip it: install Node."; exit 1; }
else ifneq ($(shell uname -sm),Linux x86_64)
	@echo "Skipped: what is pinned in tests/real_qmd is for Linux on x86-64; MEMORYD_TEST_QMD names another qmd."
else
	@$(MAKE) --no-print-directory .tools/qmd/.ready
	@test ! -e "$(QMD_MODELS)" || $(MAKE) --no-print-directory .tools/qmd/models/.ready
endif

# No script of any package is run, and nothing is compiled.
.tools/qmd/.ready: tests/real_qmd/package-lock.json tests/real_qmd/qmd
	@echo "Installing qmd into .tools/qmd ..."
	@mkdir -p .tools/qmd && cp tests/real_qmd/package.json tests/real_qmd/package-lock.json tests/real_qmd/qmd .tools/qmd/
	@cd .tools/qmd && npm ci --ignore-scripts --omit=peer --omit=optional --no-audit --no-fund --loglevel=error
	@.tools/qmd/qmd --version
	@touch $@

# Models without any weights that were learned: what qmd does with models can be tested with them, not how well.
.tools/qmd/models/.ready: .venv/.ready tests/real_qmd/models.lock $(wildcard $(QMD_MODELS))
	@mkdir -p .tools/qmd/models
	@$(BIN)/python $(PIP) install -q --no-deps --require-hashes --upgrade --target .tools/qmd/python -r tests/real_qmd/models.lock
	@PYTHONPATH=.tools/qmd/python $(BIN)/python "$(QMD_MODELS)" .tools/qmd/models
	@touch $@

## Checking

# A worker takes a whole run of tests at once, so that what a file's tests share is set up once.
PYTEST := $(BIN)/pytest -q -n 2 --dist worksteal --durations=10

.PHONY: test
test: setup skipped ## Runs the fast tier of the tests, with fewer examples per property; 4 minutes on two cores
	$(PYTEST) --hypothesis-profile fast -m "not slow and not clients"

.PHONY: test-slow
test-slow: setup skipped ## Runs the long tier alone: kill points, exhaustive grids, load and timing
	$(PYTEST) -m "slow and not clients"

.PHONY: test-all
test-all: setup skipped ## Runs both tiers, with all examples per property; not the tests of `make clients`
	$(PYTEST) -m "not clients"

.PHONY: faults
faults: setup skipped ## Runs the tests that kill and damage, with all their kill points; part of the other two
	$(BIN)/pytest -q -m faults

# Each language brings its own target, `clients-<language>`, which builds and checks its client and its runner.
include $(wildcard clients/*/client.mk)
CLIENTS := $(patsubst clients/%/client.mk,clients-%,$(wildcard clients/*/client.mk))

.PHONY: clients
clients: setup $(CLIENTS) ## Builds and tests the clients in every language whose toolchain is here, and names what it skipped
	$(BIN)/pytest -q -rs -n 2 --dist loadgroup tests/clients

.PHONY: attacks
attacks: setup skipped ## Runs the tests that do what an attacker would; part of `make test` and `make test-slow`
	$(BIN)/pytest -q -m attacks

.PHONY: skipped
skipped:
	@test -x .tools/bin/grpcurl || command -v grpcurl >/dev/null \
		|| echo "Skipped: the tests that call the daemon with grpcurl ($(if $(HAS_GO),\`make grpcurl\` installs it,it needs Go))."
	@$(BIN)/python -c 'import importlib.util as u, sys; sys.exit(u.find_spec("llama_cpp") is None)' \
		|| echo "Skipped: the tests of embeddings on this machine (\`make setup-local\` installs what they need)."
	@$(BIN)/python -c 'import importlib.util as u, sys; sys.exit(u.find_spec("lancedb") is None)' \
		|| echo "Skipped: the tests of entries (\`make setup-lancedb\` installs what they need)."
	@test -e .tools/moto/.ready || echo "Skipped: the tests of entries in an object store (\`make object-store\` installs one)."
	@test -e "$(TEST_MODEL)" \
		|| echo "Skipped: the tests that need a model: there is no $(TEST_MODEL), and MEMORYD_TEST_MODEL names no other."
	@command -v openssl >/dev/null || echo "Skipped: the tests of TLS (they make certificates with the openssl command)."
	@test -n "$$MEMORYD_TEST_QMD" || test -x .tools/qmd/qmd \
		|| echo "Skipped: the tests over the real qmd (\`make qmd\` installs it)."
	@test -e .tools/qmd/models/.ready || echo "Skipped: the tests of the real qmd's searches by meaning, which need $(QMD_MODELS)."
	@command -v npm >/dev/null || echo "Skipped: whatever needs Node (buf in \`make lint\`)."

.PHONY: lint
lint: setup lint-python protos-check buf ## Checks style, types, import contracts and the protos

.PHONY: lint-python
lint-python: setup
	$(BIN)/ruff check $(SOURCES)
	$(BIN)/ruff format --check $(SOURCES)
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo

.PHONY: format
format: setup ## Formats the Python files and the protos
	$(BIN)/ruff check --fix-only -q $(SOURCES)
	$(BIN)/ruff format $(SOURCES)
ifneq ($(HAS_NPM),)
	@$(MAKE) --no-print-directory protos/node_modules/.ready
	cd protos && node_modules/.bin/buf format -w
endif

.PHONY: bench
bench: setup ## Runs the benchmarks; results are JSON under benchmarks/results
	$(BIN)/python benchmarks/keyword_path.py
	$(BIN)/python benchmarks/search_path.py
	$(BIN)/python benchmarks/vector_leg.py
	$(BIN)/python benchmarks/transcripts.py
	$(BIN)/python benchmarks/many_agents.py
	$(BIN)/python benchmarks/load
	$(BIN)/python benchmarks/embedding_throughput.py
	test ! -x .tools/qmd/qmd || $(BIN)/python benchmarks/qmd_path.py
	! $(BIN)/python -c "import lancedb" 2>/dev/null || $(BIN)/python benchmarks/entries.py

# The agent's own settings do not count: an empty state directory gives the defaults. EVAL_FLAGS can name a --config.
EVAL_BY := dataset,dataset/lang,dataset/kind

.PHONY: eval
eval: setup ## Measures search on the golden sets in DATA, into benchmarks/results/eval.json; EVAL_FLAGS adds flags
	@test -n "$(DATA)" || { echo "Say where the golden sets are: make eval DATA=../shared/eval/data"; exit 2; }
	@mkdir -p .memoryd/eval
	$(BIN)/memoryd eval --data "$(DATA)" --state-dir .memoryd/eval --by $(EVAL_BY) --out benchmarks/results/eval.json $(EVAL_FLAGS)

## The contract

define GENERATE
.tools/codegen/bin/python -m grpc_tools.protoc -I protos --python_out=$(1) --pyi_out=$(1) protos/memoryd/v1/*.proto
.tools/codegen/bin/python -m grpc_tools.protoc -I protos --grpc_python_out=$(1) protos/memoryd/v1/memory_service.proto protos/memoryd/v1/entry_service.proto
cp protos/memoryd/v1/*.proto $(1)/memoryd/v1/
endef

# The schemas of the agent's tools, with the contract's comments as their descriptions.
define GENERATE_TOOLS
.tools/codegen/bin/python -m grpc_tools.protoc -I protos --include_imports --include_source_info \
	--descriptor_set_out=.tools/contract.binpb protos/memoryd/v1/memory_service.proto
.tools/codegen/bin/python protos/tool_schemas.py .tools/contract.binpb > $(1)
endef

.PHONY: protos
protos: .tools/codegen/.ready ## Regenerates the Python stubs, the package's copy of the protos and the tools' schemas
	$(call GENERATE,clients/python/src)
	$(call GENERATE_TOOLS,$(TOOLS))

.PHONY: protos-check
protos-check: .tools/codegen/.ready ## Fails when the generated code is stale
	@rm -rf .tools/fresh && mkdir -p .tools/fresh
	@$(call GENERATE,.tools/fresh)
	@$(call GENERATE_TOOLS,.tools/fresh/tools.json)
	@diff -r -x __init__.py -x __pycache__ $(STUBS) .tools/fresh/memoryd/v1 && diff $(TOOLS) .tools/fresh/tools.json \
		|| { echo "The generated code is stale: run \`make protos\` and commit what it changes."; exit 1; }

# An environment of its own: the code generator is the oldest supported one and cannot share one with today's runtime.
.tools/codegen/.ready: service/locks/codegen.lock
	@echo "Installing the code generator into .tools/codegen ..."
	@$(PYTHON) -m venv --clear .tools/codegen
	@.tools/codegen/bin/python $(PIP) install -q --require-hashes -r service/locks/codegen.lock
	@touch $@

.PHONY: buf
buf: ## Lints the protos and compares them with the committed baseline
ifeq ($(HAS_NPM),)
	@echo "Skipped: buf needs Node and npm, which are not here."
	@test "$$CI" != true || { echo "CI must not skip it: install Node."; exit 1; }
else
	@$(MAKE) --no-print-directory protos/node_modules/.ready
	cd protos && node_modules/.bin/buf lint
	cd protos && node_modules/.bin/buf format -d --exit-code
	cd protos && node_modules/.bin/buf breaking --against baseline.binpb
endif

.PHONY: baseline
baseline: protos/node_modules/.ready ## Makes the protos of today the baseline of `make buf`: at a release only
	cd protos && node_modules/.bin/buf build -o baseline.binpb

protos/node_modules/.ready: protos/package-lock.json
	cd protos && npm ci --no-audit --no-fund --loglevel=error
	@touch $@

## Upkeep

.PHONY: docs
docs: setup ## Regenerates the pages that come from the code: docs/configuration.md and docs/recall.md
	$(BIN)/python -m memoryd_server.settings.document > docs/configuration.md
	$(BIN)/python -m memoryd_server.sessions.document > docs/recall.md

.PHONY: lock
lock: ## Resolves the dependencies anew into service/locks; needs uv
	@command -v $(UV) >/dev/null || { echo "\`make lock\` needs uv: https://docs.astral.sh/uv"; exit 1; }
	$(UV) pip compile $(LOCK) pyproject.toml --group dev --no-emit-package memoryd-client -o service/locks/dev.lock
	$(UV) pip compile $(LOCK) pyproject.toml --no-emit-package memoryd-client -c service/locks/dev.lock -o service/locks/run.lock
	$(UV) pip compile $(LOCK) service/locks/build.in -c service/locks/dev.lock -o service/locks/build.lock
	$(UV) pip compile $(LOCK) service/locks/local.in -c service/locks/dev.lock -o service/locks/local.lock
	$(UV) pip compile $(LOCK) service/locks/lancedb.in -c service/locks/dev.lock -o service/locks/lancedb.lock
	$(UV) pip compile $(LOCK) tests/object_store.in -o tests/object_store.lock
	$(UV) pip compile $(LOCK) protos/codegen.in -o service/locks/codegen.lock
	$(UV) pip compile $(LOCK) tests/clients/oldest.in -o tests/clients/oldest.lock
	$(UV) pip compile $(LOCK) tests/clients/newest.in -o tests/clients/newest.lock

.PHONY: clean
clean: ## Removes what the other targets made
	rm -rf .venv .tools .memoryd protos/node_modules dist .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
	rm -rf clients/java/target clients/typescript/node_modules clients/typescript/dist clients/typescript/build
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
