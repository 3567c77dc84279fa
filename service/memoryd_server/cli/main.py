"""The `memoryd` command and its verbs."""

import click

from memoryd_server import __version__
from memoryd_server.cli.doctor import doctor
from memoryd_server.cli.index import index, watch
from memoryd_server.cli.inspect import agents, config, files
from memoryd_server.cli.search import get, search
from memoryd_server.cli.serve import serve
from memoryd_server.cli.status import status
from memoryd_server.cli.write import append, flush


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="memoryd")
def main() -> None:
    """Gives AI agents a memory that lasts: plain Markdown, indexed, searched and read over gRPC.

    Every verb but `serve` calls the daemon that runs, and does the work itself where none does.
    """


for _verb in (serve, status, index, search, get, append, flush, watch, agents, files, doctor, config):
    main.add_command(_verb)

if __name__ == "__main__":
    main()
