"""The program of a reader process: `python -P -m memoryd_server.readers.process FD`.

FD is the process's end of a socket pair. The process handles the messages that it receives one after another, and ends
when the daemon's end is closed, also because the daemon was killed.
"""

import signal
import socket
import sys

import numpy as np

from memoryd_server.errors import MemorydError
from memoryd_server.readers.messages import (
    INTERNAL,
    Answer,
    CloseIndex,
    Done,
    Failed,
    FrameDecoder,
    FrameError,
    FromProcess,
    IndexOptions,
    Message,
    OpenIndex,
    Ready,
    ReleaseMemory,
    ResetVectors,
    Search,
    VectorsChanged,
    encode,
)
from memoryd_server.search import SearchEngine, check_files
from memoryd_server.sqlite import IndexSnapshots, VectorIndex, bound_page_caches
from memoryd_server.system import limit_free_memory
from memoryd_server.text import Analyzer
from memoryd_server.vectors import use_calling_thread_only

_RECEIVED_BYTES = 256 * 1024

_BAD_STREAM = 3
"""The exit status after something else than a message."""


class OpenedIndex:
    """An index with the options that the daemon has sent last."""

    def __init__(self, options: IndexOptions, analyzer: Analyzer) -> None:
        vectors = VectorIndex(
            sqlite_vec=options.sqlite_vec,
            extension_path=options.extension_path,
            memory_budget_bytes=options.memory_budget_bytes,
        )
        self.snapshots = IndexSnapshots(options.path, options.file_id, vectors)
        self._analyzer = analyzer
        self.use(options)

    def use(self, options: IndexOptions) -> None:
        """Search with these options from now on; they are of the same file and the same vectors."""
        corpus = options.corpus
        self.options = options
        self.engine = SearchEngine(
            self.snapshots,
            self._analyzer,
            lambda rows: check_files(corpus, rows),
            sources=options.sources,
            ranking=options.ranking,
        )

    def suits(self, options: IndexOptions) -> bool:
        """Return whether what is in memory is that of the index with these options."""
        return _place(self.options) == _place(options)


def _place(options: IndexOptions) -> tuple[object, ...]:
    """Return the options of the file and its vectors."""
    return (
        options.path,
        options.file_id,
        options.sqlite_vec,
        options.extension_path,
        options.memory_budget_bytes,
    )


class ReaderProcess:
    """Handles messages about any number of indexes. Not thread-safe."""

    def __init__(self) -> None:
        self._analyzer = Analyzer()
        self._indexes: dict[str, OpenedIndex] = {}

    def handle(self, message: Message) -> FromProcess | None:
        """Carry out a message; return its answer, or None if it has none.

        Raises:
            FrameError: the message is not one to a reader process.
        """
        match message:
            case Search():
                return self._search(message)
            case VectorsChanged():
                self._require(message.key).snapshots.vectors_changed(message.added, message.removed)
            case OpenIndex():
                self._open(message.key, message.options)
            case CloseIndex():
                if message.key in self._indexes:
                    self._indexes[message.key].snapshots.close()
                return Done(message.number)
            case ResetVectors():
                self._require(message.key).snapshots.reset_vectors()
            case ReleaseMemory():
                self._require(message.key).snapshots.release_memory()
            case _:
                raise FrameError(f"{type(message).__name__} is not a message to a reader process")
        return None

    def _require(self, key: str) -> OpenedIndex:
        return self._indexes[key]

    def _open(self, key: str, options: IndexOptions) -> None:
        index = self._indexes.get(key)
        if index is not None and index.suits(options):
            index.use(options)
            return
        if index is not None:
            index.snapshots.close()
        self._indexes[key] = OpenedIndex(options, self._analyzer)
        bound_page_caches(len(self._indexes))

    def _search(self, request: Search) -> Answer | Failed:
        vector = None if request.vector is None else np.frombuffer(request.vector, np.float32)
        try:
            engine = self._require(request.key).engine
            answer = engine.search(request.query, vector, request.no_vector, identity=request.identity)
        except MemorydError as error:
            return Failed(request.number, error.message, type(error).__name__)
        except Exception as error:  # noqa: BLE001 -- the daemon searches itself, and logs the reason
            return Failed(request.number, f"{type(error).__name__}: {error}", INTERNAL)
        return Answer(request.number, answer)


def serve(connection: socket.socket) -> None:
    """Answer the messages of a connection until its other end is closed. Blocks.

    Raises:
        FrameError: the other end sent something else than messages.
        OSError: the other end was closed before it received an answer.
    """
    process, decoder = ReaderProcess(), FrameDecoder()
    connection.sendall(encode(Ready()))
    while data := connection.recv(_RECEIVED_BYTES):
        for message in decoder.feed(data):
            answer = process.handle(message)
            if answer is not None:
                connection.sendall(encode(answer))


def main(arguments: list[str]) -> int:
    """Serve the socket whose descriptor is the only argument; return the exit status."""
    # Ctrl-C in a terminal reaches every process of its group; the daemon ends this one.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    limit_free_memory()
    use_calling_thread_only()
    bound_page_caches(0)
    with socket.socket(fileno=int(arguments[0])) as connection:
        try:
            serve(connection)
        except FrameError as error:
            sys.stderr.write(f"memoryd reader process: {error}\n")
            return _BAD_STREAM
        except (BrokenPipeError, ConnectionResetError):
            # The daemon has ended.
            return 0
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
