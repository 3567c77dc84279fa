"""The layers of the settings: files, variables and flags, merged into one tree, and what is found while they are read.

`SettingsTree` remembers the origin of each key. `read_layer` reads a file.
`make_paths_absolute` makes the paths in them absolute. `substitute_variables` replaces `${NAME}` in a value by the
variable; `$${NAME}` is the literal text. `Findings` collects problems, warnings and blockers, each with its file and
key.
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
from memoryd_server.foreign_text import is_nested_deeper, valid_tree
from memoryd_server.settings.rules import KeyPath, dotted, kind_of

DEFAULT = "default"

# The value of a later layer replaces these as a whole, because a part of a scope, of the headers or of a SecretRef is
# meaningless.
_WHOLE = frozenset({"scope", "headers", "apiKey"})


def is_whole(path: KeyPath) -> bool:
    """Return whether a later value of the key replaces the object at `path` instead of being merged into it."""
    # An agent may have any id.
    return path[-1] in _WHOLE and path[:-1] != ("agents", "entries")


class SettingsTree:
    """The settings as written, with later layers over earlier ones. Objects are merged key by key, arrays are replaced.

    `replaced` has the path, the origin and the value of each non-object that a later layer replaced by an object.
    """

    def __init__(self) -> None:
        self.values: dict[str, Any] = {}
        self.replaced: list[tuple[KeyPath, str, object]] = []
        self._origins: dict[KeyPath, str] = {}
        self._ranks: dict[KeyPath, int] = {}
        self._rank = 0

    def overlay(self, layer: Mapping[str, Any], origin: str, rank: int | None = None) -> None:
        """Merge a layer into the tree. A null removes the key of earlier layers.

        `rank` is the precedence of the file of the layer, by default one more than that of the layer before.
        """
        self._rank = self._rank + 1 if rank is None else rank
        self._merge(self.values, layer, (), origin)

    def at(self, *path: str) -> Any:
        """Return the value at a path; None if there is none."""
        value: Any = self.values
        for key in path:
            value = value.get(key) if isinstance(value, dict) else None
        return value

    def exact_origin(self, path: KeyPath) -> str | None:
        """Return the origin of exactly this key, or of the array or object that includes it; None if not set."""
        return self._origins.get(path)

    def origin(self, path: KeyPath) -> str:
        """Return the origin of the key, or of the closest object above it."""
        return next((self._origins[path[:n]] for n in range(len(path), 0, -1) if path[:n] in self._origins), DEFAULT)

    def rank(self, path: KeyPath) -> int:
        """Return the rank of the layer that set exactly this key; -1 if it is not set."""
        return self._ranks.get(path, -1)

    def remove(self, path: KeyPath) -> None:
        """Remove a key with its origin."""
        parent = self.at(*path[:-1])
        if isinstance(parent, dict):
            parent.pop(path[-1], None)
        self._forget(path)

    def _merge(self, into: dict[str, Any], layer: Mapping[str, Any], path: KeyPath, origin: str) -> None:
        for key, value in layer.items():
            here = (*path, key)
            old = into.get(key)
            keep = isinstance(old, dict) and isinstance(value, Mapping) and not is_whole(here)
            if key in into and isinstance(value, Mapping) and not isinstance(old, dict):
                self.replaced.append((here, self._origins[here], old))
            if not keep and key in into:
                self._forget(here)
                del into[key]
            if value is None:
                continue
            self._origins[here], self._ranks[here] = origin, self._rank
            if isinstance(value, Mapping):
                self._merge(into.setdefault(key, {}), value, here, origin)
            else:
                into[key] = value

    def _forget(self, path: KeyPath) -> None:
        for known in [p for p in self._origins if p[: len(path)] == path]:
            del self._origins[known], self._ranks[known]


def merge(low: Mapping[str, Any], high: Mapping[str, Any]) -> dict[str, Any]:
    """Return `high` merged over `low`, as `SettingsTree.overlay` does. Neither is changed."""
    tree = SettingsTree()
    tree.overlay(low, "low")
    tree.overlay(high, "high")
    return tree.values


_ABOUT_PROVIDERS = frozenset({"memory", "agents", "models", "plugins"})
_RERANK = ("memoryd", "rerank")


def is_about_providers(path: KeyPath) -> bool:
    """Return whether a key determines which providers are used, or what is sent to them."""
    return bool(_ABOUT_PROVIDERS.intersection(path[:1])) or path[: len(_RERANK)] == _RERANK


@dataclass(frozen=True, slots=True)
class Blocker:
    """A setting that memoryd does not understand and that may restrict what is sent to embedding providers.

    While there is one, no agent uses a provider that is reached over HTTP. `where` names the file and the key.
    `agent_id` is the agent that the setting belongs to, empty for a setting that agents share. `warning` describes the
    problem and its effect.
    """

    where: str
    agent_id: str = ""
    warning: str = field(default="", compare=False)

    def visible_to(self, agent_id: str) -> str:
        """Return `where` for the callers of an agent.

        The keys of another agent are hidden, because they contain its id.
        """
        return self.where if self.agent_id in ("", agent_id) else "a setting of another agent"


class RefusedSettings(SettingsError):
    """Settings that cannot be used.

    A daemon that keeps the earlier settings has to respect the `blockers` of the refused ones.
    """

    def __init__(self, message: str, blockers: tuple[Blocker, ...] = ()) -> None:
        super().__init__(message)
        self.blockers = blockers


@dataclass(frozen=True, slots=True)
class KeyPlace:
    """The place of a provider's key: its file, and its path in the file; an empty path means the whole file."""

    origin: str
    key: KeyPath


@dataclass(slots=True)
class Findings:
    """Problems, for which the settings are refused; warnings; and blockers, which are warnings too.

    A key is its path in the file; an empty path means the whole file, or that there is no file.
    """

    problems: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    blockers: list[Blocker] = field(default_factory=list)

    def problem(self, origin: str | Path, key: KeyPath, message: str, agent_id: str = "") -> None:
        """Add a problem. If the key is in a block that determines the providers, it is also a blocker."""
        _add(self.problems, origin, key, message)
        if is_about_providers(key):
            self.block_remote(origin, key, message, agent_id)

    def unreadable(self, file: str | Path, message: str) -> None:
        """Add a file that cannot be read as a problem, and as a blocker, because its restrictions are unknown."""
        _add(self.problems, file, (), message)
        self.block_remote(file, (), message)

    def warn(self, origin: str | Path, key: KeyPath, message: str) -> None:
        """Add a warning."""
        _add(self.warnings, origin, key, message)

    def block_remote(self, origin: str | Path, key: KeyPath, message: str, agent_id: str = "") -> None:
        """Add a blocker, with a warning that states its effect, unless the blocker is already known."""
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
    # Messages go to terminals and logs, so control characters in keys are escaped.
    text = ": ".join(str(part) for part in parts if str(part))
    return "".join(c if c.isprintable() else c.encode("unicode_escape", "surrogatepass").decode() for c in text)


OPENCLAW_FILE = "openclaw.json"
OWN_FILE = "memoryd.json5"

_POSITION = re.compile(r"<string>:(\d+) (.*) at column (\d+)", re.DOTALL)
DEEPEST = 100
"""The maximum nesting of objects and arrays in a file."""


def read_layer(path: Path, report: Findings, *, required: bool) -> Mapping[str, Any]:
    """Return the object in a JSON5 file; empty if the file is missing and not required, or has a problem.

    A symbolic link without a target is a problem: the settings are in a file that is not available.
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
    value = parse_document(text, path, report)
    if value is not None and not isinstance(value, dict):
        report.unreadable(path, f"expected an object, found {kind_of(value)}")
    return value if isinstance(value, dict) else {}


def parse_document(text: str, path: Path, report: Findings) -> Any:
    """Return the value of a JSON or JSON5 text, with valid strings; None if it has a problem."""
    try:
        value = _load(text)
    except RecursionError:
        report.unreadable(path, "nested too deeply")
    except ValueError as error:
        report.unreadable(*_where(path, error))
    else:
        if is_nested_deeper(value, DEEPEST):
            report.unreadable(path, "nested too deeply")
        elif value is None:
            report.unreadable(path, f"expected an object, found {kind_of(value)}")
        else:
            return _without_surrogates(value, path, report)
    return None


def _without_surrogates(value: Any, path: Path, report: Findings) -> Any:
    valid = valid_tree(value)
    if valid != value:
        report.warn(path, (), "lone surrogates such as \\ud800 are not text; each of them is read as U+FFFD")
    return valid


def _load(text: str) -> Any:
    try:
        # Twenty times as fast as json5, and most files of OpenClaw are plain JSON.
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
    """Return whether there is a file or folder at `path`; False if the path cannot be checked."""
    try:
        return path.exists()
    except (OSError, ValueError):
        return False


_PATHS = frozenset(
    {
        *("workspace", "agentDir", "tokenFile", "certFile", "keyFile", "clientCaFile"),
        *("extensionPath", "modelCacheDir", "exportDir"),
    }
)


def absolute(text: str, base: Path | None, home: Path) -> Path:
    """Return `text` as an absolute path, relative to `base`, without `.` and `..`; a leading `~` is `home`.

    Without `base`, the path is relative to the working directory.

    Raises:
        SettingsError: the working directory is needed, but has been removed.
    """
    path = home / text[2:] if text.startswith("~/") else home if text == "~" else Path(text)
    if not path.is_absolute():
        path = (base or _working_directory()) / path
    return Path(os.path.normpath(path))


def make_paths_absolute(value: Any, base: Path | None, home: Path, parent: str = "", key: str = "") -> Any:
    """Return a copy of a layer with absolute paths in the keys that hold paths.

    Paths that are relative to the workspace (`extraPaths` and those of QMD) are not changed.
    """
    if isinstance(value, Mapping):
        return {name: make_paths_absolute(inner, base, home, key, name) for name, inner in value.items()}
    if isinstance(value, list):
        return [make_paths_absolute(item, base, home, parent, key) for item in value]
    if not isinstance(value, str) or not value.strip():
        return value
    return _absolute_text(value, base, home, parent, key)


def _absolute_text(text: str, base: Path | None, home: Path, parent: str, key: str) -> str:
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
        raise SettingsError(
            f"a relative path cannot be resolved, because the working directory was removed: {error}"
        ) from error


_REFERENCE = re.compile(r"\$(\$?)\{([A-Za-z_][A-Za-z0-9_]*)\}")
_UPPER_CASE = re.compile(r"\$(\$?)\{([A-Z_][A-Z0-9_]*)\}")


class UnsetVariable(Exception):
    """A value names a variable that is unset or blank. The message names the key and the variable."""

    def __init__(self, where: str, name: str) -> None:
        super().__init__(f"{where} names the variable {name}, which is not set")


def substitute_variables(text: str, where: str, environ: Mapping[str, str], *, lower_case: bool = True) -> str:
    """Return `text`, trimmed, with each `${NAME}` replaced by the variable. `where` names the key in messages.

    Without `lower_case`, a name with a lower-case letter is text.

    Raises:
        UnsetVariable: one of the variables is not set.
    """

    def value(found: re.Match[str]) -> str:
        if found[1]:
            return found[0][1:]
        set_to = environ.get(found[2], "").strip()
        if not set_to:
            raise UnsetVariable(where, found[2])
        return set_to

    filled = _REFERENCE.sub(value, text) if lower_case else _UPPER_CASE.sub(value, text)
    return filled.strip()
