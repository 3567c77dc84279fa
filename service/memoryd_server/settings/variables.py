"""The variables that settings and providers see: those of the process, of `.env` files, and of `env.vars`.

Earlier ones take precedence. memoryd's own process does not get the variables of files, nor do the commands that it
runs, and a `MEMORYD_` variable counts only in the environment of the process.
"""

import os
import re
import stat
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from memoryd_server.foreign_text import valid_text
from memoryd_server.settings.environment import PREFIX
from memoryd_server.settings.layers import Findings

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
_MAX_DOTENV_BYTES = 2**20


@dataclass(frozen=True, slots=True)
class Variables:
    """Variables by name. `origins` has the file, and the key in it, of each variable that is not the process's."""

    values: Mapping[str, str]
    origins: Mapping[str, str] = field(default_factory=dict)

    def origin(self, name: str) -> str:
        """Return where a variable is set: `env NAME`, or the file with the name."""
        return self.origins.get(name, f"env {name}")

    def of_process(self) -> "Variables":
        """Return the variables of the process alone."""
        return Variables({name: value for name, value in self.values.items() if name not in self.origins})

    def with_dotenv(self, files: Iterable[Path], report: Findings) -> "Variables":
        """Return these variables and those of `.env` files that are not among them.

        A file that exists but cannot be read disables remote embeddings: keys from other places would be used.
        """
        values, origins = dict(self.values), dict(self.origins)
        for file in files:
            for name, value in read_dotenv(file, report).items():
                if name not in values and not name.startswith(PREFIX):
                    values[name] = valid_text(value)
                    origins[name] = f"{file}: {name}"
        return Variables(values, origins)

    def with_settings(self, assigned: Iterable[tuple[str, str, str]]) -> "Variables":
        """Return these variables and the assigned ones, each a name, a value and an origin, that are unset or blank."""
        values, origins = dict(self.values), dict(self.origins)
        for name, value, origin in assigned:
            if not values.get(name, "").strip() and not name.startswith(PREFIX):
                values[name] = value
                origins[name] = origin
        return Variables(values, origins)


def is_variable_name(text: str) -> bool:
    """Return whether `text` can be the name of a variable."""
    return _NAME.fullmatch(text) is not None


def read_dotenv(file: Path, report: Findings) -> dict[str, str]:
    """Return the variables of a `.env` file; empty if there is no file.

    A file that cannot be read, or that has more than 1 MiB, disables remote embeddings.
    """
    try:
        # Opening a FIFO must not wait for its writer.
        descriptor = os.open(file, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(descriptor, "rb") as opened:
            is_file = stat.S_ISREG(os.fstat(descriptor).st_mode)
            data = opened.read(_MAX_DOTENV_BYTES + 1) if is_file else b""
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        report.block_remote(file, (), f"the file cannot be read: {reason}")
        return {}
    if not is_file:
        report.block_remote(file, (), "not a regular file, and not read")
    if len(data) > _MAX_DOTENV_BYTES:
        report.block_remote(file, (), f"the file is larger than {_MAX_DOTENV_BYTES} bytes and is not read")
        return {}
    return parse_dotenv(data.decode("utf-8-sig", "replace"))


# The part of a line up to the value, which begins after the match.
_ASSIGNMENT = re.compile(r"[ \t]*(?:export[ \t]+)?([\w.-]+)[ \t]*(?:=|:[ \t])[ \t]*", re.ASCII)
_QUOTES = "'\"`"


def parse_dotenv(text: str) -> dict[str, str]:
    r"""Return the variables in the text of a `.env` file, in the format of Node's dotenv. Linear in the text.

    A line is `NAME=value`, with `export` in front of it or not. A value in quotes may have several lines; in double
    quotes, `\n` and `\r` are line breaks. Without quotes, `#` begins a comment. A later line replaces an earlier one.
    """
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    return {name: value for name, value in _assignments(text) if is_variable_name(name)}


def _assignments(text: str) -> Iterator[tuple[str, str]]:
    closings = {quote: _Closing(text, quote) for quote in _QUOTES}
    start = 0
    while start < len(text):
        end = _end_of_line(text, start)
        found = _ASSIGNMENT.match(text, start, end)
        if found:
            quote = text[found.end() : found.end() + 1]
            closing = closings[quote].after(found.end() + 1) if quote and quote in _QUOTES else None
            if closing and closing.ends_value:
                yield found[1], _expanded(text[found.end() + 1 : closing.position], quote)
                end = closing.line_end
            else:
                yield found[1], _plain(text[found.end() : end])
        start = end + 1


class _Closing:
    """The next closing quote of one kind: one without a backslash before it.

    Reads each part of the text once, if the positions that it searches from only grow. `ends_value` is whether nothing
    but a comment follows on its line, which ends at `line_end`.
    """

    def __init__(self, text: str, quote: str) -> None:
        self._text = text
        self._quote = quote
        self.position = -1
        self.line_end = -1
        self.ends_value = False

    def after(self, start: int) -> "_Closing | None":
        """Move to the first closing quote at `start` or later; return None if there is none."""
        if self.position < start:
            position = self._text.find(self._quote, start)
            while position > start and self._text[position - 1] == "\\":
                position = self._text.find(self._quote, position + 1)
            self.position = position if position >= 0 else len(self._text)
            self.line_end = _end_of_line(self._text, self.position)
            rest = self._text[self.position + 1 : self.line_end].strip()
            self.ends_value = not rest or rest.startswith("#")
        return self if self.position < len(self._text) else None


def _end_of_line(text: str, start: int) -> int:
    end = text.find("\n", start)
    return len(text) if end < 0 else end


def _plain(text: str) -> str:
    value = text.partition("#")[0].strip()
    quoted = len(value) > 1 and value[0] in _QUOTES and value[0] == value[-1]
    return _expanded(value[1:-1], value[0]) if quoted else value


def _expanded(value: str, quote: str) -> str:
    return value.replace("\\n", "\n").replace("\\r", "\r") if quote == '"' else value
