PYTHON_ENVIRONMENTS := .tools/clients/python/oldest/.ready .tools/clients/python/newest/.ready

.PHONY: clients-python
clients-python: protos-check $(PYTHON_ENVIRONMENTS) ## Check the copied files of the Python package, and create its test environments
	@cmp clients/service_config.json clients/python/src/memoryd/service_config.json && cmp LICENSE clients/python/LICENSE \
		|| { echo "A copy in clients/python is stale: copy the original over it."; exit 1; }

# Environments with the oldest and the newest supported libraries. The tests install the built package into them.
.tools/clients/python/%/.ready: tests/clients/%.lock
	@echo "Installing the packages of $< into $(@D) ..."
	@$(PYTHON) -m venv --clear $(@D)
	@$(@D)/bin/python $(PIP) install -q --require-hashes -r $<
	@touch $@
