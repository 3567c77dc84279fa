# The memory plugin for OpenClaw. Included by the Makefile of the repository.

OC := clients/openclaw

.PHONY: clients-openclaw
clients-openclaw: setup ## Build, check and test the memory plugin for OpenClaw
ifeq ($(HAS_NPM),)
	@echo "Skipped: the OpenClaw plugin needs Node and npm, which are not installed."
	@test "$$CI" != true || { echo "CI must not skip it: install Node."; exit 1; }
else ifneq ($(shell uname -sm),Linux x86_64)
	@echo "Skipped: the OpenClaw plugin is checked with OpenClaw's types, which tests/real_openclaw pins for Linux on x86-64."
else
	@$(MAKE) --no-print-directory .tools/openclaw/.ready $(TS)/node_modules/.ready $(OC)/node_modules/.ready
	@diff LICENSE $(OC)/LICENSE || { echo "$(OC)/LICENSE differs from LICENSE: copy it."; exit 1; }
	@cd $(TS) && npm run --silent build
	@cd $(OC) && rm -rf dist build && npm run --silent build && npm run --silent lint && npm run --silent test
endif

$(OC)/node_modules/.ready: $(OC)/package-lock.json
	@echo "Installing the dependencies of the OpenClaw plugin ..."
	@cd $(OC) && npm ci --ignore-scripts --omit=peer --no-audit --no-fund --loglevel=error
	@touch $@
