"""The `memoryd` command: a file a verb group."""

from memoryd_server.cli.main import main

__all__ = [
    "main",
]
