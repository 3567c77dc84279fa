"""One file into rows: read, hash, split, chunk, analyze. No SQLite here, so nothing is locked meanwhile."""

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from memoryd_server.chunk import indexable_chunks, split_front_matter
from memoryd_server.errors import FileNotFound, MemorydError
from memoryd_server.index.plan import settled
from memoryd_server.index.prepare_transcript import TranscriptPreparer
from memoryd_server.model import Chunk, FileStat, Source, SourceFile
from memoryd_server.sources import read_file
from memoryd_server.sources.forgotten import Forgotten
from memoryd_server.store.identity import BuildIdentity
from memoryd_server.store.rows import FileRow, PreparedFile, file_name, keyword_tokens, language_of
from memoryd_server.text import Analyzer


@dataclass(frozen=True, slots=True)
class SameBytes:
    """The file's stat had changed and its bytes had not."""

    stat: FileStat


@dataclass(frozen=True, slots=True)
class Vanished:
    """The file was gone when it was to be read."""


class FilePreparer:
    """Makes rows out of files, with one analyzer and one way of chunking.

    `now_ns` is the wall clock in Unix nanoseconds. `forgotten` tells which memory files get no chunks.
    """

    def __init__(
        self,
        analyzer: Analyzer,
        identity: BuildIdentity,
        max_file_bytes: int,
        now_ns: Callable[[], int],
        forgotten: Forgotten | None = None,
    ) -> None:
        self.analyzer = analyzer
        self.transcripts = TranscriptPreparer(analyzer, identity)
        self._identity = identity
        self._max_file_bytes = max_file_bytes
        self._now_ns = now_ns
        self._forgotten = forgotten

    def prepare(self, file: SourceFile, known: FileRow | None) -> PreparedFile | SameBytes | Vanished:
        """The rows for `file`, or word that its bytes are those of `known` or that it is gone.

        A file that cannot be read becomes rows without chunks that say why.
        """
        try:
            data, stat = read_file(file, self._max_file_bytes)
        except FileNotFound:
            return Vanished()
        except (OSError, MemorydError) as error:
            return PreparedFile(file.path, file.source, file.stat, b"", error=why(error))
        stat = settled(stat, self._now_ns())
        content_hash = hashlib.sha256(data).digest()
        if known is not None and known.error is None and known.content_hash == content_hash:
            return SameBytes(stat)
        if self._forgotten is not None and self._forgotten.keeps_out(file.path, content_hash):
            return PreparedFile(file.path, file.source, stat, content_hash)
        return self._rows(file, data, stat, content_hash)

    def chunks_of(self, file: SourceFile, known: FileRow | None) -> Iterator[list[Chunk]] | None:
        """The chunks the file would make, some at a time; None when its bytes are those of `known`.

        An unreadable one makes none. Of a transcript that has grown, those that are indexed already are among them.
        """
        if file.source is Source.SESSIONS:
            return self.transcripts.chunks(file)
        try:
            data, _ = read_file(file, self._max_file_bytes)
        except (OSError, MemorydError):
            return iter(())
        content_hash = hashlib.sha256(data).digest()
        if known is not None and known.error is None and known.content_hash == content_hash:
            return None
        if self._forgotten is not None and self._forgotten.holds(file.path, content_hash):
            return iter(())
        return iter([self._chunks(split_front_matter(_decode(data)).body, 1)])

    def _rows(self, file: SourceFile, data: bytes, stat: FileStat, content_hash: bytes) -> PreparedFile:
        matter = split_front_matter(_decode(data))
        chunks = self._chunks(matter.body, matter.first_line)
        name = file_name(file.path, matter.metadata)
        language = language_of(self.analyzer, [chunk.text for chunk in chunks])
        tokens = [keyword_tokens(self.analyzer, c.text, c.breadcrumb, name, language) for c in chunks]
        return PreparedFile(file.path, file.source, stat, content_hash, chunks, tokens, matter.metadata, language)

    def _chunks(self, body: str, first_line: int) -> list[Chunk]:
        return indexable_chunks(body, self._identity.chunk_tokens, self._identity.chunk_overlap, first_line)


def _decode(data: bytes) -> str:
    return data.decode("utf-8", "replace").removeprefix("\ufeff")


def why(error: OSError | MemorydError) -> str:
    """Why a file could not be read, in words."""
    return error.message if isinstance(error, MemorydError) else (error.strerror or str(error))
