# The Rust client; included by the Makefile.

RUST := clients/rust
RUST_BUILD := $(CURDIR)/.tools/clients/rust
HAS_CARGO := $(shell command -v cargo 2>/dev/null)
# Cargo takes every processor unless it is told otherwise: make clients-rust CARGO_JOBS=8
CARGO_JOBS ?= 2
CARGO_HERE = cd $(RUST) && CARGO_TARGET_DIR="$(RUST_BUILD)" CARGO_BUILD_JOBS=$(CARGO_JOBS) cargo

# A published crate holds nothing from outside its folder, so it has copies of these.
RUST_COPIES := diff -r protos/memoryd $(RUST)/protos/memoryd && diff clients/service_config.json $(RUST)/service_config.json \
	&& diff LICENSE $(RUST)/LICENSE

# What is committed names versions and checksums, and no address: all crates are crates.io's, which Cargo wants told.
CRATES_IO := registry+https://github.com/rust-lang/crates.io-index

$(RUST)/Cargo.lock: $(RUST)/crates.lock $(RUST)/client.mk
	@awk '/^checksum = / {print "source = \"$(CRATES_IO)\""} {print}' $< > $@

.PHONY: clients-rust
clients-rust: $(RUST)/Cargo.lock ## Checks, tests and builds the Rust client, its example and its runner
ifeq ($(HAS_CARGO),)
	@echo "Skipped: the Rust client needs cargo, which is not here."
	@test "$$CI" != true || { echo "CI must not skip it: install Rust."; exit 1; }
else
	@$(RUST_COPIES) || { echo "The Rust client's copies are stale: run \`make clients-rust-copies\` and commit them."; exit 1; }
	$(CARGO_HERE) fmt --all --check
	$(CARGO_HERE) clippy --locked -q --workspace --all-targets -- -D warnings
	RUSTDOCFLAGS="-D warnings" && export RUSTDOCFLAGS && $(CARGO_HERE) doc --locked -q --no-deps -p memoryd-client
	$(CARGO_HERE) test --locked -q
	$(CARGO_HERE) build --locked -q -p memoryd-client -p memoryd-runner --bins --examples
	@# What would be published is whole: the crate builds from its own package.
	$(CARGO_HERE) package --locked -q --allow-dirty -p memoryd-client
endif

.PHONY: clients-rust-copies
clients-rust-copies: ## Renews the copies that the Rust crate carries: protos, retry policy, license
	@rm -rf $(RUST)/protos/memoryd && cp -r protos/memoryd $(RUST)/protos/
	@cp clients/service_config.json LICENSE $(RUST)/

.PHONY: clients-rust-lock
clients-rust-lock: ## Resolves the Rust client's dependencies anew into crates.lock
	@rm -f $(RUST)/Cargo.lock
	$(CARGO_HERE) generate-lockfile -q
	@sed '/^#/d; /^source = /d' $(RUST)/Cargo.lock > $(RUST)/crates.lock
