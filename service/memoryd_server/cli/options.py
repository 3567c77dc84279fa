"""Shared options, output, exit codes.

Options that the verbs share, and the settings that follow from them.

What the commands print, and the exit codes by which scripts tell what happened.
"""

import json
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import click

from memoryd import messages
from memoryd.client import MemorydError as ClientError
from memoryd.discovery import Surroundings, named_tls
from memoryd.tls import Tls
from memoryd_server.errors import MemorydError, SettingsError
from memoryd_server.settings import ResolvedSettings, client_address, client_token_file, load, process_environment

_F = TypeVar("_F", bound=Callable[..., Any])

_DIRECTORY = click.Path(file_okay=False, path_type=Path)
_FILE = click.Path(dir_okay=False, path_type=Path)


@dataclass(frozen=True, slots=True)
class CommonOptions:
    """Where settings come from, and which daemon to call; None where the command line says nothing."""

    config: Path | None
    state_dir: Path | None
    workspace: Path | None
    address: str | None
    token_file: Path | None
    tls: Tls | None = None

    def settings(self, **more: object) -> ResolvedSettings:
        """The settings as these options, the environment and the files give them.

        Raises:
            SettingsError: they cannot be used.
        """
        flags = {
            "config": self.config,
            "state_dir": self.state_dir,
            "workspace": self.workspace,
            "token_file": self.token_file,
            **more,
        }
        given = {name: value for name, value in flags.items() if value not in (None, ())}
        return load(environ=process_environment(), home=Path.home(), flags=given)

    def daemon_address(self) -> str | None:
        """The daemon that was named, by option or environment."""
        return self.address or client_address(process_environment())

    def named_tls(self) -> Tls | None:
        """The TLS to speak with the daemon that was named, by option or environment.

        Raises:
            SettingsError: what the environment says of TLS cannot be used.
        """
        try:
            return self.tls or named_tls(Surroundings(process_environment(), Path.home()))
        except ValueError as error:
            raise SettingsError(str(error)) from error

    def named_token_file(self) -> Path | None:
        """The file with the token to show that was named, by option or environment."""
        return self.token_file or client_token_file(process_environment(), Path.home())


def settings_options(command: _F) -> _F:
    """Adds the options that say where the settings are."""
    for option in (
        click.option("--token-file", type=_FILE, help="File with bearer tokens, one a line."),
        click.option("--workspace", type=_DIRECTORY, help="Workspace of the default agent."),
        click.option("--state-dir", type=_DIRECTORY, help="Where indexes and the reference's settings are."),
        click.option("--config", type=_FILE, help="memoryd's own settings file (JSON5)."),
    ):
        command = option(command)
    return command


def common_options(command: _F) -> _F:
    """Adds the options of every verb that calls a daemon; the verb takes them as one `common: Common`."""

    def with_common(
        *args: Any,
        config: Path | None,
        state_dir: Path | None,
        workspace: Path | None,
        address: str | None,
        token_file: Path | None,
        tls: bool,
        tls_ca: Path | None,
        tls_cert: Path | None,
        tls_key: Path | None,
        **kwargs: Any,
    ) -> Any:
        if (tls_cert is None) != (tls_key is None):
            raise click.UsageError("--tls-cert and --tls-key are needed together")
        asked = Tls(tls_ca, tls_cert, tls_key) if tls or tls_ca or tls_cert else None
        return command(*args, common=CommonOptions(config, state_dir, workspace, address, token_file, asked), **kwargs)

    with_common.__doc__ = command.__doc__
    with_common.__name__ = command.__name__
    with_common.__click_params__ = getattr(command, "__click_params__", [])  # type: ignore[attr-defined]
    taking: Any = with_common
    for option in (
        click.option("--tls-key", type=_FILE, help="The key of --tls-cert."),
        click.option("--tls-cert", type=_FILE, help="Certificate to show, where the daemon asks for one."),
        click.option("--tls-ca", type=_FILE, help="Certificates to trust, instead of the public authorities."),
        click.option("--tls", is_flag=True, help="Speak TLS with the daemon; --tls-ca and --tls-cert imply it."),
        click.option("--address", help="The daemon to call: unix:PATH or HOST:PORT. Default: the one running."),
    ):
        taking = option(taking)
    return settings_options(taking)  # type: ignore[no-any-return]


json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")
agent_option = click.option("--agent", default="", help="Agent; the default one when it is not given.")

FAILURE = 1
USAGE = 2
NOT_FOUND = 3
DENIED = 4
UNAVAILABLE = 5
PRECONDITION = 6

_EXIT_CODES: Mapping[str, int] = {
    "INVALID_ARGUMENT": USAGE,
    "OUT_OF_RANGE": USAGE,
    "NOT_FOUND": NOT_FOUND,
    "PERMISSION_DENIED": DENIED,
    "UNAUTHENTICATED": DENIED,
    "UNAVAILABLE": UNAVAILABLE,
    "DEADLINE_EXCEEDED": UNAVAILABLE,
    "FAILED_PRECONDITION": PRECONDITION,
}
_EXIT_CODES_OF_REASONS: Mapping[str, int] = {
    "INVALID_REQUEST": USAGE,
    "AGENT_NOT_FOUND": NOT_FOUND,
    "INDEX_BUSY": UNAVAILABLE,
}


@contextmanager
def reported() -> Iterator[None]:
    """Turns what memoryd refuses or fails at into one line on standard error and an exit code."""
    try:
        yield
    except ClientError as error:
        complain(error.message or error.code.name, error.reason)
        sys.exit(_EXIT_CODES.get(error.code.name, FAILURE))
    except MemorydError as error:
        complain(error.message)
        sys.exit(_EXIT_CODES_OF_REASONS.get(error.reason, FAILURE))


def complain(message: str, reason: str = "") -> None:
    """Print a message on standard error, with the reason of an error when it has one."""
    click.echo(f"memoryd: {message}" + (f" [{reason}]" if reason else ""), err=True)


def print_json(value: object) -> None:
    """Prints a value as indented JSON."""
    click.echo(json.dumps(value, ensure_ascii=False, indent=2))


def print_json_line(value: object) -> None:
    """Prints a value as one line of JSON, at once."""
    click.echo(json.dumps(value, ensure_ascii=False))
    sys.stdout.flush()


def show(message: messages.Message, text: Callable[[], Iterator[str]], *, as_json: bool) -> None:
    """Prints a message as JSON, or the lines that `text` makes of it."""
    if as_json:
        print_json(messages.to_dict(message))
        return
    for line in text():
        click.echo(line)


def enum_word(name: str, prefix: str) -> str:
    """An enum value's name without its prefix, in lower case."""
    return name.removeprefix(prefix).lower().replace("_", " ")


def bytes_text(count: int) -> str:
    """A size for people."""
    size = float(count)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1024 or unit == "GiB":  # noqa: PLR2004 -- the step of the units
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    raise AssertionError("unreachable")
