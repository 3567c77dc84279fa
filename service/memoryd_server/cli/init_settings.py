"""The settings file that `memoryd init` writes."""

import json
import os
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import json5

from memoryd_server.errors import SettingsError
from memoryd_server.system import sync_folder

ALL_FILES = "**/*.md"
"""The pattern of all Markdown files of a folder. A wildcard does not match a hidden folder."""

_RECALL_COMMENT = """\
// memoryd.recall.includeUntrusted: recall also returns files of extraPaths, and messages of other people in session
// transcripts that are indexed. Set it to false if other people or programs write to the files.
"""


@dataclass(frozen=True, slots=True)
class InitialSettings:
    """What to write. Of None and empty values, nothing is written.

    `workspace` is the folder of the notes. `extra_paths` are paths with their patterns, and replace those of an
    existing file. `provider` and `model` are those of embeddings; for `local`, the model is a path or an `hf:` address.
    If `older`, the keys are those of OpenClaw's older layout. With `include_untrusted`, recall also returns text whose
    origin is untrusted, such as files of extra paths.
    """

    workspace: Path | None = None
    extra_paths: Sequence[tuple[str, str]] = ()
    provider: str = ""
    model: str = ""
    older: bool = False
    include_untrusted: bool = False

    def text(self, previous: Mapping[str, Any] | None = None) -> str:
        """Return the text of the settings file, in JSON5.

        `previous` are the values of an existing file, which are kept unless they are set again.

        Raises:
            SettingsError: a path is not valid UTF-8.
        """
        values: dict[str, Any] = {} if previous is None else json.loads(json.dumps(previous))
        if self.workspace is not None:
            _table(values, "agents", "defaults")["workspace"] = _literal(_utf8(self.workspace))
        search_path = ("agents", "defaults", "memorySearch") if self.older else ("memory", "search")
        if self.provider and self.provider != _table(values, *search_path).get("provider"):
            # The model of another provider.
            _table(values, *search_path).pop("model", None)
        for path, value in self._search().items():
            _table(values, *search_path, *path[:-1])[path[-1]] = value
        if self.include_untrusted:
            _table(values, "memoryd", "recall")["includeUntrusted"] = True
        comments = "// Written by `memoryd init`. docs/configuration.md describes every key.\n"
        if includes_untrusted(values):
            comments += _RECALL_COMMENT
        return comments + json.dumps(values, ensure_ascii=False, indent=2) + "\n"

    def _search(self) -> dict[tuple[str, ...], Any]:
        """Return the values to set, by their path below the block of memory search."""
        changes: dict[tuple[str, ...], Any] = {}
        if self.extra_paths:
            changes["extraPaths",] = [
                {"path": _literal(path), **({"pattern": pattern} if pattern else {})}
                for path, pattern in self.extra_paths
            ]
        if self.provider:
            changes["provider",] = self.provider
        if self.model and self.provider == "local":
            changes["local", "modelPath"] = _literal(self.model)
        elif self.model:
            changes["model",] = _literal(self.model)
        return changes


def _table(values: dict[str, Any], *path: str) -> dict[str, Any]:
    for key in path:
        inner = values.get(key)
        if not isinstance(inner, dict):
            inner = values[key] = {}
        values = inner
    return values


def _literal(text: str) -> str:
    """Return a text in which no variable is replaced when the settings are read."""
    return text.replace("${", "$${")


def _utf8(path: Path) -> str:
    try:
        # With another encoding of file names, the text of a path is not the one on the disk.
        return os.fsencode(path).decode("utf-8")
    except UnicodeError as error:
        raise SettingsError(f"the name of the folder {os.fsencode(path)!r} is not UTF-8; rename it") from error


def uses_older_layout(values: Mapping[str, Any] | None) -> bool:
    """Return whether the values of a settings file configure memory search in OpenClaw's older layout."""
    agents = (values or {}).get("agents")
    defaults = agents.get("defaults") if isinstance(agents, dict) else None
    return isinstance(defaults, dict) and "memorySearch" in defaults


def includes_untrusted(values: Mapping[str, Any] | None) -> bool | None:
    """Return the value of `memoryd.recall.includeUntrusted` in the values of a settings file; None if it is not set."""
    block = (values or {}).get("memoryd")
    recall = block.get("recall") if isinstance(block, dict) else None
    value = recall.get("includeUntrusted") if isinstance(recall, dict) else None
    return value if value is None else bool(value)


def read_settings(file: Path) -> dict[str, Any] | None:
    """Return the values of a settings file; None if it does not exist or cannot be parsed."""
    try:
        values = json5.loads(file.read_text("utf-8"))
    except (OSError, ValueError, RecursionError):
        return None
    return values if isinstance(values, dict) else None


def write_settings(file: Path, text: str) -> None:
    """Write a settings file that only its owner can read, and replace an existing one in one step.

    Raises:
        SettingsError: the file cannot be written.
    """
    try:
        file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        descriptor, temporary = tempfile.mkstemp(prefix=f".{file.name}.", dir=file.parent)
        try:
            with os.fdopen(descriptor, "w", encoding="utf-8") as opened:
                opened.write(text)
                opened.flush()
                os.fsync(opened.fileno())
            Path(temporary).replace(file)
        except BaseException:
            with suppress(OSError):
                Path(temporary).unlink()
            raise
        sync_folder(file.parent)
    except (OSError, UnicodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise SettingsError(f"cannot write {file}: {reason}") from error


def keep_copy(file: Path, now: datetime) -> Path:
    """Copy a settings file to a new file next to it, and return the path of the copy.

    Raises:
        SettingsError: the file cannot be copied.
    """
    name, number = f"{file.name}.{now:%Y%m%d-%H%M%S}", 1
    try:
        content = file.read_bytes()
        while True:
            copy = file.with_name(f"{name}.bak" if number == 1 else f"{name}-{number}.bak")
            try:
                descriptor = os.open(copy, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
            except FileExistsError:
                number += 1
                continue
            with os.fdopen(descriptor, "wb") as opened:
                opened.write(content)
            return copy
    except OSError as error:
        raise SettingsError(f"cannot copy {file}: {error.strerror}") from error
