"""The `memoryd` command: one file per group of verbs."""

import memoryd_server.cli.platform_check  # noqa: F401 -- the first import: it ends the process on Windows
from memoryd_server.cli.main import run

__all__ = [
    "run",
]
