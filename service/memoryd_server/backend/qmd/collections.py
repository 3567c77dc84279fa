"""The collections that qmd indexes for one agent: their names, folders and patterns. Pure."""

import posixpath
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from memoryd_server.backend.qmd.globs import matches
from memoryd_server.model import Source
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
