"""The settings file that `memoryd init` writes."""

import json
import os
import tempfile
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from memoryd_server.errors import SettingsError
from memoryd_server.system import sync_folder

# Hidden folders are left out, because a wildcard does not match a name that begins with a dot.
_ALL_FILES = "**/*.md"


@dataclass(frozen=True, slots=True)
class InitialSettings:
    """What to write. Of None and empty values, nothing is written.

    `workspace` is the folder of the notes, and with `all_files` all its Markdown files are indexed. `provider` and
    `model` are those of embeddings; for `local`, the model is a path or an `hf:` address. If `older`, the keys are
    those of OpenClaw's older layout.
    """

    workspace: Path | None = None
    all_files: bool = False
    provider: str = ""
    model: str = ""
    older: bool = False

    def text(self) -> str:
        """Return the text of the settings file, in JSON5."""
        search = []
        if self.all_files:
            search.append(f'extraPaths: [{{ path: ".", pattern: "{_ALL_FILES}" }}],   // relative to the workspace')
        if self.provider:
            search.append(f"provider: {_quoted(self.provider)},")
        if self.model and self.provider == "local":
            search.append(f"local: {{ modelPath: {_quoted(self.model)} }},")
        elif self.model:
            search.append(f"model: {_quoted(self.model)},")
        block = "\n".join(f"      {line}" for line in search)
        defaults = [] if self.workspace is None else [f"workspace: {_quoted(str(self.workspace))},"]
        if self.older and search:
            defaults.append(f"memorySearch: {{\n{block}\n    }},")
        lines = ["// Written by `memoryd init`. docs/configuration.md describes every key.", "{"]
        if defaults:
            lines.append("  agents: { defaults: {\n    " + "\n    ".join(defaults) + "\n  } },")
        if search and not self.older:
            lines.append(f"  memory: {{\n    search: {{\n{block}\n    }},\n  }},")
        return "\n".join([*lines, "}", ""])


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


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
    except OSError as error:
        raise SettingsError(f"cannot write {file}: {error.strerror}") from error


def keep_copy(file: Path, now: datetime) -> Path:
    """Copy a settings file to a new file next to it, and return the path of the copy.

    Raises:
        SettingsError: the file cannot be copied.
    """
    copy = file.with_name(f"{file.name}.{now:%Y%m%d-%H%M%S}.bak")
    try:
        write_settings(copy, file.read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise SettingsError(f"cannot copy {file}: {error}") from error
    return copy
