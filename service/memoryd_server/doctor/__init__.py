"""Checks of `memoryd doctor`."""
