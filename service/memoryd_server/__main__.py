"""`python -m memoryd_server` is the `memoryd` command."""

from memoryd_server.cli import run

run()
