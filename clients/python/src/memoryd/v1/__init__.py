"""Stubs generated from `protos/memoryd/v1`; `make protos` makes them anew."""
