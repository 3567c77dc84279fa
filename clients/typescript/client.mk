# The TypeScript client. Included by the Makefile of the repository.

TS := clients/typescript
TS_FRESH := .tools/clients/typescript/fresh

# $(1): output folder.
define GENERATE_TYPESCRIPT
mkdir -p $(1)
.tools/codegen/bin/python -m grpc_tools.protoc -I protos -I $(TS)/proto \
	--plugin=protoc-gen-es=$(TS)/node_modules/.bin/protoc-gen-es \
	--es_out=$(1) --es_opt=target=ts,import_extension=js protos/memoryd/v1/*.proto $(TS)/proto/memoryd/client/status.proto
{ echo "// @generated from clients/service_config.json"; printf "export const serviceConfig = "; \
	cat clients/service_config.json; echo ";"; } > $(1)/service_config.ts
endef

.PHONY: clients-typescript
clients-typescript: ## Build, check and test the TypeScript client
ifeq ($(HAS_NPM),)
	@echo "Skipped: the TypeScript client needs Node and npm, which are not installed."
	@test "$$CI" != true || { echo "CI must not skip it: install Node."; exit 1; }
else
	@$(MAKE) --no-print-directory $(TS)/node_modules/.ready .tools/codegen/.ready
	@rm -rf $(TS_FRESH)
	@$(call GENERATE_TYPESCRIPT,$(TS_FRESH))
	@diff -r $(TS)/src/gen $(TS_FRESH) && diff LICENSE $(TS)/LICENSE \
		|| { echo "The TypeScript stubs are stale: run \`make protos-typescript\` and commit the changes."; exit 1; }
	@cd $(TS) && rm -rf dist build && npm run --silent build && npm run --silent lint && npm run --silent test
	@cd $(TS) && node build/test/packed.js
endif

.PHONY: protos-typescript
protos-typescript: .tools/codegen/.ready $(TS)/node_modules/.ready ## Regenerate the TypeScript stubs from protos/
	@rm -rf $(TS)/src/gen
	@$(call GENERATE_TYPESCRIPT,$(TS)/src/gen)
	@cp LICENSE $(TS)/LICENSE

$(TS)/node_modules/.ready: $(TS)/package-lock.json
	@echo "Installing the dependencies of the TypeScript client ..."
	@cd $(TS) && npm ci --ignore-scripts --no-audit --no-fund --loglevel=error
	@touch $@
