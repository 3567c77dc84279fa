"""`memoryd serve`: the daemon itself."""

import asyncio
from pathlib import Path

import click

from memoryd_server import app
from memoryd_server.cli.endpoint import LastReload, forget_endpoint, marked_alive, note_endpoint
from memoryd_server.cli.notify import notify
from memoryd_server.cli.options import Common, settings_options
from memoryd_server.cli.output import reported
from memoryd_server.observe.log import LogLevel, make_log
from memoryd_server.rpc.status_conversion import SettingsReport
from memoryd_server.settings import ResolvedSettings, process_environment


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
    """Runs the daemon until SIGTERM or Ctrl-C; prints `listening on ...` when it is ready.

    SIGHUP, or `memoryd reload`, has it read its settings again.
    """
    with reported():
        common = Common(config, state_dir, workspace, None, token_file)

        def load() -> ResolvedSettings:
            return common.settings(listen=list(listen) or None)

        settings = load()
        level = LogLevel(settings.service.log.level)
        log = make_log(level, settings.service.log.format)
        for warning in settings.warnings:
            log.warning("warn-settings", warning=warning)
        bound: list[str] = []

        def note(outcome: LastReload) -> None:
            try:
                note_endpoint(settings.state_dir, bound, outcome)
            except OSError as error:
                # A full or read-only disk: the daemon answers, and the commands need --address to find it.
                log.warning("skip-endpoint-note", state_dir=str(settings.state_dir), error=str(error))

        def ready(addresses: list[str]) -> None:
            bound.extend(addresses)
            note(LastReload())
            click.echo(f"listening on {', '.join(addresses)}")
            notify(process_environment(), "READY=1", f"STATUS=listening on {', '.join(addresses)}")

        def reloaded(report: SettingsReport) -> None:
            note(LastReload(report.loads, report.error, report.changed, report.awaiting_restart))

        with marked_alive(settings.state_dir):
            asyncio.run(app.run(settings, log, ready, log_level=level, load=load, on_reload=reloaded))
        forget_endpoint(settings.state_dir)
