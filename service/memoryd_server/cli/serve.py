"""`memoryd serve`: the daemon itself."""

import asyncio
from pathlib import Path

import click

from memoryd_server import app
from memoryd_server.cli.endpoint import forget_endpoint, note_endpoint
from memoryd_server.cli.options import Common, settings_options
from memoryd_server.cli.output import reported
from memoryd_server.observe.log import make_log


@click.command()
@click.option("--listen", multiple=True, help="unix:PATH or HOST:PORT; may be given several times.")
@settings_options
def serve(
    listen: tuple[str, ...],
    config: Path | None,
    state_dir: Path | None,
    workspace: Path | None,
    token_file: Path | None,
) -> None:
    """Runs the daemon until SIGTERM or Ctrl-C; prints `listening on ...` when it is ready."""
    with reported():
        common = Common(config, state_dir, workspace, None, token_file)
        settings = common.settings(listen=list(listen) or None)
        log = make_log(settings.service.log.level, settings.service.log.format)
        for warning in settings.warnings:
            log.warning("warn-settings", warning=warning)

        def ready(addresses: list[str]) -> None:
            note_endpoint(settings.state_dir, addresses)
            click.echo(f"listening on {', '.join(addresses)}")

        asyncio.run(app.run(settings, log, ready))
        forget_endpoint(settings.state_dir)
