"""The home of qmd for one agent: `QmdHome` is its folder, environment and configuration.

The configuration lists collections: a `Collection` is the files of a folder that match a glob (`matches`).
"""

import contextlib
import os
import posixpath
import re
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import yaml

from memoryd_server.model import Source
from memoryd_server.sources import Roots

# The names of the collections of the workspace's memory and of exported transcripts.
MEMORY = "memory-root"
SESSIONS = "sessions"
_MEMORY_PATTERN = "{MEMORY.md,memory.md,USER.md,memory/**/*.md}"
DEFAULT_PATTERN = "**/*.md"
_SUFFIX = ".md"
_NOT_IN_NAMES = re.compile(r"[^a-z0-9]+")
_ESCAPED = re.compile(r"\\.", re.DOTALL)
_GLOB = re.compile(r"([*?\[\]{}()!\\,])")
_MORE_THAN_GLOB = re.compile(r"[!@+?*]\(")
_LONGEST_CLASS = 256
_PIECE = re.compile(rf"\*\*/|\*\*|\\.|\[[^\]]{{1,{_LONGEST_CLASS}}}\]|.", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Collection:
    """The files of the absolute folder `root` that match the glob `pattern`, which qmd indexes under `name`.

    `builtin` is whether the builtin engine indexes them as well.
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

    def may_contain(self, path: str) -> bool:
        """Return whether `path`, relative to the root, is normalized and matches the pattern.

        qmd ignores files and folders whose name begins with a dot.
        """
        parts = path.split("/")
        is_normalized = "\0" not in path and not any(part in {"", ".."} or part.startswith(".") for part in parts)
        return is_normalized and matches(self.pattern, path)


@dataclass(frozen=True, slots=True)
class ConfiguredPath:
    """A folder or Markdown file in the settings. An empty string is an unset field."""

    path: str
    pattern: str = DEFAULT_PATTERN
    name: str = ""


def collections_of(
    roots: Roots, paths: Sequence[ConfiguredPath], *, default_memory: bool, sessions_folder: str | None
) -> tuple[Collection, ...]:
    """Return the collections of the workspace's memory, the extra paths, exported transcripts and `paths`.

    Relative paths are relative to the workspace. Duplicates are removed. A folder with several patterns is in several
    collections.
    """
    collections: list[Collection] = []
    if default_memory:
        collections.append(Collection(MEMORY, roots.base(), _MEMORY_PATTERN, builtin=True))
        collections += [
            Collection(f"extra-{number}", *_folder_and_pattern(extra, pattern), builtin=True)
            for number, extra in enumerate(roots.extras(), 1)
            for pattern in [glob.text.replace("\\", "/") for glob in roots.patterns(extra)] or [DEFAULT_PATTERN]
        ]
    if sessions_folder is not None:
        collections.append(Collection(SESSIONS, sessions_folder, source=Source.SESSIONS))
    for number, path in enumerate(paths, 1):
        absolute = posixpath.normpath(posixpath.join(roots.base(), path.path.strip()))
        name = path.name.strip() or f"custom-{number}"
        collections.append(Collection(name, *_folder_and_pattern(absolute, path.pattern.strip() or DEFAULT_PATTERN)))
    return tuple(_with_unique_names(collections))


def _with_unique_names(collections: Sequence[Collection]) -> Iterator[Collection]:
    seen: set[tuple[str, str]] = set()
    names: set[str] = set()
    for collection in collections:
        if (collection.root, collection.pattern) not in seen:
            seen.add((collection.root, collection.pattern))
            names.add(unique := _unique_name(collection.name, names))
            yield replace(collection, name=unique)


def _unique_name(name: str, taken: set[str]) -> str:
    plain = _NOT_IN_NAMES.sub("-", name.lower()).strip("-") or "collection"
    numbered = (f"{plain}-{number}" for number in range(2, len(taken) + 3))
    return plain if plain not in taken else next(each for each in numbered if each not in taken)


def _folder_and_pattern(absolute: str, pattern: str) -> tuple[str, str]:
    """Return the folder and pattern of a path; the pattern of a path that ends in `.md` matches only that file."""
    if not absolute.endswith(_SUFFIX):
        return absolute, pattern
    return posixpath.dirname(absolute), _GLOB.sub(r"\\\1", posixpath.basename(absolute))


_CharacterTest = Callable[[str], object]


def matches(pattern: str, path: str) -> bool:
    """Return whether a glob matches a whole path.

    A glob may contain `*`, `?`, `**`, `[...]`, `{a,b}`, and commas between globs. Any other extended form matches every
    Markdown file. Takes time in proportion to the path times the glob.
    """
    if _MORE_THAN_GLOB.search(pattern):
        return path.endswith(_SUFFIX)
    return _compiled_glob(pattern).accepts(path)


@dataclass(slots=True)
class _GlobAutomaton:
    """States by number, with their steps: `free` without a character, `steps` by one that passes a test.

    The states are followed in parallel. A regular expression would backtrack between the stars of a glob, and anyone
    who can name a file writes the paths.
    """

    free: list[list[int]] = field(default_factory=list)
    steps: list[list[tuple[_CharacterTest, int]]] = field(default_factory=list)
    last: int = 0

    def state(self) -> int:
        """Add a state."""
        self.free.append([])
        self.steps.append([])
        return len(self.free) - 1

    def accepts(self, text: str) -> bool:
        """Return whether the whole text leads from state 0 to `last`."""
        states = self._reached([0])
        # The steps that this text has taken: a text usually takes few different ones.
        taken: dict[tuple[frozenset[int], str], frozenset[int]] = {}
        for character in text:
            step = states, character
            if step not in taken:
                taken[step] = self._reached([to for at in states for test, to in self.steps[at] if test(character)])
            states = taken[step]
            if not states:
                return False
        return self.last in states

    def _reached(self, states: list[int]) -> frozenset[int]:
        reached = set(states)
        while states:
            following = [to for to in self.free[states.pop()] if to not in reached]
            reached.update(following)
            states += following
        return frozenset(reached)


@lru_cache(maxsize=256)
def _compiled_glob(pattern: str) -> _GlobAutomaton:
    automaton = _GlobAutomaton()
    at, end = automaton.state(), automaton.state()
    # The first and last state of the whole glob, then of each open brace.
    groups = [(at, end)]
    for piece in _PIECE.findall(pattern):
        if piece == "{":
            groups.append((at, automaton.state()))
        elif piece == ",":
            # A comma between whole globs means the same as one in braces.
            automaton.free[at].append(groups[-1][1])
            at = groups[-1][0]
        elif piece == "}" and len(groups) > 1:
            automaton.free[at].append(groups[-1][1])
            at = groups.pop()[1]
            continue
        following = automaton.state()
        if piece in {"{", ","}:
            automaton.free[at].append(following)
        else:
            _add_piece(automaton, piece, at, following)
        at = following
    # A brace that is left open ends with the glob.
    for _, last in reversed(groups):
        automaton.free[at].append(last)
        at = last
    automaton.last = end
    return automaton


def _add_piece(automaton: _GlobAutomaton, piece: str, at: int, to: int) -> None:
    """Add the steps of one piece from `at` to `to`, a new state."""
    if piece == "**/":
        inside = automaton.state()
        automaton.free[at].append(to)
        automaton.steps[to].append((_no_slash, inside))
        automaton.steps[inside] += [(_no_slash, inside), ("/".__eq__, to)]
    elif piece in {"**", "*"}:
        automaton.free[at].append(to)
        automaton.steps[to].append((_any if piece == "**" else _no_slash, to))
    else:
        automaton.steps[at].append((_piece_test(piece), to))


def _piece_test(piece: str) -> _CharacterTest:
    if piece == "?":
        return _no_slash
    if piece.startswith("[") and len(piece) > 1:
        return _character_class(piece[1:-1].replace("\\", "\\\\"))
    return (piece[1:] if piece.startswith("\\") and len(piece) > 1 else piece).__eq__


def _character_class(inside: str) -> _CharacterTest:
    try:
        return re.compile(f"[^{inside[1:]}]" if inside.startswith("!") else f"[{inside}]").match
    except re.error:
        # A reversed range contains no character.
        return lambda _: False


def _any(_: str) -> bool:
    return True


def _no_slash(character: str) -> bool:
    return character != "/"


# The folder of fetched models below a cache folder.
_MODELS = Path("qmd") / "models"
# Variables that name the models, and their keys in the configuration file, which takes precedence.
_MODEL_VARIABLES: Mapping[str, str] = {
    "QMD_EMBED_MODEL": "embed",
    "QMD_GENERATE_MODEL": "generate",
    "QMD_RERANK_MODEL": "rerank",
}


class QmdHome:
    """qmd's home. Its folders have the names that qmd's users know, so that they can inspect or fill it."""

    def __init__(self, folder: Path, collections: Sequence[Collection], environment: Mapping[str, str]) -> None:
        self.folder = folder
        self._collections = tuple(collections)
        self._environment = dict(environment)
        self.config_home = folder / "xdg-config"
        self.cache_home = folder / "xdg-cache"
        self.index_yml = self.config_home / "qmd" / "index.yml"
        self.index = self.cache_home / "qmd" / "index.sqlite"

    @property
    def environment(self) -> dict[str, str]:
        """The variables of a process: the configured ones, and the locations of its files.

        The configured variables must not include `CI`, which disables qmd's models.
        """
        return {
            "PATH": os.defpath,
            **{name: value for name, value in self._environment.items() if name not in _MODEL_VARIABLES},
            "XDG_CONFIG_HOME": str(self.config_home),
            "QMD_CONFIG_DIR": str(self.index_yml.parent),
            "XDG_CACHE_HOME": str(self.cache_home),
            "NO_COLOR": "1",
            # qmd resolves relative paths against PWD instead of the working directory.
            "PWD": str(self.folder),
        }

    def prepare(self) -> bool:
        """Create the folders, and write the configuration if it differs; return whether it did.

        Raises:
            OSError: the state directory cannot be written.
        """
        for folder in (self.folder, self.index_yml.parent, self.cache_home / "qmd"):
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        for collection in self._collections:
            # qmd ignores a collection whose folder is missing. Folders outside of the home are not created.
            if Path(collection.root).is_relative_to(self.folder):
                Path(collection.root).mkdir(parents=True, exist_ok=True, mode=0o700)
        self._link_models()
        return self._write_configuration()

    def models(self) -> dict[str, str]:
        """Return the configured models by use: `embed`, `generate`, `rerank`. Models that qmd selects are missing."""
        written = self._read_configuration().get("models")
        models = dict(written) if isinstance(written, dict) else {}
        variables = self._environment
        models.update({key: variables[name] for name, key in _MODEL_VARIABLES.items() if variables.get(name)})
        return {key: value for key, value in models.items() if isinstance(value, str)}

    def model_folders(self) -> tuple[Path, ...]:
        """Return the folders of fetched models: this home's, which may be a link to the user's, and the user's."""
        return self.cache_home / _MODELS, self._user_cache / _MODELS

    @property
    def _user_cache(self) -> Path:
        variables = self._environment
        return Path(variables.get("XDG_CACHE_HOME", "") or Path(variables.get("HOME", "")) / ".cache")

    def _write_configuration(self) -> bool:
        """Write the configuration. Keys that qmd has added are kept, except the commands of collections."""
        current = self._read_configuration()
        collections = {c.name: {"path": c.root, "pattern": c.pattern} for c in self._collections}
        configuration = {**current, "collections": collections}
        models = self.models()
        if models:
            configuration["models"] = models
        if configuration == current:
            return False
        _replace_file(self.index_yml, yaml.safe_dump(configuration, allow_unicode=True, sort_keys=False))
        return True

    def _read_configuration(self) -> dict[str, Any]:
        try:
            configuration = yaml.safe_load(self.index_yml.read_text("utf-8"))
        except (OSError, ValueError, RecursionError, yaml.YAMLError):
            return {}
        return configuration if isinstance(configuration, dict) else {}

    def _link_models(self) -> None:
        """Link the user's models, which are large, into this home. If this fails, qmd downloads the models."""
        own, users = self.model_folders()
        with contextlib.suppress(OSError):
            if users.is_absolute() and users.is_dir() and not own.exists() and not own.is_symlink():
                own.symlink_to(users, target_is_directory=True)


def _replace_file(path: Path, text: str) -> None:
    """Write a file atomically: concurrent readers see the old text or the new one."""
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
