"""The program of a reader process: `python -P -m memoryd_server.readers.process VERSION FD`.

VERSION is that of the daemon, and FD the process's end of a socket pair. The process handles the messages that it
receives one after another, and ends when the daemon's end is closed, including when the daemon is killed.
"""

import gc
import signal
import socket
import sys
from functools import partial

import numpy as np

from memoryd_server import __version__
from memoryd_server.errors import MemorydError
from memoryd_server.readers.messages import (
    INTERNAL,
    Answer,
    CloseIndex,
    FrameDecoder,
    FrameError,
    FromProcess,
    IndexClosed,
    IndexOptions,
    Message,
    OpenIndex,
    Ready,
    ReleaseMemory,
    ResetVectors,
    Search,
    SearchFailure,
    VectorChanges,
    encode,
)
from memoryd_server.search import SearchAnswer, SearchEngine, check_files
from memoryd_server.sqlite import IndexSnapshots, VectorIndex, bound_page_caches
from memoryd_server.system import limit_free_memory, release_free_memory
from memoryd_server.text import Analyzer
from memoryd_server.vectors import use_calling_thread_only

HEAP_BYTES = 128 * 2**20
"""The soft heap limit of SQLite, to which a share per open index is added. That of the daemon is 256 MiB."""

_RECEIVED_BYTES = 256 * 1024

BAD_STREAM = 3
"""The exit status after bytes that are not a message."""

OTHER_VERSION = 4
"""The exit status if the daemon has another version."""


class IndexSearcher:
    """An index with the options that the daemon sent last. Opens the file at the first search."""

    def __init__(self, options: IndexOptions, analyzer: Analyzer) -> None:
        vectors = VectorIndex(
            sqlite_vec=options.sqlite_vec,
            extension_path=options.extension_path,
            memory_budget_bytes=options.memory_budget_bytes,
        )
        self.snapshots = IndexSnapshots(options.path, options.file_ids, vectors)
        self._analyzer = analyzer
        self.use(options)

    def use(self, options: IndexOptions) -> None:
        """Apply options with the same `file_and_vectors`."""
        self._options = options
        self._engine = SearchEngine(
            self.snapshots,
            self._analyzer,
            partial(check_files, options.corpus),
            sources=options.sources,
            ranking=options.ranking,
        )

    def has_same_file_and_vectors(self, options: IndexOptions) -> bool:
        """Return whether `use` may be called with these options."""
        return self._options.file_and_vectors == options.file_and_vectors

    def search(self, request: Search) -> SearchAnswer:
        """Return the answer of a search. Raises as `SearchEngine.search`."""
        vector = None if request.vector is None else np.frombuffer(request.vector, np.float32)
        return self._engine.search(request.query, vector, request.no_vector, identity=request.identity)


class ReaderProcess:
    """Handles messages about any number of indexes, one after another."""

    def __init__(self) -> None:
        self._analyzer = Analyzer()
        self._indexes: dict[str, IndexSearcher] = {}

    def handle(self, message: Message) -> FromProcess | None:
        """Carry out a message; return its answer, or None if it has none.

        A message about an index that was never opened has no effect, and a search of one fails.

        Raises:
            FrameError: the message is not one to a reader process.
        """
        match message:
            case Search():
                return self._search(message)
            case CloseIndex(number):
                if (index := self._indexes.get(message.key)) is not None:
                    index.snapshots.close()
                return IndexClosed(number)
            case OpenIndex(key, options):
                self._open(key, options)
            case VectorChanges() | ResetVectors() | ReleaseMemory():
                if (index := self._indexes.get(message.key)) is not None:
                    _notify(index.snapshots, message)
            case _:
                raise FrameError(f"{type(message).__name__} is not a message to a reader process")
        return None

    def _open(self, key: str, options: IndexOptions) -> None:
        index = self._indexes.get(key)
        if index is not None and index.has_same_file_and_vectors(options):
            index.use(options)
            return
        if index is not None:
            index.snapshots.close()
        self._indexes[key] = IndexSearcher(options, self._analyzer)
        bound_page_caches(len(self._indexes), shared_bytes=HEAP_BYTES)

    def _search(self, request: Search) -> Answer | SearchFailure:
        index = self._indexes.get(request.key)
        if index is None:
            return SearchFailure(request.number, f"the index {request.key!r} was not opened", INTERNAL)
        try:
            return Answer(request.number, index.search(request))
        except MemorydError as error:
            return SearchFailure(request.number, error.message, type(error).__name__)
        except Exception as error:  # noqa: BLE001 -- the daemon logs the reason, and runs the search
            return SearchFailure(request.number, f"{type(error).__name__}: {error}", INTERNAL)


def _notify(snapshots: IndexSnapshots, message: VectorChanges | ResetVectors | ReleaseMemory) -> None:
    match message:
        case VectorChanges():
            snapshots.vectors_changed(message.added, message.removed)
        case ResetVectors():
            snapshots.reset_vectors()
        case ReleaseMemory():
            snapshots.release_memory()
            release_free_memory()


def serve(connection: socket.socket) -> None:
    """Answer the messages of a connection until its other end is closed. Blocks.

    Raises:
        FrameError: the other end sent bytes that are not messages.
        OSError: the other end was closed before it received an answer.
    """
    process, decoder = ReaderProcess(), FrameDecoder()
    # The objects created so far are never freed. Garbage collections need not visit them.
    gc.freeze()
    connection.sendall(encode(Ready()))
    while data := connection.recv(_RECEIVED_BYTES):
        for message in decoder.feed(data):
            answer = process.handle(message)
            if answer is not None:
                connection.sendall(encode(answer))


def main(arguments: list[str]) -> int:
    """Serve a socket; the arguments are the daemon's version and the descriptor. Return the exit status."""
    version, descriptor = arguments
    if version != __version__:
        # The two do not agree on the fields of messages. The package was updated while the daemon was running.
        sys.stderr.write(f"memoryd {__version__} cannot search for a daemon of version {version}; restart the daemon\n")
        return OTHER_VERSION
    # Ctrl-C is for the daemon, which ends this process, also if it was started without a session of its own.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    limit_free_memory()
    use_calling_thread_only()
    bound_page_caches(0, shared_bytes=HEAP_BYTES)
    with socket.socket(fileno=int(descriptor)) as connection:
        try:
            serve(connection)
        except FrameError as error:
            sys.stderr.write(f"memoryd reader process: {error}\n")
            return BAD_STREAM
        except (BrokenPipeError, ConnectionResetError):
            # The daemon has ended.
            return 0
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
