"""A query into hits."""
