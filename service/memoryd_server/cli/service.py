"""`memoryd service`: run the daemon as a user service, with systemd or launchd."""

from __future__ import annotations

import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from memoryd_server.cli.options import FAILURE, CommonOptions, complain, json_option, print_json, reported

if TYPE_CHECKING:
    from memoryd.discovery import Environment
    from memoryd_server.cli.service_definition import ServiceCommand
    from memoryd_server.cli.service_manager import ServiceManager
    from memoryd_server.settings import ResolvedSettings

# Variables of this shell that decide which memory the daemon serves, or where it listens.
_KEPT_VARIABLES = (
    *("MEMORYD_STATE_DIR", "MEMORYD_CONFIG", "MEMORYD_WORKSPACE", "MEMORYD_LISTEN", "MEMORYD_TOKEN_FILE"),
    *("OPENCLAW_STATE_DIR", "OPENCLAW_HOME", "OPENCLAW_CONFIG_PATH", "OPENCLAW_PROFILE", "OPENCLAW_WORKSPACE_DIR"),
)


@click.group()
def service() -> None:
    """Run the daemon as a user service.

    Uses systemd's user manager on Linux, and launchd on macOS. Root privileges are not needed.
    """


@service.command()
@click.option(
    "--config",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Settings file (JSON5). Default: memoryd.json5 in the state directory.",
)
@click.option(
    "--state-dir",
    type=click.Path(file_okay=False, path_type=Path),
    help="State directory: settings, indexes and tokens. Default: ~/.openclaw.",
)
@click.option("--workspace", type=click.Path(file_okay=False, path_type=Path), help="Workspace of the default agent.")
@click.option("--no-start", is_flag=True, help="Only write the definition of the service.")
def install(config: Path | None, state_dir: Path | None, workspace: Path | None, no_start: bool) -> None:
    """Start the daemon now and at each login.

    Replaces the definition of an earlier installation. Variables of this shell that set the state directory, the
    workspace, the settings file, the token file or the listener, such as MEMORYD_STATE_DIR, are written into the
    definition. API keys are not: write them to .env in the state directory.
    """
    from memoryd.discovery import Environment  # noqa: PLC0415 -- not needed for help
    from memoryd_server.cli.daemon_registry import running_daemon  # noqa: PLC0415

    with reported():
        settings = CommonOptions(config, state_dir, workspace, None, None).settings(read_secrets=False)
        environment = Environment.of_process()
        manager = _manager(environment)
        running = running_daemon(settings.state_dir)
        if running is not None and not no_start and not manager.state().active:
            complain(
                f"a daemon (process {running.pid}) already runs with the state directory {settings.state_dir}; stop it "
                "first, then run this command again"
            )
            sys.exit(FAILURE)
        command = _command(environment, config, state_dir, workspace)
        manager.install(command, start=not no_start)
        click.echo(f"Wrote {manager.definition}.")
        if not no_start:
            click.echo("The daemon is running, and starts at each login.")
        for line in manager.advice():
            click.echo(line)
        for line in (*_missing_keys(settings, environment), *_dropped_variables(environment)):
            complain(line)


def _manager(environment: Environment) -> ServiceManager:
    from memoryd_server.cli.service_manager import service_manager  # noqa: PLC0415 -- not needed for help

    return service_manager(environment.home, environment.path("XDG_CONFIG_HOME") or environment.home / ".config")


def _command(
    environment: Environment, config: Path | None, state_dir: Path | None, workspace: Path | None
) -> ServiceCommand:
    from memoryd_server.cli.service_definition import ServiceCommand, service_program  # noqa: PLC0415 -- not needed for help

    arguments = [*service_program(sys.argv[0], environment.home), "serve"]
    for flag, path in (("--config", config), ("--state-dir", state_dir), ("--workspace", workspace)):
        if path is not None:
            arguments += [flag, str(path.expanduser().absolute())]
    kept = {name: _absolute(name, text) for name in _KEPT_VARIABLES if (text := environment.text(name)) is not None}
    return ServiceCommand(arguments, kept)


def _absolute(name: str, text: str) -> str:
    """Return a path of this shell as it has to be written for a service, which starts in another folder."""
    is_path = name not in {"MEMORYD_LISTEN", "OPENCLAW_PROFILE"}
    return str(Path(text).absolute()) if is_path and not text.startswith("~") else text


def _dropped_variables(environment: Environment) -> list[str]:
    """Return a message for each variable with a setting that the service does not get."""
    client_only = ("MEMORYD_ADDRESS", "MEMORYD_TLS")
    names = sorted(name for name in environment.environ if name.startswith("MEMORYD_") and environment.text(name))
    # MEMORYD_TLS_CA and others are of clients, MEMORYD_TLS__CERT_FILE of the daemon.
    dropped = [
        name
        for name in names
        if name not in {*_KEPT_VARIABLES, *client_only} and not (name.startswith("MEMORYD_TLS_") and "__" not in name)
    ]
    return [f"the service does not get {name} of this shell; write the setting to memoryd.json5" for name in dropped]


def _missing_keys(settings: ResolvedSettings, environment: Environment) -> list[str]:
    """Return a message for each provider key that is a variable of this shell, which the service does not see."""
    from memoryd_server.settings import PROVIDER_KEYS  # noqa: PLC0415 -- not needed for help

    searches = [agent.memory_search for agent in settings.agents.values() if agent.enabled]
    used = {search.provider for search in searches} | {search.fallback_provider for search in searches}
    used |= {"openai", "gemini", "voyage", "mistral"} if "auto" in used else set()
    names = [name for provider in sorted(used) for name in PROVIDER_KEYS.get(provider, ()) if environment.text(name)]
    file = settings.state_dir / ".env"
    return [f"the service does not see {name} of this shell; write it to {file}: {name}=..." for name in names]


@service.command()
def uninstall() -> None:
    """Stop the daemon, and remove the service.

    The notes, the settings and the indexes are kept.
    """
    from memoryd.discovery import Environment  # noqa: PLC0415 -- not needed for help

    with reported():
        manager = _manager(Environment.of_process())
        removed = manager.uninstall()
    click.echo(f"Removed {manager.definition}." if removed else f"Not installed: {manager.definition} does not exist.")


@service.command()
@json_option
def status(as_json: bool) -> None:
    """Show whether the service is installed and running.

    Exits with 1 if it is not running.
    """
    from memoryd.discovery import Environment  # noqa: PLC0415 -- not needed for help

    with reported():
        state = _manager(Environment.of_process()).state()
    if as_json:
        print_json(asdict(state))
    else:
        installed = state.definition if state.installed else "no; `memoryd service install` installs it"
        click.echo(f"Installed        {installed}")
        click.echo(f"Starts at login  {'yes' if state.starts_at_login else 'no'}")
        running = "yes" if state.active else "no" if state.reachable else "unknown"
        click.echo(f"Running          {running} ({state.manager}: {state.detail})")
    sys.exit(0 if state.active else FAILURE)
