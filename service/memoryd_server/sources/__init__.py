"""What counts as memory: find, read, watch."""
