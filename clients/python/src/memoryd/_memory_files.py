"""The memory files of an agent, as generators that yield the calls of the client that they need.

A generator yields each call, receives its response (or its `MemorydError`, thrown into it), and returns its result. The
blocking and the asyncio tool in `memoryd.memory_tool` make the calls, so both do the same.
"""

import hashlib
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias, TypeVar

from google.protobuf.message import Message

from memoryd._memory_paths import MemoryPath, ToolProblem
from memoryd._memory_texts import MOST_LINES
from memoryd.failure import MemorydError
from memoryd.v1 import memory_pb2
from memoryd.v1 import memory_service_pb2 as pb

MISSING = "FILE_NOT_FOUND"
_CHANGED = "CONTENT_CHANGED"

# How often a command is repeated if another program changes the file at the same time.
_ATTEMPTS = 5
# Maximum numbers of the service.
_LINES_PER_PAGE = 2_000
_FILES_PER_PAGE = 1_000

_T = TypeVar("_T")


class Call(NamedTuple):
    """A call of the client: the name of its method, and the request."""

    method: str
    request: Message


Steps: TypeAlias = Generator[Call, Any, _T]


@dataclass(frozen=True, slots=True)
class Lines:
    """Lines of a file, and the hash of the whole file.

    `total` is the number of lines of the file. The empty string after a line feed at the end of the file is a line
    here. `cut` are the numbers of lines of which only the beginning is here.
    """

    lines: list[str]
    total: int
    sha256: str
    cut: list[int]


@dataclass(frozen=True, slots=True)
class Edit:
    """The operation of a MemoryWrite by its field of the request, and the result text if it succeeds."""

    operation: Mapping[str, Any]
    result: str


class MemoryFiles:
    """The memory files of an agent."""

    def __init__(self, agent_id: str) -> None:
        self._agent_id = agent_id

    def read(self, path: MemoryPath, first: int = 1, last: int = -1) -> Steps[Lines]:
        """Return the lines `first` to `last` of one version of a file; a last line of -1 means all.

        Raises:
            MemorydError: FILE_NOT_FOUND, for example.
            ToolProblem: the file has too many lines, or changes again and again while it is read.
        """
        for _ in range(_ATTEMPTS):
            found = yield from self._read_once(path, first, last)
            if found is not None:
                return found
        raise ToolProblem(f"Error: The file {path.given} changes while it is read. Try again")

    def _read_once(self, path: MemoryPath, first: int, last: int) -> Steps[Lines | None]:
        lines: list[str] = []
        cut: list[int] = []
        start, sha256 = first, None
        while True:
            wanted = _LINES_PER_PAGE if last == -1 else min(_LINES_PER_PAGE, last - start + 1)
            page = yield self._get(path, start, wanted)
            if sha256 not in (None, page.content_sha256):
                return None
            if page.total_lines > MOST_LINES + 1:
                raise ToolProblem(f"File {path.given} exceeds maximum line limit of {MOST_LINES:,} lines.")
            sha256 = page.content_sha256
            lines += page.text.split("\n") if page.end_line >= page.start_line else []
            cut += [page.end_line] if page.truncated else []
            start = page.next_start_line
            if not start or start > last != -1:
                return Lines(lines, page.total_lines, page.content_sha256, cut)

    def hash_of(self, path: MemoryPath) -> Steps[str]:
        """Return the hash of a file.

        Raises:
            MemorydError: FILE_NOT_FOUND, for example.
        """
        page = yield self._get(path, 1, 1)
        return str(page.content_sha256)

    def _get(self, path: MemoryPath, start: int, count: int) -> Call:
        # No file has more than MOST_LINES lines here, and the field is limited to 32 bits.
        start = min(start, MOST_LINES + 2)
        request = pb.MemoryGetRequest(agent_id=self._agent_id, path=path.file, start_line=start, line_count=count)
        return Call("get", request)

    def exists(self, path: MemoryPath) -> Steps[bool]:
        """Return whether a file exists."""
        try:
            yield from self.hash_of(path)
        except MemorydError as error:
            if error.reason != MISSING:
                raise
            return False
        return True

    def edit(self, path: MemoryPath, plan: Callable[[str], Edit]) -> Steps[str]:
        """Change a file with the edit that `plan` returns for its text, and return the result text.

        Raises:
            MemorydError: FILE_NOT_FOUND, for example.
            ToolProblem: `plan` raised it, the file is not UTF-8, or it changes again and again.
        """
        for _ in range(_ATTEMPTS):
            found = yield from self.read(path)
            text = "\n".join(found.lines)
            # Bytes that are not UTF-8, and lines that are too long, are not returned as they are in the file.
            if found.sha256 and hashlib.sha256(text.encode()).hexdigest() != found.sha256:
                raise ToolProblem(f"Error: The file {path.given} is not UTF-8 or has a line that is too long to edit")
            edit = plan(text)
            if (yield from self._write(path, found.sha256, edit.operation)):
                return edit.result
        raise _changed_again(path)

    def delete(self, path: MemoryPath) -> Steps[None]:
        """Delete a file with any content.

        Raises:
            MemorydError: FILE_NOT_FOUND, for example.
            ToolProblem: the file changes again and again.
        """
        for _ in range(_ATTEMPTS):
            sha256 = yield from self.hash_of(path)
            if (yield from self._write(path, sha256, {"delete_file": pb.FileDeletion()})):
                return
        raise _changed_again(path)

    def create(self, path: MemoryPath, content: str) -> Steps[bool]:
        """Create a file, and return whether it did not exist."""
        return (yield from self._write(path, "", {"content": content}))

    def _write(self, path: MemoryPath, sha256: str, operation: Mapping[str, Any]) -> Steps[bool]:
        """Return whether the file still had the content with this hash and was written."""
        request = pb.MemoryWriteRequest(agent_id=self._agent_id, path=path.file, expected_sha256=sha256, **operation)
        try:
            yield Call("write", request)
        except MemorydError as error:
            if error.reason != _CHANGED:
                raise
            return False
        return True

    def move(self, path: MemoryPath, target: MemoryPath) -> Steps[bool]:
        """Move a file, and return whether there was no file at `target`.

        Raises:
            MemorydError: FILE_NOT_FOUND, for example.
            ToolProblem: the file changes again and again.
        """
        for _ in range(_ATTEMPTS):
            sha256 = yield from self.hash_of(path)
            request = pb.MemoryMoveRequest(
                agent_id=self._agent_id, path=path.file, new_path=target.file, expected_sha256=sha256
            )
            try:
                yield Call("move", request)
            except MemorydError as error:
                if error.reason != _CHANGED:
                    raise
                if error.metadata.get("path") == target.file:
                    return False
            else:
                return True
        raise _changed_again(path)

    def below(self, directory: MemoryPath) -> Steps[list[tuple[str, int]]]:
        """Return the paths and sizes of the memory files on disk below a directory, ordered by path."""
        found: list[tuple[str, int]] = []
        token = ""
        while True:
            request = pb.ListFilesRequest(
                agent_id=self._agent_id,
                page_size=_FILES_PER_PAGE,
                page_token=token,
                sources=[memory_pb2.SOURCE_MEMORY],
                filter=pb.MemoryFilter(path_prefixes=[directory.prefix]),
            )
            page = yield Call("list_files", request)
            found += [(file.path, file.size_bytes) for file in page.files if file.state != pb.FILE_STATE_GONE]
            token = page.next_page_token
            if not token:
                return found


def _changed_again(path: MemoryPath) -> ToolProblem:
    return ToolProblem(
        f"Error: The file {path.given} was changed by another program at the same time, {_ATTEMPTS} times in a row. "
        "Nothing was written. View the file, and try again"
    )
