"""JSON5 files as one tree with origins; findings.

Several files, variables and flags as one tree in which every key remembers where it came from.

Finds the state directory and the two files, and reads them.

Makes the paths in settings absolute, while it is still known which file they stand in.

`${NAME}` in a value reads the environment; `$${NAME}` is the text itself.

Problems, warnings and blockers that are found while settings are read, each with its file and key.
"""

import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import json5

from memoryd_server.errors import SettingsError
from memoryd_server.foreign_text import valid_tree
from memoryd_server.settings.rules import KeyPath, dotted, kind_of

DEFAULT = "default"

# Of two layers the later one's replaces the earlier's as a whole: half a scope or half a set of headers means nothing.
_WHOLE = frozenset({"scope", "headers"})


class SettingsTree:
    """The settings as written, later layers over earlier ones. Objects are merged key by key, arrays are replaced.

    `replaced` has the path, the origin and the value of what was no object and has an object of a later layer over it.
    """

    def __init__(self) -> None:
        self.values: dict[str, Any] = {}
        self.replaced: list[tuple[KeyPath, str, object]] = []
        self._origins: dict[KeyPath, str] = {}

    def overlay(self, layer: Mapping[str, Any], origin: str) -> None:
        """Puts a layer over what is there; a null takes the key away, as if nobody had written it."""
        self._merge(self.values, layer, (), origin)

    def at(self, *path: str) -> Any:
        """The value at a path, or None when there is none."""
        value: Any = self.values
        for key in path:
            value = value.get(key) if isinstance(value, dict) else None
        return value

    def written(self, path: KeyPath) -> str | None:
        """Who wrote exactly this key, or the array or object that holds it as a whole; None when nobody did."""
        return self._origins.get(path)

    def origin(self, path: KeyPath) -> str:
        """Who wrote the key, or the nearest thing around it."""
        return next((self._origins[path[:n]] for n in range(len(path), 0, -1) if path[:n] in self._origins), DEFAULT)

    def remove(self, path: KeyPath) -> None:
        """Takes a key away, as if nobody had written it."""
        around = self.at(*path[:-1])
        if isinstance(around, dict):
            around.pop(path[-1], None)
        self._forget(path)

    def _merge(self, into: dict[str, Any], layer: Mapping[str, Any], path: KeyPath, origin: str) -> None:
        for key, value in layer.items():
            here = (*path, key)
            old = into.get(key)
            keep = isinstance(old, dict) and isinstance(value, Mapping) and key not in _WHOLE
            if key in into and isinstance(value, Mapping) and not isinstance(old, dict):
                self.replaced.append((here, self._origins[here], old))
            if not keep and key in into:
                self._forget(here)
                del into[key]
            if value is None:
                continue
            self._origins[here] = origin
            if isinstance(value, Mapping):
                self._merge(into.setdefault(key, {}), value, here, origin)
            else:
                into[key] = value

    def _forget(self, path: KeyPath) -> None:
        for known in [p for p in self._origins if p[: len(path)] == path]:
            del self._origins[known]


def merged(low: Mapping[str, Any], high: Mapping[str, Any]) -> dict[str, Any]:
    """`high` over `low`, as `SettingsTree.overlay` does it; neither is changed."""
    tree = SettingsTree()
    tree.overlay(low, "low")
    tree.overlay(high, "high")
    return tree.values


ABOUT_PROVIDERS = frozenset({"memory", "agents", "models", "plugins"})
"""The blocks that decide which providers are used, and with what."""


@dataclass(frozen=True, slots=True)
class Blocker:
    """A setting that memoryd does not understand and that may restrict what is sent to embedding providers.

    While there is one, no agent uses a provider that is reached over HTTP. `where` names the file and the key.
    `agent_id` is the agent that the setting belongs to, empty for a setting that agents share. `warning` says what is
    wrong and what follows from it.
    """

    where: str
    agent_id: str = ""
    warning: str = field(default="", compare=False)

    def shown_to(self, agent_id: str) -> str:
        """Return `where` as the callers of an agent may read it: keys of another agent hold its id."""
        return self.where if self.agent_id in ("", agent_id) else "a setting of another agent"


class RefusedSettings(SettingsError):
    """Settings that cannot be used. A daemon that keeps the earlier ones has to respect the `blockers` all the same."""

    def __init__(self, message: str, blockers: tuple[Blocker, ...] = ()) -> None:
        super().__init__(message)
        self.blockers = blockers


@dataclass(frozen=True, slots=True)
class UnreadKey:
    """A provider's key that is a reference to a secret kept elsewhere: its file, and its place in the file."""

    origin: str
    key: KeyPath


@dataclass(slots=True)
class Findings:
    """Collects problems, which refuse the settings; warnings, which do not; and blockers, which are warnings too.

    A key is its path in the file; an empty one means the file as a whole, or that there is no file.
    """

    problems: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    blockers: list[Blocker] = field(default_factory=list)

    def problem(self, origin: str | Path, key: KeyPath, message: str, agent_id: str = "") -> None:
        """Add a reason to refuse. A key in a block that decides about providers is a blocker as well."""
        _add(self.problems, origin, key, message)
        if ABOUT_PROVIDERS.intersection(key[:1]):
            self.block_remote(origin, key, message, agent_id)

    def unreadable(self, file: str | Path, message: str) -> None:
        """Add a file that cannot be read as a reason to refuse, and as a blocker: what it restricts is unknown."""
        _add(self.problems, file, (), message)
        self.block_remote(file, (), message)

    def warn(self, origin: str | Path, key: KeyPath, message: str) -> None:
        """Add a warning."""
        _add(self.warnings, origin, key, message)

    def block_remote(self, origin: str | Path, key: KeyPath, message: str, agent_id: str = "") -> None:
        """Add a blocker, with a warning that says what it causes. What is a blocker already is not added again."""
        effect = "remote embeddings are disabled for every agent until this is corrected"
        warning = _printable(origin, dotted(key), f"{message}; {effect}")
        blocker = Blocker(_printable(origin, dotted(key)), agent_id, warning)
        if blocker not in self.blockers:
            self.blockers.append(blocker)
            self.warnings.append(warning)

    def raise_if_refused(self) -> None:
        """Raise a RefusedSettings that lists every problem, if there is one."""
        if self.problems:
            message = "\n".join(["the settings cannot be used:", *(f"  {p}" for p in self.problems)])
            raise RefusedSettings(message, tuple(self.blockers))


def _add(findings: list[str], origin: str | Path, key: KeyPath, message: str) -> None:
    shown = _printable(origin, dotted(key), message)
    if shown not in findings:
        findings.append(shown)


def _printable(*parts: str | Path) -> str:
    # What a file says goes to terminals and logs: no control character of its keys gets there.
    text = ": ".join(str(part) for part in parts if str(part))
    return "".join(c if c.isprintable() else c.encode("unicode_escape", "surrogatepass").decode() for c in text)


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


def read_layer(path: Path, report: Findings, *, required: bool) -> Mapping[str, Any]:
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


def _parsed(text: str, path: Path, report: Findings) -> Mapping[str, Any]:
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


def _encodable(value: dict[str, Any], path: Path, report: Findings) -> Mapping[str, Any]:
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


_PATHS = frozenset(
    {"workspace", "tokenFile", "certFile", "keyFile", "clientCaFile", "extensionPath", "modelCacheDir", "exportDir"}
)


def absolute(text: str, base: Path | None, home: Path) -> Path:
    """`text` with a leading `~` replaced by `home`, relative to `base`, without `.` and `..`.

    Without a base the working directory is meant.

    Raises:
        SettingsError: the working directory is needed and gone.
    """
    path = home / text[2:] if text.startswith("~/") else home if text == "~" else Path(text)
    if not path.is_absolute():
        path = (base or _working_directory()) / path
    return Path(os.path.normpath(path))


def anchored(value: Any, base: Path | None, home: Path, parent: str = "", key: str = "") -> Any:
    """A copy of a file's content in which the keys that hold paths hold absolute ones.

    Paths whose base is the workspace (`extraPaths`, those of QMD) stay as they are.
    """
    if isinstance(value, Mapping):
        return {name: anchored(inner, base, home, key, name) for name, inner in value.items()}
    if isinstance(value, list):
        return [anchored(item, base, home, parent, key) for item in value]
    if not isinstance(value, str) or not value.strip():
        return value
    return _anchored_text(value, base, home, parent, key)


def _anchored_text(text: str, base: Path | None, home: Path, parent: str, key: str) -> str:
    if key == "listen" and text.startswith("unix:") and text != "unix:":
        return f"unix:{absolute(text.removeprefix('unix:'), base, home)}"
    model_file = key == "modelPath" and not text.startswith(("hf:", "http:", "https:"))
    folder_of_entries = key == "dbPath" and "://" not in text
    if key in _PATHS or (parent, key) == ("store", "path") or model_file or folder_of_entries:
        return str(absolute(text.strip(), base, home))
    return text


def _working_directory() -> Path:
    try:
        return Path.cwd()
    except OSError as error:
        raise SettingsError(f"a relative path is given and the working directory is gone: {error}") from error


_REFERENCE = re.compile(r"\$(\$?)\{([A-Za-z_][A-Za-z0-9_]*)\}")


class UnsetVariable(Exception):
    """A value names a variable that is not set, or blank; the message says which, and where."""

    def __init__(self, where: str, name: str) -> None:
        super().__init__(f"{where} names the variable {name}, which is not set")


def filled(text: str, where: str, environ: Mapping[str, str]) -> str:
    """`text`, trimmed, with the values of the variables that it names. `where` is its key, for messages.

    Raises:
        UnsetVariable: one of them is not set.
    """

    def value(found: re.Match[str]) -> str:
        if found[1]:
            return found[0][1:]
        set_to = environ.get(found[2], "").strip()
        if not set_to:
            raise UnsetVariable(where, found[2])
        return set_to

    return _REFERENCE.sub(value, text).strip()
