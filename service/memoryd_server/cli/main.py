"""The `memoryd` command.

The module of a verb is imported only when the verb is used or listed in help, and imports what the work of the verb
needs only when the verb runs. So help and start-up are fast.
"""

import atexit
import importlib
import os
import signal
import sys
from collections.abc import Mapping, Sequence

import click

from memoryd_server import __version__

# The module of each verb, and the name of its command if that differs from the verb.
_MODULES: Mapping[str, str] = {
    "init": "init",
    "serve": "serve",
    "service": "service",
    "mcp": "mcp",
    "reload": "serve",
    "health": "health",
    "status": "status",
    "index": "index",
    "search": "search",
    "explain": "explain",
    "recall": "recall",
    "get": "search",
    "append": "write",
    "edit": "edit",
    "history": "history",
    "diff": "history",
    "undo": "history",
    "flush": "write",
    "forget": "write",
    "session": "session",
    "import": "import_conversations:import_",
    "export": "copies",
    "migrate": "migrate",
    "entry": "entry",
    "watch": "index",
    "agents": "status",
    "files": "status",
    "doctor": "doctor",
    "config": "status",
    "token": "token",
    "eval": "evaluate:evaluate",
    "completion": "completion",
}


class _Verbs(click.Group):
    """The verbs, in the order of the help page."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        # Process 1 of a container ignores every signal that it does not handle, and the imports take time.
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
    """Long-term memory for AI agents: Markdown files, indexed and searched over gRPC.

    Commands call the running daemon. If no daemon is running, most commands do the work in their own process. `reload`
    and `health` need a running daemon; `config`, `token`, `eval`, `import`, `export` and `migrate` do not call it.
    """


def run() -> None:
    """Run the command of this process, and end the process.

    It ends without unloading its modules, which would take a fifth of the processor time of a start. If a daemon ran in
    it, its threads and exit handlers end before.
    """
    statuses: list[int] = []
    # The handler that is registered first runs last.
    atexit.register(_end_without_unloading, statuses)
    try:
        main()
    except SystemExit as end:
        if isinstance(end.code, int | None):
            statuses.append(end.code or 0)
            if "memoryd_server.app" not in sys.modules:
                _end_without_unloading(statuses)
        raise


def _end_without_unloading(statuses: Sequence[int]) -> None:
    """End the process with its exit status, unless it has none because of an error."""
    if statuses:
        # If the reader of the output is gone, the regular end reports it.
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(statuses[0])
