# The Go client. Included by the Makefile of the repository.

GO := clients/go
GO_MODULE := github.com/memoryd/memoryd/clients/go
GO_BUILT := .tools/clients/go
PROTOC_GEN_GO_VERSION := v1.36.10
PROTOC_GEN_GO_GRPC_VERSION := v1.6.2
GO_PLUGINS := $(GO_BUILT)/plugins-$(PROTOC_GEN_GO_VERSION)-$(PROTOC_GEN_GO_GRPC_VERSION)

# $(1): output folder.
define GENERATE_GO
.tools/codegen/bin/python -m grpc_tools.protoc -I protos \
	--plugin=protoc-gen-go=.tools/bin/protoc-gen-go --plugin=protoc-gen-go-grpc=.tools/bin/protoc-gen-go-grpc \
	--go_out=$(1) --go_opt=module=$(GO_MODULE) --go-grpc_out=$(1) --go-grpc_opt=module=$(GO_MODULE) \
	protos/memoryd/v1/*.proto
endef

.PHONY: clients-go
clients-go: ## Build, check and test the Go client
ifeq ($(HAS_GO),)
	@echo "Skipped: the Go client needs Go, which is not installed."
	@test "$$CI" != true || { echo "CI must not skip it: install Go."; exit 1; }
else
	@$(MAKE) -s --no-print-directory $(GO_PLUGINS) .tools/codegen/.ready .venv/.ready
	@rm -rf $(GO_BUILT)/fresh && mkdir -p $(GO_BUILT)/fresh
	@$(call GENERATE_GO,$(GO_BUILT)/fresh)
	@diff -r $(GO)/memoryd/v1 $(GO_BUILT)/fresh/memoryd/v1 \
		|| { echo "The Go stubs are stale: run \`make protos-go\` and commit the changes."; exit 1; }
	@diff clients/service_config.json $(GO)/memoryd/service_config.json \
		|| { echo "$(GO)/memoryd/service_config.json is stale: copy clients/service_config.json over it."; exit 1; }
	@unformatted=$$(gofmt -l $(GO)); test -z "$$unformatted" || { echo "gofmt would change $$unformatted"; exit 1; }
	@cd $(GO) && go mod tidy -diff && go vet ./...
	@cd $(GO) && go build -o "$(CURDIR)/$(GO_BUILT)/" ./internal/runner ./examples/gateway
	@cd $(GO) && go test ./...
	@$(GO)/with_daemon.sh sh -c 'cd $(GO) && go test -count=1 -run "^Example" ./memoryd'
endif

.PHONY: protos-go
protos-go: $(GO_PLUGINS) .tools/codegen/.ready ## Regenerate the Go stubs from protos/
	@rm -rf $(GO)/memoryd/v1
	@$(call GENERATE_GO,$(GO))
	@cp clients/service_config.json $(GO)/memoryd/service_config.json

$(GO_PLUGINS):
	@mkdir -p .tools/bin $(GO_BUILT) && rm -f $(GO_BUILT)/plugins-*
	@GOBIN="$(CURDIR)/.tools/bin" go install google.golang.org/protobuf/cmd/protoc-gen-go@$(PROTOC_GEN_GO_VERSION)
	@GOBIN="$(CURDIR)/.tools/bin" go install google.golang.org/grpc/cmd/protoc-gen-go-grpc@$(PROTOC_GEN_GO_GRPC_VERSION)
	@touch $@
