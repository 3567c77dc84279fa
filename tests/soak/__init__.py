"""The soak test: a daemon under a mix of all calls, with failing dependencies, kills and reloads. See `__main__`."""
