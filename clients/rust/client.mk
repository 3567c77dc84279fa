# The Rust client. Included by the Makefile of the repository.

RUST := clients/rust
RUST_BUILD := $(CURDIR)/.tools/clients/rust
HAS_CARGO := $(shell command -v cargo 2>/dev/null)
# Number of parallel jobs of Cargo. To change it: make clients-rust CARGO_JOBS=8
CARGO_JOBS ?= 2
CARGO_HERE = cd $(RUST) && CARGO_TARGET_DIR="$(RUST_BUILD)" CARGO_BUILD_JOBS=$(CARGO_JOBS) cargo

# A published crate cannot contain files from outside its folder, so these are copied.
RUST_COPIES := diff -r protos/memoryd $(RUST)/protos/memoryd && diff clients/service_config.json $(RUST)/service_config.json \
	&& diff LICENSE $(RUST)/LICENSE

# crates.lock contains versions and checksums, but no addresses. Cargo.lock needs the address of crates.io for each crate.
CRATES_IO := registry+https://github.com/rust-lang/crates.io-index

$(RUST)/Cargo.lock: $(RUST)/crates.lock $(RUST)/client.mk
	@awk '/^checksum = / {print "source = \"$(CRATES_IO)\""} {print}' $< > $@

.PHONY: clients-rust
clients-rust: $(RUST)/Cargo.lock ## Build, check and test the Rust client, its example and its test runner
ifeq ($(HAS_CARGO),)
	@echo "Skipped: the Rust client needs cargo, which is not installed."
	@test "$$CI" != true || { echo "CI must not skip it: install Rust."; exit 1; }
else
	@$(RUST_COPIES) || { echo "The Rust client's copies are stale: run \`make clients-rust-copies\` and commit them."; exit 1; }
	$(CARGO_HERE) fmt --all --check
	$(CARGO_HERE) clippy --locked -q --workspace --all-targets -- -D warnings
	RUSTDOCFLAGS="-D warnings" && export RUSTDOCFLAGS && $(CARGO_HERE) doc --locked -q --no-deps -p memoryd-client
	$(CARGO_HERE) test --locked -q
	$(CARGO_HERE) build --locked -q -p memoryd-client -p memoryd-runner --bins --examples
	@# Check that the published package is complete: build the crate from it.
	$(CARGO_HERE) package --locked -q --allow-dirty -p memoryd-client
endif

.PHONY: clients-rust-copies
clients-rust-copies: ## Update the files that the Rust crate copies: protos, retry policy, license
	@rm -rf $(RUST)/protos/memoryd && cp -r protos/memoryd $(RUST)/protos/
	@cp clients/service_config.json LICENSE $(RUST)/

.PHONY: clients-rust-lock
clients-rust-lock: ## Resolve the dependencies of the Rust client again into crates.lock
	@rm -f $(RUST)/Cargo.lock
	$(CARGO_HERE) generate-lockfile -q
	@sed '/^#/d; /^source = /d' $(RUST)/Cargo.lock > $(RUST)/crates.lock
