"""The `memoryd` command. A verb's module is imported when the verb is used, so that each starts quickly."""

import importlib
from collections.abc import Mapping

import click

from memoryd_server import __version__

# Verb: module, and the command's name in it where the verb's own would hide a builtin.
_MODULES: Mapping[str, str] = {
    "serve": "serve",
    "reload": "reload",
    "health": "health",
    "status": "status",
    "index": "index",
    "search": "search",
    "get": "search",
    "append": "write",
    "flush": "write",
    "forget": "forget",
    "session": "sessions",
    "entry": "entries:entry",
    "watch": "index",
    "agents": "inspect",
    "files": "inspect",
    "doctor": "doctor",
    "config": "inspect",
    "token": "token",
    "eval": "evaluate:evaluate",
}


class _Verbs(click.Group):
    """The verbs, in the order in which help shows them."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(_MODULES)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in _MODULES:
            return None
        module, _, name = _MODULES[cmd_name].partition(":")
        command: click.Command = getattr(importlib.import_module(f"memoryd_server.cli.{module}"), name or cmd_name)
        return command


@click.group(cls=_Verbs, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="memoryd")
def main() -> None:
    """Gives AI agents a memory that lasts: plain Markdown, indexed, searched and read over gRPC.

    Every verb but `serve`, `reload`, `health`, `token` and `eval` calls the daemon that runs, and does the work itself
    where none does.
    """


if __name__ == "__main__":
    main()
