# Targets for releases. Included by the Makefile of the repository.

ACTIONLINT_VERSION := v1.7.12

.PHONY: licenses
licenses: setup ## Regenerate docs/licenses.md; install the extras first if their versions changed
	$(BIN)/python -m release.licenses

# Needs no network.
.PHONY: licenses-check
licenses-check: setup
	$(BIN)/python -m release.licenses --check

.PHONY: sbom
sbom: .tools/release/.ready ## Write the SBOM (CycloneDX) of the core's lock file into dist
	@mkdir -p dist
	@PYTHONPATH=service .tools/release/bin/python -m release.sbom dist

# A separate environment, because these tools are not needed to run or test memoryd.
.tools/release/.ready: service/locks/release.lock
	@echo "Installing the packages of $< into $(@D) ..."
	@$(PYTHON) -m venv --clear $(@D)
	@$(@D)/bin/python $(PIP) install -q --require-hashes -r $<
	@touch $@

.PHONY: versions
versions: setup ## Fail if the files that state the version disagree; with TAG=v1.2.3, also if they differ from the tag
	$(BIN)/python -m release.versions $(if $(TAG),--tag "$(TAG)")

.PHONY: set-version
set-version: setup ## Write VERSION into every file that states the version
	@test -n "$(VERSION)" || { echo "VERSION is not set. Set it to the version: VERSION=1.2.3"; exit 2; }
	$(BIN)/python -m release.versions --set "$(VERSION)"

.PHONY: platforms
platforms: setup ## Ask the package index which platforms have wheels of all dependencies; writes docs/platforms.md; needs uv
	@command -v $(UV) >/dev/null || { echo "\`make platforms\` needs uv: https://docs.astral.sh/uv"; exit 1; }
	UV="$(UV)" $(BIN)/python -m release.platforms

.PHONY: workflows-lint
workflows-lint: ## Check the workflows in .github with actionlint
ifeq ($(HAS_GO),)
	@echo "Skipped: actionlint needs Go, which is not installed."
	@test "$$CI" != true || { echo "CI must not skip it: install Go."; exit 1; }
else
	@$(MAKE) --no-print-directory .tools/bin/actionlint-$(ACTIONLINT_VERSION)
	.tools/bin/actionlint-$(ACTIONLINT_VERSION)
endif

.tools/bin/actionlint-$(ACTIONLINT_VERSION):
	@GOBIN="$(CURDIR)/.tools/bin" go install github.com/rhysd/actionlint/cmd/actionlint@$(ACTIONLINT_VERSION)
	@mv .tools/bin/actionlint $@

lint: licenses-check workflows-lint
