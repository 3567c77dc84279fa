"""Makes the paths in settings absolute, while it is still known which file they stand in."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from memoryd_server.errors import SettingsError

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
