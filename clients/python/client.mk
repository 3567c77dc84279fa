.PHONY: clients-python
clients-python: protos-check ## Checks what Python's package has copies of: the stubs, the protos, the retry policy, the license
	@cmp clients/service_config.json clients/python/src/memoryd/service_config.json && cmp LICENSE clients/python/LICENSE \
		|| { echo "A copy in clients/python is stale: copy the original over it."; exit 1; }
