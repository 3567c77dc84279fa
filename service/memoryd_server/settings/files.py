"""Finds the state directory and the two files, and reads them."""

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import json5

from memoryd_server.foreign_text import valid_tree

from .paths import absolute
from .report import Report
from .words import kind_of

REFERENCE_FILE = "openclaw.json"
OWN_FILE = "memoryd.json5"

_POSITION = re.compile(r"<string>:(\d+) (.*) at column (\d+)", re.DOTALL)
_DEEPEST = 100


def find_state_dir(explicit: str, home: Path) -> Path:
    """The directory named, else `~/.openclaw`, else `~/.moltbot` when only that one exists."""
    if explicit:
        return absolute(explicit, None, home)
    current, legacy = home / ".openclaw", home / ".moltbot"
    return legacy if not exists(current) and exists(legacy) else current


def read_layer(path: Path, report: Report, *, required: bool) -> Mapping[str, Any]:
    """The object that a JSON5 file holds. Empty when the file is missing and not required, or has a problem.

    A link whose target is missing is a problem: the settings that it stands for are somewhere else.
    """
    try:
        text = path.read_bytes().decode("utf-8-sig")
    except FileNotFoundError:
        if path.is_symlink():
            report.unreadable(path, "the file is a link, and its target does not exist")
        elif required:
            report.unreadable(path, "the file does not exist")
        return {}
    except (OSError, ValueError) as error:
        report.unreadable(path, _why(error))
        return {}
    return _parsed(text, path, report)


def _parsed(text: str, path: Path, report: Report) -> Mapping[str, Any]:
    try:
        value = _load(text)
    except RecursionError:
        report.unreadable(path, "nested too deeply")
    except ValueError as error:
        report.unreadable(*_where(path, error))
    else:
        if not isinstance(value, dict):
            report.unreadable(path, f"expected an object, found {kind_of(value)}")
        elif _deeper_than(value, _DEEPEST):
            report.unreadable(path, "nested too deeply")
        else:
            return _encodable(value, path, report)
    return {}


def _encodable(value: dict[str, Any], path: Path, report: Report) -> Mapping[str, Any]:
    valid: dict[str, Any] = valid_tree(value)
    if valid != value:
        report.warn(path, (), "lone surrogates such as \\ud800 are not text; each of them is read as U+FFFD")
    return valid


def _load(text: str) -> Any:
    try:
        # Twenty times as fast, and most files of the reference are plain JSON.
        return json.loads(text)
    except json.JSONDecodeError:
        return json5.loads(text)


def _where(path: Path, error: ValueError) -> tuple[str, str]:
    found = _POSITION.fullmatch(str(error))
    if found is None:
        return str(path), f"not JSON5: {error}"
    return f"{path}:{found[1]}:{found[3]}", f"not JSON5: {found[2]}"


def _why(error: OSError | ValueError) -> str:
    if isinstance(error, UnicodeDecodeError):
        return f"not UTF-8 at byte {error.start}"
    if isinstance(error, OSError):
        return f"the file cannot be read: {error.strerror or error}"
    return f"not a usable file name: {error}"


def exists(path: Path) -> bool:
    """Return whether there is a file or folder at `path`; False where that cannot be found out."""
    try:
        return path.exists()
    except (OSError, ValueError):
        return False


def _deeper_than(value: object, levels: int) -> bool:
    if not isinstance(value, dict | list):
        return False
    inside = value.values() if isinstance(value, dict) else value
    return levels == 0 or any(_deeper_than(item, levels - 1) for item in inside)
