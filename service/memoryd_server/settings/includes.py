"""`$include` in a settings file: the files that take the place of an object, with the origin of each key.

A file is included relative to the file that includes it. It has to be in the folder of the main file or in one of the
additional folders, as written and after links are resolved; it must be a regular file without further hard links, of at
most 2 MiB, and at most ten levels deep. An array of files is merged in order, and keys beside `$include` are merged
over the result: objects are merged deeply, arrays are concatenated.

The result is a tree of `Table`, `Array` and `Leaf`. An `$include` that fails becomes a leaf with a `FailedInclude`.
"""

import os
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from memoryd_server.foreign_text import is_nested_deeper
from memoryd_server.settings.layers import DEEPEST, Findings, parse_document
from memoryd_server.settings.rules import KeyPath, kind_of

INCLUDE = "$include"

# Sections of OpenClaw's settings that have no effect on memory; `$include` in them is not followed.
OTHER_SECTIONS = frozenset(
    {
        *("$schema", "accessGroups", "acp", "approvals", "attachments", "broadcast", "browser", "channels"),
        *("cloudWorkers", "commands", "cron", "desktop", "diagnostics", "discovery", "gateway", "hooks", "logging"),
        *("mcp", "messages", "meta", "nodeHost", "skills", "surfaces", "talk", "telemetry", "tools", "tts", "ui"),
        *("update", "wizard", "worktreeAcceleration", "worktreeRoot"),
    }
)

_MAX_FILE_BYTES = 2 * 2**20
_MAX_TOTAL_BYTES = 8 * 2**20
_MAX_FILES = 100
_MAX_LEVELS = 10
_MAX_PATH = 4096


@dataclass(frozen=True, slots=True)
class FailedInclude:
    """An `$include` whose files cannot be read, and the reason."""

    reason: str


@dataclass(frozen=True, slots=True)
class Leaf:
    """A value that is neither an object nor an array, or that memoryd does not read, with its file."""

    value: Any
    origin: str


@dataclass(frozen=True, slots=True)
class Array:
    """The items of an array, each with its file in `origins`, and the file of the array itself.

    `failed` is an `$include` in place of an item.
    """

    items: tuple["Node", ...]
    origins: tuple[str, ...]
    origin: str
    failed: Leaf | None = None


@dataclass(frozen=True, slots=True)
class Table:
    """The values of an object by key, with the file of the object itself."""

    values: dict[str, "Node"]
    origin: str

    def at(self, *path: str) -> "Node | None":
        """Return the value at a path; None if there is none."""
        node: Node | None = self
        for key in path:
            node = node.values.get(key) if isinstance(node, Table) else None
        return node


Node = Table | Array | Leaf


def resolve_includes(
    document: Mapping[str, Any], file: Path, roots: Iterable[Path], agents: KeyPath = ("agents", "list")
) -> Table:
    """Return the tree of the settings in `file`, with the included files in it.

    `roots` are the folders outside that of `file` from which files may be included. An item of the array at `agents`
    that is not an agent without its included file, because it has no id, is left out.
    """
    resolver = _Resolver(file, roots)
    found = resolver.node(document, _Place(file, (file,), ()))
    if isinstance(found, Table):
        root = found
    else:
        reason = f"{found.origin}: the settings must be an object"
        root = _failed(Table({}, str(file)), reason)
    parent, listed = root.at(*agents[:-1]), root.at(*agents)
    if isinstance(parent, Table) and isinstance(listed, Table) and INCLUDE in listed.values:
        parent.values.setdefault(INCLUDE, listed.values[INCLUDE])
        del parent.values[agents[-1]]
    return root


class _IncludeError(Exception):
    """A file cannot be included."""


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a value is: the file, that file after those that include it, and the path of the value in the settings."""

    file: Path
    chain: tuple[Path, ...]
    path: KeyPath

    def below(self, key: str) -> "_Place":
        return replace(self, path=(*self.path, key))


@dataclass(slots=True)
class _Resolver:
    main: Path
    allowed: Iterable[Path]
    roots: tuple[tuple[Path, Path], ...] = field(init=False)
    files: int = 0
    read_bytes: int = 0

    def __post_init__(self) -> None:
        self.roots = tuple((root, _real(root)) for root in (self.main.parent, *self.allowed))

    def node(self, value: Any, place: _Place) -> Node:
        if isinstance(value, list):
            return self._array(value, place)
        if not isinstance(value, dict):
            return Leaf(value, str(place.file))
        return self._table(value, place) if value.get(INCLUDE) is None else self._with_includes(value, place)

    def _with_includes(self, value: Mapping[str, Any], place: _Place) -> Node:
        beside = self._table({key: inner for key, inner in value.items() if key != INCLUDE}, place)
        try:
            included = self._included(value[INCLUDE], place)
        except _IncludeError as error:
            return _failed(beside, str(error))
        if not beside.values:
            return included
        if not isinstance(included, Table):
            return _failed(beside, "the included file must be an object, because there are keys beside $include")
        return merge_nodes(included, beside)

    def _table(self, value: Mapping[str, Any], place: _Place) -> Table:
        values: dict[str, Node] = {}
        for key, inner in value.items():
            is_read = bool(place.path) or key not in OTHER_SECTIONS
            values[key] = self.node(inner, place.below(key)) if is_read else Leaf(inner, str(place.file))
        for node in tuple(values.values()):
            if isinstance(node, Array) and node.failed:
                values.setdefault(INCLUDE, node.failed)
        return Table(values, str(place.file))

    def _array(self, items: list[Any], place: _Place) -> Array:
        kept: list[Node] = []
        failed: Leaf | None = None
        for number, item in enumerate(items):
            node = self.node(item, place.below(f"[{number}]"))
            inner = node.values.get(INCLUDE) if isinstance(node, Table) else None
            if isinstance(inner, Leaf) and isinstance(inner.value, FailedInclude) and "id" not in item:
                failed = inner
                continue
            if isinstance(node, Array):
                failed = node.failed or failed
            kept.append(node)
        return Array(tuple(kept), tuple(node.origin for node in kept), str(place.file), failed)

    def _included(self, named: object, place: _Place) -> Node:
        if isinstance(named, str):
            return self._file(named, place)
        if not isinstance(named, list):
            raise _IncludeError(f"expected a file or an array of files, found {kind_of(named)}")
        other = next((kind_of(name) for name in named if not isinstance(name, str)), "")
        if other:
            raise _IncludeError(f"expected files, found {other} in the array")
        merged: Node = Table({}, str(place.file))
        for name in named:
            merged = merge_nodes(merged, self._file(name, place))
        return merged

    def _file(self, name: str, place: _Place) -> Node:
        file = self._path(name, place)
        if file in place.chain:
            raise _IncludeError(f"{file} includes itself: {' -> '.join(map(str, (*place.chain, file)))}")
        if len(place.chain) > _MAX_LEVELS:
            raise _IncludeError(f"{file} is included more than {_MAX_LEVELS} levels deep")
        text = self._read(file)
        found = Findings()
        value = parse_document(text, file, found)
        if found.problems:
            raise _IncludeError(found.problems[0])
        if is_nested_deeper(value, DEEPEST - len(place.path)):
            raise _IncludeError(f"{file}: nested too deeply")
        return self.node(value, _Place(file, (*place.chain, file), place.path))

    def _path(self, name: str, place: _Place) -> Path:
        if "\0" in name or len(name) >= _MAX_PATH:
            raise _IncludeError(f"not a usable file name: it has a NUL or at least {_MAX_PATH} characters")
        file = Path(os.path.normpath(place.file.parent / name))
        if not any(file.is_relative_to(root) for root, _ in self.roots):
            raise _IncludeError(f"{file} is not in {self._folders()}")
        return file

    def _folders(self) -> str:
        return f"{self.main.parent} or a folder in OPENCLAW_INCLUDE_ROOTS"

    def _read(self, file: Path) -> str:
        try:
            real = file.resolve(strict=True)
            if not any(real.is_relative_to(root) for _, root in self.roots):
                raise _IncludeError(f"{file} is a link to {real}, which is not in {self._folders()}")
            data = self._data(file, real)
            return data.decode("utf-8-sig")
        except UnicodeDecodeError as error:
            raise _IncludeError(f"{file}: not UTF-8 at byte {error.start}") from error
        except (OSError, ValueError, RuntimeError) as error:
            reason = getattr(error, "strerror", None) or error
            raise _IncludeError(f"{file} cannot be read: {reason}") from error

    def _data(self, file: Path, real: Path) -> bytes:
        self.files += 1
        if self.files > _MAX_FILES:
            raise _IncludeError(f"{file}: more than {_MAX_FILES} files are included")
        # Opening a FIFO must not wait for its writer.
        descriptor = os.open(real, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
        with os.fdopen(descriptor, "rb") as opened:
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode):
                raise _IncludeError(f"{file} is not a regular file")
            if status.st_nlink > 1:
                raise _IncludeError(f"{file} has further hard links")
            data = opened.read(_MAX_FILE_BYTES + 1)
        self.read_bytes += len(data)
        if len(data) > _MAX_FILE_BYTES:
            raise _IncludeError(f"{file} is larger than {_MAX_FILE_BYTES} bytes")
        if self.read_bytes > _MAX_TOTAL_BYTES:
            raise _IncludeError(f"{file}: the included files have more than {_MAX_TOTAL_BYTES} bytes in total")
        return data


def _failed(table: Table, reason: str) -> Table:
    return Table({**table.values, INCLUDE: Leaf(FailedInclude(reason), table.origin)}, table.origin)


def _real(path: Path) -> Path:
    try:
        return Path(os.path.realpath(path))
    except (OSError, ValueError):
        # No file can be read below such a folder.
        return path


def merge_nodes(low: Node, high: Node) -> Node:
    """Return `high` merged over `low`: objects deeply, arrays concatenated, of other values the one in `high`."""
    if isinstance(low, Array) and isinstance(high, Array):
        items, files = (*low.items, *high.items), (*low.origins, *high.origins)
        return Array(items, files, high.origin, high.failed or low.failed)
    if not isinstance(low, Table) or not isinstance(high, Table):
        return high
    values = dict(low.values)
    for key, node in high.values.items():
        values[key] = merge_nodes(values[key], node) if key in values else node
    return Table(values, high.origin)


def leaves(table: Table, is_whole: Callable[[KeyPath], bool], split: KeyPath) -> Iterator[tuple[KeyPath, Any, str]]:
    """Yield the path, the plain value and the origin of each value that is not an object.

    An empty object, an array, and an object for whose path `is_whole` is true count as one value each. The array at
    `split` is yielded once for each file that has items in it.
    """
    pending: list[tuple[KeyPath, Node]] = [((), table)]
    while pending:
        path, node = pending.pop()
        if isinstance(node, Table) and node.values and not (path and is_whole(path)):
            pending.extend(((*path, key), inner) for key, inner in reversed(node.values.items()))
        elif isinstance(node, Array) and path == split and node.items:
            for origin in dict.fromkeys(node.origins):
                of_file = [plain(item) for item, file in zip(node.items, node.origins, strict=True) if file == origin]
                yield path, of_file, origin
        elif path:
            yield path, plain(node), ", ".join(dict.fromkeys(origins(node)))


def origins(node: Node) -> Iterator[str]:
    """Yield the files of a value; at least one."""
    inside = (
        node.origins
        if isinstance(node, Array)
        else [origin for inner in node.values.values() for origin in origins(inner)]
        if isinstance(node, Table)
        else ()
    )
    yield from inside or (node.origin,)


def plain(node: Node) -> Any:
    """Return the value of a node as JSON objects, arrays and values."""
    if isinstance(node, Table):
        return {key: plain(inner) for key, inner in node.values.items()}
    return [plain(item) for item in node.items] if isinstance(node, Array) else node.value
