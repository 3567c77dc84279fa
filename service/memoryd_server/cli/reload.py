"""`memoryd reload`: has the daemon read its settings again, and tells what came of it."""

import os
import signal
import sys
import time
from dataclasses import asdict
from pathlib import Path
from typing import NoReturn

import click

from memoryd_server.cli.endpoint import LastReload, running
from memoryd_server.cli.options import json_option
from memoryd_server.cli.output import FAILURE, UNAVAILABLE, print_json, reported
from memoryd_server.settings import process_environment, state_directory

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
