"""Measures search on golden sets."""
