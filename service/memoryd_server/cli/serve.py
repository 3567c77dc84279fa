"""`memoryd serve` and `memoryd reload`: run the daemon, and make it read its settings again."""

from __future__ import annotations

import json
import os
import shlex
import signal
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from memoryd_server.cli.options import (
    FAILURE,
    UNAVAILABLE,
    WORKSPACE_FILES,
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
    from memoryd_server.cli.daemon_registry import LastReload
    from memoryd_server.observe import Log
    from memoryd_server.settings import ResolvedSettings


@click.command()
@click.option("--listen", multiple=True, help="Address to listen on: unix:PATH or HOST:PORT; can be repeated.")
@click.option(
    "--example-query",
    help="Print commands to try with this query when the daemon is ready. At a terminal, they are always printed.",
)
@click.option(
    "--exit-when-idle",
    is_flag=True,
    help="Exit after memoryd.mcp.idleSeconds without a call, an open stream or a sync. `memoryd mcp` sets this flag.",
)
@settings_options
def serve(
    listen: tuple[str, ...],
    example_query: str | None,
    exit_when_idle: bool,
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

    from memoryd_server.settings import use_one_grpc_thread  # noqa: PLC0415

    # Before the modules that import gRPC.
    use_one_grpc_thread()

    from memoryd_server.app import run_daemon  # noqa: PLC0415
    from memoryd_server.cli.daemon_registry import endpoint_lock  # noqa: PLC0415
    from memoryd_server.observe import LogLevel, make_log  # noqa: PLC0415
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
        for problem in () if workspace is None else workspace_problems(workspace, settings):
            log.warning("warn-workspace", problem=problem)
        announcement = _Announcement(settings.state_dir, log, example_query, registered=not exit_when_idle)
        with endpoint_lock(settings.state_dir):
            asyncio.run(
                run_daemon(
                    settings,
                    log,
                    announcement.ready,
                    log_level=level,
                    load=load,
                    on_reload=announcement.reloaded,
                    exit_when_idle=exit_when_idle,
                )
            )
            # Without the lock, another daemon could have written the files.
            announcement.withdraw()


class _Announcement:
    """How a daemon makes itself known: to commands by two files, to the terminal, and to its supervisor.

    A daemon that is not `registered` is found with its state directory only: one that exits when it is idle would
    otherwise serve commands without options at some times, and not at others.
    """

    def __init__(self, state_dir: Path, log: Log, example_query: str | None, *, registered: bool) -> None:
        from memoryd.discovery import Environment  # noqa: PLC0415 -- not needed for help
        from memoryd_server.cli.daemon_registry import registry_folder  # noqa: PLC0415

        self._state_dir = state_dir
        self._registry = registry_folder(Environment.of_process())
        self._log = log
        self._example_query = example_query
        self._registered = registered
        self._addresses: list[str] = []

    def ready(self, addresses: list[str]) -> None:
        """Announce the addresses of the daemon, which is ready to answer calls."""
        from memoryd_server.cli.daemon_registry import LastReload  # noqa: PLC0415 -- not needed for help
        from memoryd_server.settings import process_environment  # noqa: PLC0415

        self._addresses = addresses
        self._write(LastReload())
        if self._registered:
            self._register()
        click.echo(f"listening on {', '.join(addresses)}")
        notify(process_environment(), "READY=1", f"STATUS=listening on {', '.join(addresses)}")
        # The state directory of another daemon may be on a file system that does not answer.
        threading.Thread(target=self._look_at_others, name="registry", daemon=True).start()

    def _register(self) -> None:
        from memoryd_server.cli.daemon_registry import register  # noqa: PLC0415 -- not needed for help

        try:
            register(self._registry, self._state_dir)
        except OSError as error:
            # Commands find the daemon only with --state-dir or --address.
            self._log.info("skip-registration", registry=str(self._registry), error=str(error))

    def reloaded(self, report: SettingsReport) -> None:
        """Write the result of a reload for `memoryd reload`."""
        from memoryd_server.cli.daemon_registry import LastReload  # noqa: PLC0415 -- not needed for help

        self._write(LastReload(report.loads, report.error, report.changed, report.awaiting_restart))

    def withdraw(self) -> None:
        """Remove the files of the daemon, which has stopped."""
        from memoryd_server.cli.daemon_registry import remove_endpoint_file, unregister  # noqa: PLC0415 -- not needed for help

        remove_endpoint_file(self._state_dir)
        unregister(self._registry, self._state_dir)

    def _look_at_others(self) -> None:
        """Print commands to try, and remove other daemons from the registry that no longer run. Blocks."""
        from memoryd_server.cli.daemon_registry import remove_stopped  # noqa: PLC0415 -- not needed for help

        with suppress(OSError):
            if self._example_query or sys.stdout.isatty():
                click.echo(self._next_steps())
            remove_stopped(self._registry, self._state_dir)

    def _next_steps(self) -> str:
        """Return commands to try in another shell, with the option that they need to find this daemon."""
        from memoryd.discovery import Environment  # noqa: PLC0415 -- not needed for help
        from memoryd_server.cli.daemon_registry import candidate_state_dirs  # noqa: PLC0415

        found = candidate_state_dirs(Environment.of_process(), None)[:1] == [self._state_dir]
        flags = "" if found else f" --state-dir {shlex.quote(str(self._state_dir))}"
        return next_steps(program_name(), flags, self._addresses, self._example_query or "your question")

    def _write(self, result: LastReload) -> None:
        from memoryd_server.cli.daemon_registry import write_endpoint_file  # noqa: PLC0415 -- not needed for help

        try:
            write_endpoint_file(self._state_dir, self._addresses, result)
        except OSError as error:
            # The disk is full or read-only: the daemon serves, but commands find it only with --address.
            self._log.warning("skip-endpoint-note", state_dir=str(self._state_dir), error=str(error))


def workspace_problems(workspace: Path, settings: ResolvedSettings) -> Iterator[str]:
    """Yield why nothing in the workspace of the option `--workspace` is indexed."""
    if settings.service.store.has_documents:
        yield (
            f"{workspace} is not read, because the memory files are in the database of memoryd.store.url; to read it, "
            'set memoryd.store.documents to "folder"'
        )
    elif not workspace.is_dir():
        yield f"{workspace} is not a folder; create it, or correct --workspace"
    elif not any((workspace / name).exists() for name in WORKSPACE_FILES) and any(workspace.glob("*.md")):
        command = f"{program_name()} init {shlex.quote(str(workspace))}"
        yield (
            f"{workspace} has no MEMORY.md, USER.md or memory/; its other Markdown files are indexed only if "
            f"memory.search.extraPaths names them; `{command}` writes this setting"
        )


def next_steps(program: str, flags: str, addresses: Sequence[str], query: str) -> str:
    """Return commands to try in another shell with a daemon that listens on `addresses`."""
    quoted = shlex.quote(query)
    lines = ["", "Try in another shell:", f"  {program} search{flags} {quoted}", f"  {program} status{flags}"]
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
@click.option(
    "--state-dir",
    type=click.Path(file_okay=False, path_type=Path),
    help="State directory of the daemon. Default: ~/.openclaw.",
)
@json_option
def reload(state_dir: Path | None, as_json: bool) -> None:
    """Make the running daemon read its settings again.

    The daemon keeps the flags and the environment variables that it was started with. The command prints the settings
    keys that took effect and those that need a restart.

    Exits with 1 if the settings are invalid (the old settings then stay in effect) or if an agent's memory cannot be
    opened with the new settings. Exits with 5 if no daemon is running.
    """
    result = reload_daemon(state_dir)
    if as_json:
        print_json(asdict(result))
    else:
        _show(result)
    sys.exit(FAILURE if result.error else 0)


def reload_daemon(given: Path | None) -> LastReload:
    """Make the running daemon read its settings again, and return the result. `given` is the option `--state-dir`.

    Exits with `UNAVAILABLE` if no daemon runs, or if it stops or does not complete the reload.
    """
    from memoryd.discovery import Environment  # noqa: PLC0415 -- not needed for help
    from memoryd_server.cli.daemon_registry import candidate_state_dirs, own_state_dir, running_daemon  # noqa: PLC0415

    environment = Environment.of_process()
    state_dir = next(iter(candidate_state_dirs(environment, given)), own_state_dir(environment, given))
    before = running_daemon(state_dir)
    if before is None:
        fail(f"no daemon is running with the state directory {state_dir}; give another --state-dir", UNAVAILABLE)
    try:
        os.kill(before.pid, signal.SIGHUP)
    except OSError as error:
        fail(f"cannot send SIGHUP to process {before.pid}: {error.strerror}", UNAVAILABLE)
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
