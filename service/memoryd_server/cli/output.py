"""What the commands print, and the exit codes by which scripts tell what happened."""

import json
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

import click

from memoryd import messages
from memoryd.client import MemorydError as ClientError
from memoryd_server.errors import MemorydError

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
