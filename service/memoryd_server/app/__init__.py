"""Composition root: settings into a running daemon."""
