"""A file or transcript into rows.

One file into rows: read, hash, split, chunk, analyze. No SQLite here, so nothing is locked meanwhile.

A transcript into rows, part by part, going on from where it was read to. No SQLite here.

However long a transcript is, no more than a part of it is held in memory, and what was indexed of it is not read again
as long as it has only grown.
"""

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from memoryd_server.chunk import TRANSCRIPT_CHUNKER_VERSION, TranscriptChunker, indexable_chunks, split_front_matter
from memoryd_server.errors import FileNotFound, MemorydError
from memoryd_server.model import Chunk, FileStat, Source, SourceFile, identity_of, settled
from memoryd_server.sources import (
    FLATTENING_VERSION,
    START,
    ForgottenSources,
    ReadPosition,
    TranscriptReader,
    read_file,
)
from memoryd_server.store import (
    BuildIdentity,
    FileRow,
    PreparedFile,
    TranscriptPart,
    TranscriptState,
    file_name,
    keyword_tokens,
    language_of,
)
from memoryd_server.text import Analyzer

PART_CHARS = 1 << 20
"""A part ends at about this much text."""


@dataclass(frozen=True, slots=True)
class UnchangedFile:
    """The file's stat had changed and its bytes had not."""

    stat: FileStat


@dataclass(frozen=True, slots=True)
class MissingFile:
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
        forgotten: ForgottenSources | None = None,
        *,
        read: Callable[[SourceFile, int], tuple[bytes, FileStat]] = read_file,
        open_transcript: Callable[[SourceFile], TranscriptReader] = TranscriptReader,
        part_chars: int = PART_CHARS,
    ) -> None:
        self.analyzer = analyzer
        self.transcripts = TranscriptPreparer(analyzer, identity, open_transcript, part_chars)
        self._read = read
        self._identity = identity
        self._max_file_bytes = max_file_bytes
        self._now_ns = now_ns
        self._forgotten = forgotten

    def prepare(self, file: SourceFile, known: FileRow | None) -> PreparedFile | UnchangedFile | MissingFile:
        """The rows for `file`, or word that its bytes are those of `known` or that it is gone.

        A file that cannot be read becomes rows without chunks that say why.
        """
        try:
            data, stat = self._read(file, self._max_file_bytes)
        except FileNotFound:
            return MissingFile()
        except (OSError, MemorydError) as error:
            return PreparedFile(file.path, file.source, file.stat, b"", error=why(error))
        stat = settled(stat, self._now_ns())
        content_hash = hashlib.sha256(data).digest()
        if known is not None and known.error is None and known.content_hash == content_hash:
            return UnchangedFile(stat)
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
            data, _ = self._read(file, self._max_file_bytes)
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


READER_VERSION = f"{FLATTENING_VERSION}.{TRANSCRIPT_CHUNKER_VERSION}"
"""What made the text and the chunks of a transcript; one made by another is read from the beginning."""


@dataclass(frozen=True, slots=True)
class _Begin:
    """Where to read from, and what is there already."""

    position: ReadPosition
    state: TranscriptState | None


class TranscriptPreparer:
    """Makes rows out of transcripts, with one analyzer and one way of chunking."""

    def __init__(
        self,
        analyzer: Analyzer,
        identity: BuildIdentity,
        open_transcript: Callable[[SourceFile], TranscriptReader] = TranscriptReader,
        part_chars: int = PART_CHARS,
    ) -> None:
        self._analyzer = analyzer
        self._identity = identity
        self._open_transcript = open_transcript
        self._part_chars = part_chars

    def parts(self, file: SourceFile, known: FileRow | None, state: TranscriptState | None) -> Iterator[TranscriptPart]:
        """What is new in `file`, of which `known` and `state` are indexed; nothing where nothing is.

        Raises:
            FileNotFound: it is gone.
            PathNotAllowed: it has become a link, or no plain file.
            OSError: it cannot be read.
        """
        with self._open_transcript(file) as reader:
            begin = _begin(reader, known, state)
            resumed = known is not None and begin.state is not None
            moved_from = known.path if known is not None and resumed and known.path != file.path else ""
            if moved_from or not resumed or begin.position.offset < reader.stat.size_bytes:
                yield from self._read(file, reader, begin, moved_from)

    def chunks(self, file: SourceFile) -> Iterator[list[Chunk]]:
        """About the chunks that the whole of `file` makes, some at a time; none where it cannot be read."""
        try:
            with self._open_transcript(file) as reader:
                for part in self._read(file, reader, _Begin(START, None), "", analyzed=False):
                    yield list(part.chunks)
        except (MemorydError, OSError):
            return

    def _read(
        self, file: SourceFile, reader: TranscriptReader, begin: _Begin, moved_from: str, *, analyzed: bool = True
    ) -> Iterator[TranscriptPart]:
        state = begin.state
        maker = _PartMaker(self._analyzer if analyzed else None, self._identity, file, reader, state)
        maker.moved_from = moved_from
        position = begin.position
        for line in reader.lines(position):
            position = line.after
            if line.message is not None:
                maker.add(line.message.line, line.message.label, line.message.text)
                if maker.chars > self._part_chars:
                    yield maker.part(position, is_last=False)
        yield maker.part(position, is_last=True)


class _PartMaker:
    """Collects the chunks of one transcript into parts."""

    def __init__(
        self,
        analyzer: Analyzer | None,
        identity: BuildIdentity,
        file: SourceFile,
        reader: TranscriptReader,
        state: TranscriptState | None,
    ) -> None:
        self._analyzer = analyzer
        self._file = file
        self._reader = reader
        self.moved_from = ""
        self._begins_anew = state is None
        self._chunker = TranscriptChunker(
            identity.chunk_tokens, identity.chunk_overlap, () if state is None else state.last_chunk
        )
        self._chunk_count = 0 if state is None else state.chunk_count
        self._language = "" if state is None else state.language
        self._written = self._chunker.last()
        self._full: list[Chunk] = []
        self.chars = 0

    def add(self, number: int, label: str, text: str) -> None:
        """Takes a message in."""
        self._full += self._chunker.add(number, label, text)
        self.chars += len(text)

    def part(self, read: ReadPosition, *, is_last: bool) -> TranscriptPart:
        """What is new since the last part."""
        last = self._chunker.last()
        chunks = [*self._full, *([] if last is None else [last])]
        kept = bool(chunks) and self._written is not None and chunks[0].text == self._written.text
        replaces = self._written is not None and not kept
        new = chunks[kept:]
        if self._chunk_count - replaces <= 0 and new and self._analyzer is not None:
            self._language = language_of(self._analyzer, [new[0].text])
        part = TranscriptPart(
            path=self._file.path,
            stat=self._reader.stat if is_last else _unlike(self._reader.stat),
            mark=self._reader.mark(read),
            version=READER_VERSION,
            read=read,
            chunks=new,
            tokens=[] if self._analyzer is None else [self._tokens(self._analyzer, chunk) for chunk in new],
            language=self._language,
            begins_anew=self._begins_anew,
            replaces_last=replaces,
            moved_from=self.moved_from,
            is_last=is_last,
        )
        self._chunk_count += len(new) - replaces
        self._written, self._full, self.chars = last, [], 0
        self._begins_anew, self.moved_from = False, ""
        return part

    def _tokens(self, analyzer: Analyzer, chunk: Chunk) -> tuple[str, str]:
        return keyword_tokens(analyzer, chunk.text, chunk.breadcrumb, "", self._language)


def _begin(reader: TranscriptReader, known: FileRow | None, state: TranscriptState | None) -> _Begin:
    """Where to go on, if the file is what it was and has at most grown; else its beginning."""
    anew = _Begin(START, None)
    if known is None or known.error is not None or state is None or state.version != READER_VERSION:
        return anew
    now, then = reader.stat, known.stat
    same_file = identity_of(now) == identity_of(then) and now.size_bytes >= state.read.offset
    rewritten = now.size_bytes == then.size_bytes and now.mtime_ns != then.mtime_ns
    if not same_file or rewritten or reader.mark(state.read) != known.content_hash:
        return anew
    position = reader.resumable(state.read)
    return anew if position is None else _Begin(position, state)


def _unlike(stat: FileStat) -> FileStat:
    """A stat of the same file that it will not have: there is more of it to read."""
    return replace(stat, size_bytes=-1, mtime_ns=0, ctime_ns=0)
