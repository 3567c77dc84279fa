"""The `memoryd` command. A verb's module is imported when the verb is used, so that each starts quickly."""

import importlib
import os
import signal
from collections.abc import Mapping

import click

from memoryd_server import __version__

# Verb: module, and the command's name in it where the verb's own would hide a builtin.
_MODULES: Mapping[str, str] = {
    "serve": "serve",
    "reload": "serve",
    "health": "health",
    "status": "status",
    "index": "index",
    "search": "search",
    "get": "search",
    "append": "write",
    "flush": "write",
    "forget": "write",
    "session": "session",
    "entry": "entry",
    "watch": "index",
    "agents": "status",
    "files": "status",
    "doctor": "doctor",
    "config": "status",
    "token": "token",
    "eval": "evaluate:evaluate",
}


class _Verbs(click.Group):
    """The verbs, in the order in which help shows them."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        # The first process of a container is spared each signal that it does not handle, and imports take their time.
        if os.getpid() == 1:
            signal.signal(signal.SIGTERM, _end)
        return super().resolve_command(ctx, args)

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(_MODULES)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in _MODULES:
            return None
        module, _, name = _MODULES[cmd_name].partition(":")
        command: click.Command = getattr(importlib.import_module(f"memoryd_server.cli.{module}"), name or cmd_name)
        return command


def _end(number: int, _frame: object) -> None:
    os._exit(128 + number)


@click.group(cls=_Verbs, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="memoryd")
def main() -> None:
    """Gives AI agents a memory that lasts: plain Markdown, indexed, searched and read over gRPC.

    Every verb but `serve`, `reload`, `health`, `token` and `eval` calls the daemon that runs, and does the work itself
    where none does.
    """


if __name__ == "__main__":
    main()
