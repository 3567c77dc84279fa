"""`python -m memoryd_server` is the `memoryd` command."""

from memoryd_server.cli.main import main

main()
