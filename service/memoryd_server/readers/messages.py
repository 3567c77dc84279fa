"""Messages between the daemon and a reader process, and their frames on a socket pair.

A frame is the length of its body, four bytes in little-endian order, and the pickled message. Both ends of the pair are
processes of memoryd, and no other process can open it, so unpickling runs no foreign code.

A reader process handles its messages in the order in which they were sent. Times are those of `time.monotonic()`, which
all processes of a computer share.
"""

import copyreg
import io
import pickle
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from operator import attrgetter
from pathlib import Path
from typing import Any

from memoryd_server.model import Annotations, Source
from memoryd_server.search import Hit, RankingConfig, RetrieverReport, SearchAnswer, SearchQuery
from memoryd_server.sources import FolderCorpus
from memoryd_server.store import FileFilter, VectorIdentity

MAX_BODY_BYTES = 64 * 2**20
"""The longest body of a frame. A longer one means that the stream is corrupt."""

_LENGTH = struct.Struct("<I")
_PROTOCOL = 5


FileIds = tuple[tuple[int, int] | None, ...]
"""The device and inode of each file of an index; None for a missing one."""


@dataclass(frozen=True, slots=True)
class IndexOptions:
    """The location and the search options of an index that the daemon has open for writing.

    `file_ids` are the device and inode of the index that the daemon has open, of its log and of its shared memory; an
    index with other numbers is not searched. None means that only the existence of the index is checked. `corpus`
    checks the files of hits. `sources` are those that the index contains. The last three are the options of
    `VectorIndex`.
    """

    path: Path
    file_ids: FileIds | None
    corpus: FolderCorpus
    sources: tuple[Source, ...]
    ranking: RankingConfig
    sqlite_vec: bool
    extension_path: str | None
    memory_budget_bytes: int

    @property
    def file_and_vectors(self) -> tuple[object, ...]:
        """The options that determine the caches and vectors in memory. If one changes, these are dropped."""
        return (self.path, self.file_ids, self.sqlite_vec, self.extension_path, self.memory_budget_bytes)


@dataclass(frozen=True, slots=True)
class OpenIndex:
    """Use these options for the index `key` from now on. No answer; the next search opens the file.

    Its caches and vectors stay in memory if only the ranking, the sources or the corpus differ.
    """

    key: str
    options: IndexOptions


@dataclass(frozen=True, slots=True)
class Search:
    """Search an index. The answer is `Answer` or `SearchFailure`.

    `vector` is the query's vector as float32 in native byte order, made by the provider and model of `identity`; None
    if the query has no vector, for the reason in `no_vector`.
    """

    number: int
    key: str
    query: SearchQuery
    vector: bytes | None = None
    no_vector: str = ""
    identity: VectorIdentity | None = None


@dataclass(frozen=True, slots=True)
class CloseIndex:
    """Close every connection of an index, and drop what is in memory of it. The answer is `IndexClosed`.

    The next search of the index opens it again.
    """

    number: int
    key: str


@dataclass(frozen=True, slots=True)
class VectorChanges:
    """A commit stored the vectors of the chunks `added`, and deleted those of the chunks `removed`. No answer."""

    key: str
    added: tuple[int, ...]
    removed: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class ResetVectors:
    """Drop the vectors in memory, because they were replaced or too many changed. No answer."""

    key: str


@dataclass(frozen=True, slots=True)
class ReleaseMemory:
    """Release the memory of an idle index, and close its connections. No answer."""

    key: str


@dataclass(frozen=True, slots=True)
class Ready:
    """The first message of a process: it answers from now on."""


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer of a search."""

    number: int
    answer: SearchAnswer


@dataclass(frozen=True, slots=True)
class SearchFailure:
    """A search failed. `kind` is the name of the class of a `MemorydError`, or INTERNAL."""

    number: int
    error: str
    kind: str


INTERNAL = "internal"
"""The kind of a failure that is no `MemorydError`."""


@dataclass(frozen=True, slots=True)
class IndexClosed:
    """The answer of `CloseIndex`: every connection of the index is closed."""

    number: int


ToProcess = OpenIndex | Search | CloseIndex | VectorChanges | ResetVectors | ReleaseMemory
FromProcess = Ready | Answer | SearchFailure | IndexClosed
Message = ToProcess | FromProcess


def _by_fields(kind: type) -> Callable[[Any], tuple[type, tuple[Any, ...]]]:
    """Return a function that pickles a dataclass as a call with its fields.

    The default of dataclasses with slots takes twice as long.
    """
    values = attrgetter(*(field.name for field in fields(kind)))
    return lambda value: (kind, values(value))


# The objects of each search and its answer.
_FREQUENT = (Search, SearchQuery, FileFilter, Answer, SearchAnswer, Hit, Annotations, RetrieverReport)
_REDUCTIONS: Mapping[type, Callable[[Any], Any]] = copyreg.dispatch_table | {
    kind: _by_fields(kind) for kind in _FREQUENT
}


class FrameError(Exception):
    """The bytes are not a frame with a message; the rest of the stream cannot be read."""


def encode(message: Message) -> bytes:
    """Return the frame of a message.

    Raises:
        FrameError: the message is longer than `MAX_BODY_BYTES`.
    """
    file = io.BytesIO()
    pickler = pickle.Pickler(file, _PROTOCOL)
    pickler.dispatch_table = _REDUCTIONS
    pickler.dump(message)
    body = file.getvalue()
    if len(body) > MAX_BODY_BYTES:
        raise FrameError(f"a message of {len(body)} bytes is longer than {MAX_BODY_BYTES} bytes")
    return _LENGTH.pack(len(body)) + body


class FrameDecoder:
    """Splits the bytes of a stream into messages."""

    def __init__(self) -> None:
        self._received = bytearray()

    @property
    def has_partial_frame(self) -> bool:
        """Whether the bytes so far end within a frame."""
        return bool(self._received)

    def feed(self, data: bytes) -> list[Message]:
        """Return the messages that are complete with `data`, in order.

        Raises:
            FrameError: the bytes are not frames of messages.
        """
        received = self._received
        received += data
        messages: list[Message] = []
        start = 0
        while len(received) - start >= _LENGTH.size:
            (size,) = _LENGTH.unpack_from(received, start)
            if size > MAX_BODY_BYTES:
                raise FrameError(f"a frame of {size} bytes is longer than {MAX_BODY_BYTES} bytes")
            end = start + _LENGTH.size + size
            if len(received) < end:
                break
            messages.append(_decoded(bytes(received[start + _LENGTH.size : end])))
            start = end
        del received[:start]
        return messages


def _decoded(body: bytes) -> Message:
    try:
        message = pickle.loads(body)  # noqa: S301 -- from a process of memoryd, over a pair that no other can open
    except Exception as error:
        raise FrameError(f"cannot decode a frame: {type(error).__name__}: {error}") from error
    if not isinstance(message, Message):
        raise FrameError(f"a frame holds a {type(message).__name__} instead of a message")
    return message
