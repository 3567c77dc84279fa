"""`memoryd serve` and `memoryd reload`: run the daemon, and have it read its settings again.

`notify` reports the start and the end of a systemd service of `Type=notify`.
"""

import asyncio
import os
import signal
import socket
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import NoReturn

import click

from memoryd_server.cli.connection import LastReload, forget_endpoint, marked_alive, note_endpoint, running
from memoryd_server.cli.options import (
    FAILURE,
    UNAVAILABLE,
    CommonOptions,
    json_option,
    print_json,
    reported,
    settings_options,
)
from memoryd_server.settings import ResolvedSettings, process_environment, state_directory


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
    # `reload` and the help of both verbs do without the modules of the daemon.
    from memoryd_server.agent import SettingsReport  # noqa: PLC0415
    from memoryd_server.app import run_daemon  # noqa: PLC0415
    from memoryd_server.observe import LogLevel, make_log  # noqa: PLC0415

    with reported():
        common = CommonOptions(config, state_dir, workspace, None, token_file)

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
            asyncio.run(run_daemon(settings, log, ready, log_level=level, load=load, on_reload=reloaded))
        forget_endpoint(settings.state_dir)


# A memory is opened anew once the calls that use it have ended, or their grace is over.
_PATIENCE_SECONDS = 120.0
_LOOK_SECONDS = 0.05


@click.command()
@click.option("--state-dir", type=click.Path(file_okay=False, path_type=Path), help="That of the daemon.")
@json_option
def reload(state_dir: Path | None, as_json: bool) -> None:
    """Has the running daemon read its settings again, with the flags and variables that it was started with.

    Prints what is in force now and what waits for a restart. Exits with 1 when the settings cannot be used, which
    changes nothing, or when an agent's memory could not be opened with them; with 5 when no daemon answers.
    """
    with reported():
        place = state_directory(environ=process_environment(), home=Path.home(), flags={"state_dir": state_dir})
    outcome = _reloaded(place)
    if as_json:
        print_json(asdict(outcome))
    else:
        _show(outcome)
    sys.exit(FAILURE if outcome.error else 0)


def _reloaded(state_dir: Path) -> LastReload:
    found = running(state_dir)
    if found is None:
        _give_up(f"no daemon runs on the state directory {state_dir}; name another one with --state-dir")
    os.kill(found.pid, signal.SIGHUP)
    until = time.monotonic() + _PATIENCE_SECONDS
    while True:
        now = running(state_dir)
        if now is None or now.pid != found.pid:
            _give_up("the daemon ended meanwhile; its log tells why")
        if now.reload.loads > found.reload.loads:
            return now.reload
        if time.monotonic() > until:
            _give_up(f"process {found.pid} is not done after {_PATIENCE_SECONDS:.0f} s; its log tells more")
        time.sleep(_LOOK_SECONDS)


def _give_up(message: str) -> NoReturn:
    click.echo(f"memoryd: {message}", err=True)
    sys.exit(UNAVAILABLE)


def _show(outcome: LastReload) -> None:
    for key in outcome.changed:
        click.echo(f"in force: {key}")
    for key in outcome.awaiting_restart:
        click.echo(f"waits for a restart: {key}")
    if outcome.error:
        click.echo(f"memoryd: {outcome.error}", err=True)
    elif not outcome.changed and not outcome.awaiting_restart:
        click.echo("nothing has changed")


def notify(environ: Mapping[str, str], *lines: str) -> None:
    """Sends `lines`, such as "READY=1", to whoever started this process, where it wants to be told."""
    address = environ.get("NOTIFY_SOCKET", "")
    if not address.startswith(("/", "@")):
        return
    # A supervisor that is away must not keep the daemon from its work.
    with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as one:
        # An abstract name begins with a NUL, which a variable cannot hold.
        one.connect("\0" + address[1:] if address.startswith("@") else address)
        one.sendall("\n".join(lines).encode())
