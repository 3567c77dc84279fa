"""Qmd's folder, configuration, collections.

The folder that is qmd's home for one agent: its environment, its configuration, its models.

The collections that qmd indexes for one agent: their names, folders and patterns. Pure.
"""

import contextlib
import os
import posixpath
import re
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import yaml

from memoryd_server.model import Source
from memoryd_server.qmd.globs import matches
from memoryd_server.sources import Roots

# The names of the workspace's own memory and of exported transcripts.
MEMORY = "memory-root"
SESSIONS = "sessions"
_MEMORY_PATTERN = "{MEMORY.md,memory.md,memory/**/*.md}"
DEFAULT_PATTERN = "**/*.md"
_SUFFIX = ".md"
_OUTSIDE_NAMES = re.compile(r"[^a-z0-9]+")
_ESCAPED = re.compile(r"\\.", re.DOTALL)
_GLOB = re.compile(r"([*?\[\]{}()!\\,])")


@dataclass(frozen=True, slots=True)
class Collection:
    """What qmd indexes under one name: the files of the absolute folder `root` that match the glob `pattern`.

    `builtin` tells whether the builtin engine indexes them, too.
    """

    name: str
    root: str
    pattern: str = DEFAULT_PATTERN
    source: Source = Source.MEMORY
    builtin: bool = False

    @property
    def is_one_file(self) -> bool:
        """Whether the pattern names one file."""
        return _GLOB.search(_ESCAPED.sub("", self.pattern)) is None

    def may_hold(self, path: str) -> bool:
        """Whether `path`, relative to the root, is in its plain form and one that the pattern matches.

        qmd looks into no folder and at no file whose name begins with a dot.
        """
        parts = path.split("/")
        plain = "\0" not in path and not any(part in {"", ".."} or part.startswith(".") for part in parts)
        return plain and matches(self.pattern, path)


@dataclass(frozen=True, slots=True)
class ConfiguredPath:
    """A folder or Markdown file that the settings name; empty texts are not set."""

    path: str
    pattern: str = DEFAULT_PATTERN
    name: str = ""


def collections_of(
    roots: Roots, paths: Sequence[ConfiguredPath], *, default_memory: bool, sessions_folder: str | None
) -> tuple[Collection, ...]:
    """The workspace's memory and the extra paths, what is configured besides, and exported transcripts.

    Relative paths count from the workspace. What is configured twice is there once.
    """
    wanted: list[Collection] = []
    if default_memory:
        wanted.append(Collection(MEMORY, roots.base(), _MEMORY_PATTERN, builtin=True))
        wanted += [
            Collection(f"extra-{number}", *_folder_and_pattern(extra, DEFAULT_PATTERN), builtin=True)
            for number, extra in enumerate(roots.extras(), 1)
        ]
    if sessions_folder is not None:
        wanted.append(Collection(SESSIONS, sessions_folder, source=Source.SESSIONS))
    for number, path in enumerate(paths, 1):
        absolute = posixpath.normpath(posixpath.join(roots.base(), path.path.strip()))
        name = path.name.strip() or f"custom-{number}"
        wanted.append(Collection(name, *_folder_and_pattern(absolute, path.pattern.strip() or DEFAULT_PATTERN)))
    return tuple(_named(wanted))


def _named(wanted: Sequence[Collection]) -> Iterator[Collection]:
    seen: set[tuple[str, str]] = set()
    names: set[str] = set()
    for collection in wanted:
        if (collection.root, collection.pattern) not in seen:
            seen.add((collection.root, collection.pattern))
            names.add(free := _free_name(collection.name, names))
            yield replace(collection, name=free)


def _free_name(name: str, taken: set[str]) -> str:
    plain = _OUTSIDE_NAMES.sub("-", name.lower()).strip("-") or "collection"
    numbered = (f"{plain}-{number}" for number in range(2, len(taken) + 3))
    return plain if plain not in taken else next(each for each in numbered if each not in taken)


def _folder_and_pattern(absolute: str, pattern: str) -> tuple[str, str]:
    """A path that ends like a Markdown file means that file alone."""
    if not absolute.endswith(_SUFFIX):
        return absolute, pattern
    return posixpath.dirname(absolute), _GLOB.sub(r"\\\1", posixpath.basename(absolute))


# Where Hugging Face's models lie below a cache folder.
_MODELS = Path("qmd") / "models"
# Variables that name the models, and their keys in the configuration, which would win over them.
_MODEL_VARIABLES: Mapping[str, str] = {
    "QMD_EMBED_MODEL": "embed",
    "QMD_GENERATE_MODEL": "generate",
    "QMD_RERANK_MODEL": "rerank",
}


class QmdHome:
    """qmd's home. The names of its folders are those that users know, to warm or look at it by hand."""

    def __init__(self, folder: Path, collections: Sequence[Collection], environment: Mapping[str, str]) -> None:
        self.folder = folder
        self._collections = tuple(collections)
        self._given = dict(environment)
        self.config_home = folder / "xdg-config"
        self.cache_home = folder / "xdg-cache"
        self.index_yml = self.config_home / "qmd" / "index.yml"
        self.index = self.cache_home / "qmd" / "index.sqlite"

    @property
    def environment(self) -> dict[str, str]:
        """The variables of a process: what was given, and where its files are.

        `CI` must not be among what was given: it would switch the models off.
        """
        return {
            "PATH": os.defpath,
            **{name: value for name, value in self._given.items() if name not in _MODEL_VARIABLES},
            "XDG_CONFIG_HOME": str(self.config_home),
            "QMD_CONFIG_DIR": str(self.index_yml.parent),
            "XDG_CACHE_HOME": str(self.cache_home),
            "NO_COLOR": "1",
            # Relative paths count from here, whatever the working directory is.
            "PWD": str(self.folder),
        }

    def prepare(self) -> bool:
        """Makes the folders and writes the configuration where it differs; whether it did.

        Raises:
            OSError: the state directory cannot be written.
        """
        for folder in (self.folder, self.index_yml.parent, self.cache_home / "qmd"):
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        for collection in self._collections:
            # A folder that is not there yet would be no collection; those of the workspace are their owner's.
            if Path(collection.root).is_relative_to(self.folder):
                Path(collection.root).mkdir(parents=True, exist_ok=True, mode=0o700)
        self._link_models()
        return self._write_configuration()

    def models(self) -> dict[str, str]:
        """The configured models by their use: `embed`, `generate`, `rerank`; those that qmd chooses are not there."""
        named = self._known().get("models")
        models = dict(named) if isinstance(named, dict) else {}
        models.update({key: self._given[name] for name, key in _MODEL_VARIABLES.items() if self._given.get(name)})
        return {key: value for key, value in models.items() if isinstance(value, str)}

    def model_folders(self) -> tuple[Path, ...]:
        """Where fetched models may be: ours, and the user's own, which ours may lead to."""
        return self.cache_home / _MODELS, self._users_cache / _MODELS

    @property
    def _users_cache(self) -> Path:
        return Path(self._given.get("XDG_CACHE_HOME", "") or Path(self._given.get("HOME", "")) / ".cache")

    def _write_configuration(self) -> bool:
        """What qmd itself has written besides stays; the commands that it could run for a collection do not."""
        known = self._known()
        wanted = {**known, "collections": {c.name: {"path": c.root, "pattern": c.pattern} for c in self._collections}}
        models = self.models()
        if models:
            wanted["models"] = models
        if wanted == known:
            return False
        _replace(self.index_yml, yaml.safe_dump(wanted, allow_unicode=True, sort_keys=False))
        return True

    def _known(self) -> dict[str, Any]:
        try:
            known = yaml.safe_load(self.index_yml.read_text("utf-8"))
        except (OSError, ValueError, yaml.YAMLError):
            return {}
        return known if isinstance(known, dict) else {}

    def _link_models(self) -> None:
        """Lets qmd find the models that its user has already: they are large. Failing costs a download, no more."""
        ours, theirs = self.model_folders()
        with contextlib.suppress(OSError):
            if theirs.is_absolute() and theirs.is_dir() and not ours.exists() and not ours.is_symlink():
                ours.symlink_to(theirs, target_is_directory=True)


def _replace(path: Path, text: str) -> None:
    """Writes a file so that whoever reads it meanwhile sees the old text or the new."""
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
