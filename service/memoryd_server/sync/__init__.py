"""Brings an index in line with its files."""
