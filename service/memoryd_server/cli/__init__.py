"""The `memoryd` command: a file a verb group."""
