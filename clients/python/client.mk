PYTHON_ENVIRONMENTS := .tools/clients/python/oldest/.ready .tools/clients/python/newest/.ready

.PHONY: clients-python
clients-python: protos-check $(PYTHON_ENVIRONMENTS) ## Checks what the Python package has copies of, and makes what it is tested in
	@cmp clients/service_config.json clients/python/src/memoryd/service_config.json && cmp LICENSE clients/python/LICENSE \
		|| { echo "A copy in clients/python is stale: copy the original over it."; exit 1; }

# The oldest and the newest libraries that the client works with; its tests put the built package beside them.
.tools/clients/python/%/.ready: tests/clients/%.lock
	@echo "Installing what $< names into $(@D) ..."
	@$(PYTHON) -m venv --clear $(@D)
	@$(@D)/bin/python $(PIP) install -q --require-hashes -r $<
	@touch $@
