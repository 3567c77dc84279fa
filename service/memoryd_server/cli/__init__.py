"""The `memoryd` command: one file per group of verbs."""

from memoryd_server.cli.main import main

__all__ = [
    "main",
]
