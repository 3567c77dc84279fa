"""Options that the verbs share, output, and exit codes.

Every module of a verb imports this one, so that it imports neither gRPC nor the settings before a verb runs.
"""

from __future__ import annotations

import functools
import json
import re
import shlex
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

import click

from memoryd.tls import Tls
from memoryd_server.errors import MemorydError

if TYPE_CHECKING:
    from memoryd.messages import Message
    from memoryd_server.cli.connection import Connection
    from memoryd_server.settings import ResolvedSettings

_F = TypeVar("_F", bound=Callable[..., Any])

_DIRECTORY = click.Path(file_okay=False, path_type=Path)
_FILE = click.Path(dir_okay=False, path_type=Path)


@dataclass(frozen=True, slots=True)
class CommonOptions:
    """The location of the settings, and the daemon to call; None for an option that was not given."""

    config: Path | None
    state_dir: Path | None
    workspace: Path | None
    address: str | None
    token_file: Path | None
    tls: Tls | None = None

    def settings(self, *, read_secrets: bool = True, **more: object) -> ResolvedSettings:
        """Return the settings from these options, the environment and the files.

        Without `read_secrets`, they are complete except for the keys of providers, and no command is run for a secret.

        Raises:
            SettingsError: the settings are invalid.
        """
        from memoryd_server.settings import load, process_environment  # noqa: PLC0415 -- not needed for help

        flags = {
            "config": self.config,
            "state_dir": self.state_dir,
            "workspace": self.workspace,
            "token_file": self.token_file,
            **more,
        }
        given = {name: value for name, value in flags.items() if value not in (None, ())}
        return load(environ=process_environment(), home=Path.home(), flags=given, read_secrets=read_secrets)


def location_options(command: _F) -> _F:
    """Add the options that locate the settings, for a verb that calls no daemon."""
    for option in (
        click.option("--workspace", type=_DIRECTORY, help="Workspace directory of the default agent."),
        click.option(
            "--state-dir", type=_DIRECTORY, help="State directory: settings, indexes and tokens. Default: ~/.openclaw."
        ),
        click.option(
            "--config", type=_FILE, help="Settings file (JSON5). Default: memoryd.json5 in the state directory."
        ),
    ):
        command = option(command)
    return command


def settings_options(command: _F) -> _F:
    """Add the options that locate the settings, and the file with the tokens of the daemon."""
    return location_options(
        click.option("--token-file", type=_FILE, help="File with bearer tokens, one per line.")(command)
    )


def common_options(command: _F) -> _F:
    """Add the options of every verb that calls a daemon. The verb receives them as `common: CommonOptions`."""

    @functools.wraps(command)
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
            raise click.UsageError("--tls-cert and --tls-key must be given together")
        given = Tls(tls_ca, tls_cert, tls_key) if tls or tls_ca or tls_cert else None
        return command(*args, common=CommonOptions(config, state_dir, workspace, address, token_file, given), **kwargs)

    decorated: Any = with_common
    for option in (
        click.option("--tls-key", type=_FILE, help="Private key of --tls-cert."),
        click.option("--tls-cert", type=_FILE, help="Client certificate, if the daemon requires one."),
        click.option("--tls-ca", type=_FILE, help="CA certificates to trust instead of the public authorities."),
        click.option("--tls", is_flag=True, help="Use TLS. Implied by --tls-ca and --tls-cert."),
        click.option(
            "--address",
            help="Daemon to call: unix:PATH or HOST:PORT; of HOST:PORT,HOST:PORT, the first that can be connected to. "
            "Default: the running daemon.",
        ),
    ):
        decorated = option(decorated)
    return settings_options(decorated)  # type: ignore[no-any-return]


json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")
agent_option = click.option(
    "--agent",
    default="",
    help="Agent id. Default: main, or the default agent if there is no main. Required if no agent is the default.",
)
each_agent_option = click.option("--agent", default="", help="Agent id. Default: all agents.")

WORKSPACE_FILES = ("MEMORY.md", "memory.md", "USER.md", "memory")
"""The files and the folder of a workspace that are indexed without a setting."""

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
    """Print an error of memoryd as one line on standard error, and exit with its code."""
    from memoryd.client import MemorydError as ClientError  # noqa: PLC0415 -- help does not need gRPC

    try:
        yield
    except ClientError as error:
        complain(error.message or error.code.name, error.reason)
        sys.exit(_EXIT_CODES.get(error.code.name, FAILURE))
    except MemorydError as error:
        fail(error.message, _EXIT_CODES_OF_REASONS.get(error.reason, FAILURE))
    except PermissionError as error:
        fail(f"{error.filename}: {error.strerror}", FAILURE)


@contextmanager
def connected(common: CommonOptions, *, background: bool = False) -> Iterator[Connection]:
    """Yield a connection to a daemon, as `open_connection` does; report errors as `reported` does."""
    from memoryd_server.cli.connection import open_connection  # noqa: PLC0415 -- help does not need gRPC and settings

    with reported(), open_connection(common, background=background) as connection:
        yield connection


def program_name() -> str:
    """Return how to write the command that runs now, in a shell: `memoryd` if the shell finds it by its name."""
    started = Path(sys.argv[0])
    if started.name != "memoryd" or not started.exists():
        return "memoryd" if started.name != "__main__.py" else f"{shlex.quote(sys.executable)} -m memoryd_server"
    found = shutil.which("memoryd")
    return "memoryd" if found is not None and started.samefile(found) else shlex.quote(str(started))


def complain(message: str, reason: str = "") -> None:
    """Print a message on standard error, followed by the `reason` of an error if it has one."""
    click.echo(f"memoryd: {message}" + (f" [{reason}]" if reason else ""), err=True)


def fail(message: str, code: int) -> NoReturn:
    """Print a message on standard error and exit with `code`."""
    complain(message)
    sys.exit(code)


def as_dict(message: Message) -> dict[str, Any]:
    """Return a message as JSON values, with the JSON names of its fields."""
    from memoryd import messages  # noqa: PLC0415 -- not needed for help

    return messages.to_dict(message)


def print_json(value: object) -> None:
    """Print a value as indented JSON."""
    click.echo(json.dumps(value, ensure_ascii=False, indent=2))


def print_json_line(value: object) -> None:
    """Print a value as one line of JSON and flush standard output."""
    click.echo(json.dumps(value, ensure_ascii=False))
    sys.stdout.flush()


def show(message: Message, text: Callable[[], Iterator[str]], *, as_json: bool) -> None:
    """Print a message as JSON, or print the lines that `text` returns: at a terminal, without control characters."""
    if as_json:
        print_json(as_dict(message))
        return
    at_terminal = sys.stdout.isatty()
    for line in text():
        click.echo(printable(line) if at_terminal else line)


# Notes may contain sequences that control the terminal.
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


def printable(text: str) -> str:
    """Return a text without control characters, except for tabs and line breaks."""
    return _CONTROL.sub("", text)


def enum_word(message: Message, field: str) -> str:
    """Return the value of an enum field in lower case and without its prefix, for example "up to date"."""
    enum: Any = message.DESCRIPTOR.fields_by_name[field].enum_type
    prefix = enum.values_by_number[0].name.removesuffix("UNSPECIFIED")
    name: str = enum.values_by_number[getattr(message, field)].name
    return name.removeprefix(prefix).lower().replace("_", " ")


def bytes_text(count: int) -> str:
    """Return a size with its unit, for example "1.5 KiB"."""
    size = float(count)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1024 or unit == "GiB":  # noqa: PLR2004 -- the step of the units
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    raise AssertionError("unreachable")
