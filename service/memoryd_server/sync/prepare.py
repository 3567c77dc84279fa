"""FilePreparer and TranscriptPreparer: read, hash, chunk and analyze files, for the store to write. Nothing is locked.

A transcript is prepared in parts, so that only one part of it is in memory. If it has only grown, reading continues
where it ended the last time.
"""

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from memoryd_server.chunk import TRANSCRIPT_CHUNKER_VERSION, TranscriptChunker, memory_chunks, split_front_matter
from memoryd_server.errors import FileNotFound, IndexBusy, IndexUnavailable, MemorydError
from memoryd_server.model import Chunk, FileStat, Source, SourceFile, identity_of, is_settled, settled
from memoryd_server.sources import (
    FLATTENING_VERSION,
    START,
    DamagedArchive,
    ForgottenSources,
    Message,
    ReadPosition,
    Transcript,
    is_curated,
    note_day,
    origin_of_file,
)
from memoryd_server.store import (
    BuildIdentity,
    FileRow,
    PreparedFile,
    StopSign,
    TranscriptPart,
    TranscriptState,
    file_name,
    keyword_tokens,
    language_of,
)
from memoryd_server.text import Analyzer

PART_CHARS = 1 << 20
"""A part ends at about this much text."""

STORE_FAILURES = (IndexUnavailable, IndexBusy)
"""Errors of a corpus that are about the store of all files, and not about the file that is read."""

OpenTranscript = Callable[[SourceFile, StopSign], Transcript]


@dataclass(frozen=True, slots=True)
class UnchangedFile:
    """The file's stat has changed, but its bytes have not."""

    stat: FileStat


@dataclass(frozen=True, slots=True)
class MissingFile:
    """The file was gone when it was read."""


class FilePreparer:
    """Prepares files, with one analyzer and one build identity.

    `now_ns` is the wall clock in Unix nanoseconds. `forgotten` decides which memory files get no chunks. `read` and
    `open_transcript` are those of the corpus. If they raise one of `STORE_FAILURES`, so do the methods.
    """

    def __init__(
        self,
        analyzer: Analyzer,
        identity: BuildIdentity,
        max_file_bytes: int,
        now_ns: Callable[[], int],
        forgotten: ForgottenSources | None = None,
        *,
        read: Callable[[SourceFile, int], tuple[bytes, FileStat]],
        open_transcript: OpenTranscript,
        part_chars: int = PART_CHARS,
    ) -> None:
        self.analyzer = analyzer
        self.transcripts = TranscriptPreparer(analyzer, identity, now_ns, open_transcript, part_chars)
        self._read = read
        self._identity = identity
        self._max_file_bytes = max_file_bytes
        self._now_ns = now_ns
        self._forgotten = forgotten

    def prepare(self, file: SourceFile, known: FileRow | None) -> PreparedFile | UnchangedFile | MissingFile:
        """Return the rows for `file`, or that its bytes are those of `known`, or that it is gone.

        If an older version wrote the rows of `known`, the new rows are returned in any case. A file that cannot be read
        is returned without chunks, with the reason in `error`.
        """
        try:
            data, stat = self._read(file, self._max_file_bytes)
        except FileNotFound:
            return MissingFile()
        except STORE_FAILURES:
            raise
        except (OSError, MemorydError) as error:
            return PreparedFile(file.path, file.source, file.stat, b"", error=failure_reason(error))
        stat = settled(stat, self._now_ns())
        content_hash = hashlib.sha256(data).digest()
        same_bytes = known is not None and known.error is None and known.content_hash == content_hash
        if same_bytes and known is not None and not known.is_outdated:
            return UnchangedFile(stat)
        if self._forgotten is not None and self._forgotten.check_excluded(file.path, content_hash):
            return PreparedFile(file.path, file.source, stat, content_hash, same_bytes=same_bytes)
        rows = self._rows(file, data, stat, content_hash)
        return replace(rows, same_bytes=True) if same_bytes else rows

    def chunks_of(
        self, file: SourceFile, known: FileRow | None, should_stop: StopSign = lambda: False
    ) -> Iterator[list[Chunk]] | None:
        """Yield the file's chunks in batches; None if its bytes are those of `known`.

        An unreadable file has none. For a transcript that has grown, the chunks that are indexed already are included.

        Raises:
            ReadStopped: `should_stop` returned true while an archive was read.
        """
        if file.source is Source.SESSIONS:
            return self.transcripts.chunks(file, should_stop)
        try:
            data, _ = self._read(file, self._max_file_bytes)
        except STORE_FAILURES:
            raise
        except (OSError, MemorydError):
            return iter(())
        content_hash = hashlib.sha256(data).digest()
        if known is not None and known.error is None and known.content_hash == content_hash:
            return None
        if self._forgotten is not None and self._forgotten.excludes(file.path, content_hash):
            return iter(())
        return iter([self._chunks(file, split_front_matter(_decode(data)).body, 1)])

    def _rows(self, file: SourceFile, data: bytes, stat: FileStat, content_hash: bytes) -> PreparedFile:
        matter = split_front_matter(_decode(data))
        chunks = self._chunks(file, matter.body, matter.first_line)
        name = file_name(file.path, matter.metadata)
        language = language_of(self.analyzer, [chunk.text for chunk in chunks])
        tokens = [keyword_tokens(self.analyzer, c.text, c.breadcrumb, name, language) for c in chunks]
        day = note_day(file.path, matter.metadata)
        return PreparedFile(
            file.path,
            file.source,
            stat,
            content_hash,
            chunks,
            tokens,
            matter.metadata,
            language,
            origin=origin_of_file(file.source, file.path),
            day=day.isoformat() if day else "",
        )

    def _chunks(self, file: SourceFile, body: str, first_line: int) -> list[Chunk]:
        identity = self._identity
        return memory_chunks(
            body, identity.chunk_tokens, identity.chunk_overlap, first_line, curated=is_curated(file.path)
        )


def _decode(data: bytes) -> str:
    return data.decode("utf-8", "replace").removeprefix("\ufeff")


def failure_reason(error: OSError | MemorydError) -> str:
    """Return the reason why a file could not be read, for messages."""
    return error.message if isinstance(error, MemorydError) else (error.strerror or str(error))


READER_VERSION = f"{FLATTENING_VERSION}.{TRANSCRIPT_CHUNKER_VERSION}"
"""The version of the code that makes a transcript's text and chunks; another version reads it from the beginning."""


_MOST_DAMAGED = 10_000


class _DamagedArchives:
    """The damaged and too large archives, which are not decompressed again in every sync while their stat is equal."""

    def __init__(self, now_ns: Callable[[], int]) -> None:
        self._now_ns = now_ns
        self._found: dict[str, tuple[FileStat, str]] = {}

    def check(self, file: SourceFile) -> None:
        """Raise the error of an archive that has not changed since `add`."""
        stat, reason = self._found.get(file.path, (None, ""))
        if stat == file.stat:
            raise DamagedArchive(reason)

    def add(self, file: SourceFile, error: DamagedArchive) -> None:
        """Remember the error, unless the file changed so recently that an equal stat does not exclude a change."""
        if is_settled(settled(file.stat, self._now_ns())):
            if len(self._found) >= _MOST_DAMAGED:
                self._found.clear()
            self._found[file.path] = (file.stat, str(error))


@dataclass(frozen=True, slots=True)
class _ResumePoint:
    """Where to read from, and what is indexed up to there; None for the beginning."""

    position: ReadPosition
    state: TranscriptState | None


class TranscriptPreparer:
    """Prepares transcripts, with one analyzer and one build identity. `now_ns` is the wall clock in Unix nanoseconds.

    The methods raise `ReadStopped` if `should_stop` returns true while an archive is read.
    """

    def __init__(
        self,
        analyzer: Analyzer,
        identity: BuildIdentity,
        now_ns: Callable[[], int],
        open_transcript: OpenTranscript,
        part_chars: int = PART_CHARS,
    ) -> None:
        self._analyzer = analyzer
        self._identity = identity
        self._open_transcript = open_transcript
        self._part_chars = part_chars
        self._damaged = _DamagedArchives(now_ns)

    def _open(self, file: SourceFile, should_stop: StopSign) -> Transcript:
        self._damaged.check(file)
        try:
            return self._open_transcript(file, should_stop)
        except DamagedArchive as error:
            self._damaged.add(file, error)
            raise

    def parts(
        self,
        file: SourceFile,
        known: FileRow | None,
        state: TranscriptState | None,
        should_stop: StopSign = lambda: False,
    ) -> Iterator[TranscriptPart]:
        """Yield the new parts of `file`, of which `known` and `state` are indexed; none if nothing is new.

        Raises:
            FileNotFound: the file is gone.
            PathNotAllowed: the file has become a link, or is not a regular file.
            OSError: the file cannot be read.
        """
        with self._open(file, should_stop) as reader:
            resume = _resume_point(reader, known, state)
            resumed = known is not None and resume.state is not None
            moved_from = known.path if known is not None and known.path != file.path else ""
            if moved_from or not resumed or resume.position.offset < reader.stat.size_bytes:
                yield from self._read(file, reader, resume, moved_from)

    def chunks(self, file: SourceFile, should_stop: StopSign = lambda: False) -> Iterator[list[Chunk]]:
        """Yield approximately the chunks of the whole of `file`, in batches; none if it cannot be read."""
        try:
            with self._open(file, should_stop) as reader:
                for part in self._read(file, reader, _ResumePoint(START, None), "", analyzed=False):
                    yield list(part.chunks)
        except STORE_FAILURES:
            raise
        except (MemorydError, OSError):
            return

    def indexed_chunks(
        self, file: SourceFile, state: TranscriptState, should_stop: StopSign = lambda: False
    ) -> Iterator[Chunk]:
        """Yield the chunks of the part of `file` that is indexed according to `state`; none if it cannot be read."""
        chunker = TranscriptChunker(self._identity.chunk_tokens, self._identity.chunk_overlap)
        try:
            with self._open(file, should_stop) as reader:
                for line in reader.lines(START):
                    if line.after.offset > state.read.offset:
                        break
                    if line.message is not None:
                        message = line.message
                        yield from chunker.add(message.line, message.label, message.text, message.origin)
        except STORE_FAILURES:
            raise
        except (MemorydError, OSError):
            return
        last = chunker.last()
        if last is not None:
            yield last

    def _read(
        self,
        file: SourceFile,
        reader: Transcript,
        resume: _ResumePoint,
        moved_from: str,
        *,
        analyzed: bool = True,
    ) -> Iterator[TranscriptPart]:
        state = resume.state
        builder = _PartBuilder(self._analyzer if analyzed else None, self._identity, file, reader, state)
        builder.moved_from = moved_from
        position = resume.position
        for line in reader.lines(position):
            position = line.after
            if line.message is not None:
                builder.add(line.message)
                if builder.chars > self._part_chars:
                    yield builder.part(position, is_last=False)
        yield builder.part(position, is_last=True)


class _PartBuilder:
    """Collects the chunks of one transcript into parts."""

    def __init__(
        self,
        analyzer: Analyzer | None,
        identity: BuildIdentity,
        file: SourceFile,
        reader: Transcript,
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
        self._complete: list[Chunk] = []
        self._skipped = reader.skipped
        self.chars = 0

    def add(self, message: Message) -> None:
        """Add a message."""
        self._complete += self._chunker.add(message.line, message.label, message.text, message.origin)
        self.chars += len(message.text)

    def part(self, read: ReadPosition, *, is_last: bool) -> TranscriptPart:
        """Return everything new since the last part."""
        last = self._chunker.last()
        chunks = [*self._complete, *([] if last is None else [last])]
        same = bool(chunks) and self._written is not None and chunks[0].text == self._written.text
        replaces = self._written is not None and not same
        new = chunks[same:]
        if self._chunk_count - replaces <= 0 and new and self._analyzer is not None:
            self._language = language_of(self._analyzer, [new[0].text])
        part = TranscriptPart(
            path=self._file.path,
            stat=self._reader.stat if is_last else _differing_stat(self._reader.stat),
            mark=self._reader.prefix_digest(read),
            version=READER_VERSION,
            read=read,
            chunks=new,
            tokens=[] if self._analyzer is None else [self._tokens(self._analyzer, chunk) for chunk in new],
            language=self._language,
            replaces_all=self._begins_anew,
            replaces_last=replaces,
            moved_from=self.moved_from,
            is_last=is_last,
            skipped=self._reader.skipped - self._skipped,
        )
        self._skipped = self._reader.skipped
        self._chunk_count += len(new) - replaces
        self._written, self._complete, self.chars = last, [], 0
        self._begins_anew, self.moved_from = False, ""
        return part

    def _tokens(self, analyzer: Analyzer, chunk: Chunk) -> tuple[str, str]:
        return keyword_tokens(analyzer, chunk.text, chunk.breadcrumb, "", self._language)


def _resume_point(reader: Transcript, known: FileRow | None, state: TranscriptState | None) -> _ResumePoint:
    """Return the end of the indexed part if the file has at most grown since; else the beginning."""
    beginning = _ResumePoint(START, None)
    if known is None or known.error is not None or state is None or state.version != READER_VERSION:
        return beginning
    if identity_of(reader.stat) != identity_of(known.stat) or reader.stat.size_bytes < state.read.offset:
        return beginning
    if reader.prefix_digest(state.read) != known.content_hash and not _is_unchanged_by_ends(reader, known, state):
        return beginning
    position = reader.resume_position(state.read)
    return beginning if position is None else _ResumePoint(position, state)


def _is_unchanged_by_ends(reader: Transcript, known: FileRow, state: TranscriptState) -> bool:
    """Return whether the row has the digest of an earlier version, which covered the file's ends only, and it is equal.

    Such a row gets the new digest with the next part. Without this, an upgrade would index every transcript again.
    """
    rewritten = reader.stat.size_bytes == known.stat.size_bytes and reader.stat.mtime_ns != known.stat.mtime_ns
    return not rewritten and reader.ends_digest(state.read) == known.content_hash


def _differing_stat(stat: FileStat) -> FileStat:
    """Return a stat that the file cannot have, so that it counts as changed until it is read to its end."""
    return replace(stat, size_bytes=-1, mtime_ns=0, ctime_ns=0)
