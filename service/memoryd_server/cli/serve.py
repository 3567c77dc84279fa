"""`memoryd serve` and `memoryd reload`: run the daemon, and make it read its settings again."""

from __future__ import annotations

import json
import os
import shlex
import signal
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from memoryd_server.cli.options import (
    FAILURE,
    UNAVAILABLE,
    CommonOptions,
    complain,
    fail,
    json_option,
    print_json,
    program_name,
    reported,
    settings_options,
)

if TYPE_CHECKING:
    from memoryd_server.agent import SettingsReport
    from memoryd_server.cli.running import LastReload
    from memoryd_server.settings import ResolvedSettings


@click.command()
@click.option("--listen", multiple=True, help="Address to listen on: unix:PATH or HOST:PORT; can be repeated.")
@click.option(
    "--example-query",
    help="Print commands to try with this query when the daemon is ready. At a terminal, they are always printed.",
)
@settings_options
def serve(
    listen: tuple[str, ...],
    example_query: str | None,
    config: Path | None,
    state_dir: Path | None,
    workspace: Path | None,
    token_file: Path | None,
) -> None:
    """Run the daemon until SIGTERM or Ctrl-C.

    Prints `listening on ...` when the daemon is ready. SIGHUP or `memoryd reload` makes the daemon read its settings
    again.
    """
    # Neither `reload` nor help needs the modules of the daemon.
    import asyncio  # noqa: PLC0415

    from memoryd.discovery import Environment  # noqa: PLC0415
    from memoryd_server.app import run_daemon  # noqa: PLC0415
    from memoryd_server.cli.running import (  # noqa: PLC0415
        LastReload,
        endpoint_lock,
        register,
        remove_endpoint_file,
        unregister,
        write_endpoint_file,
    )
    from memoryd_server.observe import LogLevel, make_log  # noqa: PLC0415
    from memoryd_server.settings import process_environment  # noqa: PLC0415
    from memoryd_server.system import limit_free_memory  # noqa: PLC0415

    limit_free_memory()
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
        registry = Environment.of_process().registry

        def publish(result: LastReload) -> None:
            try:
                write_endpoint_file(settings.state_dir, bound, result)
            except OSError as error:
                # The disk is full or read-only: the daemon serves, but commands find it only with --address.
                log.warning("skip-endpoint-note", state_dir=str(settings.state_dir), error=str(error))

        def ready(addresses: list[str]) -> None:
            bound.extend(addresses)
            publish(LastReload())
            try:
                register(registry, settings.state_dir)
            except OSError as error:
                # Commands find the daemon only with --state-dir or --address.
                log.info("skip-registration", registry=str(registry), error=str(error))
            click.echo(f"listening on {', '.join(addresses)}")
            if example_query or sys.stdout.isatty():
                click.echo(next_steps(program_name(), addresses, example_query or "your question"))
            notify(process_environment(), "READY=1", f"STATUS=listening on {', '.join(addresses)}")

        def reloaded(report: SettingsReport) -> None:
            publish(LastReload(report.loads, report.error, report.changed, report.awaiting_restart))

        with endpoint_lock(settings.state_dir):
            asyncio.run(run_daemon(settings, log, ready, log_level=level, load=load, on_reload=reloaded))
        remove_endpoint_file(settings.state_dir)
        unregister(registry, settings.state_dir)


def next_steps(program: str, addresses: Sequence[str], query: str) -> str:
    """Return commands to try in another shell with a daemon that listens on `addresses`."""
    quoted = shlex.quote(query)
    lines = ["", "Try in another shell:", f"  {program} search {quoted}", f"  {program} status"]
    socket_address = next((address for address in addresses if address.startswith("unix:")), None)
    if socket_address is not None:
        grpcurl = ".tools/bin/grpcurl" if Path(".tools/bin/grpcurl").exists() else "grpcurl"
        request = shlex.quote(json.dumps({"query": query}, ensure_ascii=False))
        method = "memoryd.v1.MemoryService/MemorySearch"
        lines.append(f"  {grpcurl} -plaintext -d {request} {shlex.quote(socket_address)} {method}")
    return "\n".join([*lines, "", "Press Ctrl-C to stop the daemon."])


# A reload waits until running calls end or their grace period is over.
_RELOAD_SECONDS = 120.0
_POLL_SECONDS = 0.05


@click.command()
@click.option("--state-dir", type=click.Path(file_okay=False, path_type=Path), help="State directory of the daemon.")
@json_option
def reload(state_dir: Path | None, as_json: bool) -> None:
    """Make the running daemon read its settings again.

    The daemon keeps the flags and the environment variables that it was started with. The command prints the settings
    keys that took effect and those that need a restart.

    Exits with 1 if the settings are invalid (the old settings then stay in effect) or if an agent's memory cannot be
    opened with the new settings. Exits with 5 if no daemon is running.
    """
    from memoryd_server.settings import process_environment, state_directory  # noqa: PLC0415 -- not needed for help

    with reported():
        directory = state_directory(environ=process_environment(), home=Path.home(), flags={"state_dir": state_dir})
    result = _reload(directory)
    if as_json:
        print_json(asdict(result))
    else:
        _show(result)
    sys.exit(FAILURE if result.error else 0)


def _reload(state_dir: Path) -> LastReload:
    from memoryd_server.cli.running import running_daemon  # noqa: PLC0415 -- not needed for help

    before = running_daemon(state_dir)
    if before is None:
        fail(f"no daemon is running with the state directory {state_dir}; give another --state-dir", UNAVAILABLE)
    os.kill(before.pid, signal.SIGHUP)
    deadline = time.monotonic() + _RELOAD_SECONDS
    while True:
        now = running_daemon(state_dir)
        if now is None or now.pid != before.pid:
            fail("the daemon stopped before the reload was complete; see its log", UNAVAILABLE)
        if now.reload.loads > before.reload.loads:
            return now.reload
        if time.monotonic() > deadline:
            message = f"process {before.pid} did not complete the reload within {_RELOAD_SECONDS:.0f} s; see its log"
            fail(message, UNAVAILABLE)
        time.sleep(_POLL_SECONDS)


def _show(result: LastReload) -> None:
    for key in result.changed:
        click.echo(f"in effect: {key}")
    for key in result.awaiting_restart:
        click.echo(f"needs a restart: {key}")
    if result.error:
        complain(result.error)
    elif not result.changed and not result.awaiting_restart:
        click.echo("no changes")


def notify(environ: Mapping[str, str], *lines: str) -> None:
    """Send `lines`, such as "READY=1", to the socket in NOTIFY_SOCKET, if systemd or another supervisor has set it."""
    import socket  # noqa: PLC0415 -- not needed for help

    address = environ.get("NOTIFY_SOCKET", "")
    if not address.startswith(("/", "@")):
        return
    # The daemon also works if its supervisor cannot be reached.
    with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as connection:
        # The address of an abstract socket begins with a NUL, which an environment variable cannot contain.
        connection.connect("\0" + address[1:] if address.startswith("@") else address)
        connection.sendall("\n".join(lines).encode())
