"""What callers see of an agent's files: line ranges and a session's files.

A transcript is never shown as it is on disk: its lines are the messages, with secrets masked. Functions block.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import date
from hashlib import sha256

from memoryd_server.agent.config import AgentConfig
from memoryd_server.agent.session_requests import PromptMode, SessionContextRequest
from memoryd_server.chunk import split_utf8
from memoryd_server.errors import FileNotFound, MemorydError, PathNotAllowed
from memoryd_server.model import FileStat, Source
from memoryd_server.sessions import (
    ContextFile,
    SessionKey,
    ToolSchema,
    load_context,
    recall_prompt,
    tool_schemas,
    wants_citations,
)
from memoryd_server.sources import (
    LONG_TERM_NAMES,
    Corpus,
    FileTooLarge,
    Location,
    is_session_path,
)
from memoryd_server.store import Snapshots, StopSign

# The most text of one reply, so that it stays far below gRPC's 4 MiB.
MOST_BYTES = 256 * 1024
# The most chunks of one reply: overlapping chunks of 2,000 lines can be more.
MOST_CHUNKS_OF_LINES = 2_000

_LONG_TERM, _OLD_LONG_TERM = LONG_TERM_NAMES


@dataclass(frozen=True, slots=True)
class ChunkLines:
    """The first and the last line of a chunk."""

    start_line: int
    end_line: int


@dataclass(frozen=True, slots=True)
class FileRange:
    """Lines of a file. `next_start_line` is 0 at the end of the file; an empty range ends one line before it starts.

    `content` is the SHA-256 of the whole file, None for a transcript. `chunks` are those of these lines; empty if they
    were not requested.
    """

    path: str
    text: str
    start_line: int
    end_line: int
    total_lines: int
    next_start_line: int
    truncated: bool
    content: bytes | None = None
    chunks: tuple[ChunkLines, ...] = ()

    def within_chars(self, limit: int) -> "FileRange":
        """Return the first lines of at most `limit` characters; a first line that is longer is cut."""
        if len(self.text) <= limit:
            return self
        kept = self.text[: limit + 1].split("\n")[:-1]
        if not kept:
            kept = [self.text[:limit].split("\n")[0]]
        end_line = self.start_line + len(kept) - 1
        following = end_line + 1 if end_line < self.total_lines else 0
        cut = len(kept[0]) < len(self.text.split("\n", 1)[0])
        return replace(self, text="\n".join(kept), end_line=end_line, next_start_line=following, truncated=cut)


def read_range(
    corpus: Corpus,
    path: str,
    start_line: int,
    line_count: int,
    max_file_bytes: int,
    *,
    should_stop: StopSign = lambda: False,
) -> FileRange:
    """Return the lines from `start_line`: at most `line_count`, and at most 256 KiB.

    Each line of a transcript is the text of its message, with secrets masked; empty if the line holds no message. If
    there is no `memory.md`, that path, which older citations contain, means `MEMORY.md`.

    Raises:
        PathNotAllowed: the path is outside the roots, leads through a link, or is not a memory file; or the file is
            too large, or the daemon's user may not read it.
        FileNotFound: the path is allowed, and the file is missing, or is a transcript that OpenClaw has forgotten.
        ReadStopped: `should_stop` returned true while an archive was read.
    """
    places = corpus.locations_for_reading(path)
    location = places[0]
    if location.source is Source.MEMORY:
        try:
            return read_location(corpus.read, location, start_line, line_count, max_file_bytes)
        except FileNotFound:
            if location.path == _OLD_LONG_TERM:
                current = corpus.resolve(_LONG_TERM)
                with suppress(FileNotFound):
                    return read_location(corpus.read, current, start_line, line_count, max_file_bytes)
            raise
    with _as_refusal(location):
        corpus.require_not_tombstoned(location)
    said = _read_first(corpus, places, start_line, line_count, should_stop)
    return _range(location, said.lines, start_line, said.total_lines)


def _read_first(
    corpus: Corpus, places: Sequence[Location], start_line: int, line_count: int, should_stop: StopSign
) -> "TranscriptLines":
    """Return the lines from the first place where the transcript is."""
    for place in places[:-1]:
        with suppress(FileNotFound):
            return read_transcript(corpus, place, start_line, line_count, should_stop)
    return read_transcript(corpus, places[-1], start_line, line_count, should_stop)


def with_chunks(lines: FileRange, store: Snapshots) -> FileRange:
    """Return the lines with the chunks that the index has of them; without chunks if the index cannot be read. Blocks.

    A file that only a search backend indexes has no chunks.
    """
    if lines.end_line < lines.start_line:
        return lines
    source = Source.SESSIONS if is_session_path(lines.path) else Source.MEMORY
    with suppress(MemorydError), store.read() as reader:
        chunks = reader.chunk_lines((source, lines.path), (lines.start_line, lines.end_line), MOST_CHUNKS_OF_LINES)
        return replace(lines, chunks=tuple(ChunkLines(*chunk) for chunk in chunks))
    return lines


ReadFile = Callable[[Location, int], tuple[bytes, FileStat]]
"""Returns the bytes and the stat of a file, which has at most the given number of bytes; see `Corpus.read`."""


def read_location(
    read: ReadFile, location: Location, start_line: int, line_count: int, max_file_bytes: int
) -> FileRange:
    """Return lines of a file whose path is known to be allowed; see `read_range`.

    Raises:
        PathNotAllowed: the path leads through a link, or the file is too large or not readable.
        FileNotFound: the file is missing.
    """
    try:
        data, _ = read(location, max_file_bytes)
    except FileTooLarge as error:
        raise PathNotAllowed(
            location.path, f"the file has more than {max_file_bytes} bytes (memoryd.limits.maxFileBytes)"
        ) from error
    except PermissionError as error:
        raise PathNotAllowed(location.path, "the daemon's user may not read the file") from error
    lines = data.decode("utf-8", "replace").split("\n") if data else []
    shown = _range(location, lines[start_line - 1 : start_line - 1 + line_count], start_line, len(lines))
    return replace(shown, content=sha256(data).digest())


def _range(location: Location, wanted: list[str], start_line: int, total_lines: int) -> FileRange:
    shown, truncated = _within_bytes(wanted)
    end_line = start_line + len(shown) - 1
    following = end_line + 1 if shown and end_line < total_lines else 0
    return FileRange(location.path, "\n".join(shown), start_line, end_line, total_lines, following, truncated)


def _within_bytes(lines: list[str]) -> tuple[list[str], bool]:
    """Return the lines that fit, at least one, and whether this one was cut."""
    size = 0
    for count, line in enumerate(lines):
        size += len(line.encode()) + 1
        if size > MOST_BYTES + 1:
            if count == 0:
                return [split_utf8(line, MOST_BYTES)[0]], True
            return lines[:count], False
    return lines, False


@dataclass(frozen=True, slots=True)
class TranscriptLines:
    """The text of each requested line, empty if it holds no message; and the number of lines of the transcript."""

    lines: list[str]
    total_lines: int


def read_transcript(
    corpus: Corpus, location: Location, start_line: int, line_count: int, should_stop: StopSign = lambda: False
) -> TranscriptLines:
    """Return the messages of lines of a transcript. The lines before are not parsed: 100 MB take about 50 ms.

    An archive is parsed as a whole, to know which of its events are active.

    Raises:
        PathNotAllowed: the path leads through a link, or the file is not readable.
        FileNotFound: the file is missing.
        ReadStopped: `should_stop` returned true while an archive was read.
    """
    with _as_refusal(location), corpus.open_transcript(location, should_stop, quickly=True) as reader:
        position = reader.position_after(start_line - 1)
        said: list[str] = []
        for line in reader.lines(position):
            # Events of an abandoned branch have lines, too.
            said += [""] * min(line.after.lines - position.lines - 1, line_count - len(said))
            position = line.after
            if len(said) >= line_count:
                break
            said.append("" if line.message is None else line.message.labelled)
            if len(said) >= line_count:
                break
        total = position.lines + reader.count_lines_from(position)
    # A last line that is not complete counts as a line.
    missing = min(line_count, max(0, total - start_line + 1)) - len(said)
    return TranscriptLines([*said, *[""] * missing], total)


@contextmanager
def _as_refusal(location: Location) -> Iterator[None]:
    """Raise PathNotAllowed in place of an OSError."""
    try:
        yield
    except PermissionError as error:
        raise PathNotAllowed(location.path, "the daemon's user may not read the file") from error
    except OSError as error:
        raise PathNotAllowed(location.path, f"the transcript cannot be read: {error.strerror or error}") from error


def require_transcript(corpus: Corpus, file_name: str) -> None:
    """Check that there is a transcript of this name.

    Raises:
        PathNotAllowed: no transcript can have this name, or it is a link.
        FileNotFound: there is none.
    """
    location = corpus.transcript(file_name)
    _, *elsewhere = corpus.locations(location.path)
    if corpus.stat_file(location) is None and not any(corpus.stat(elsewhere)):
        raise FileNotFound(
            f"no transcript {file_name!r} in the agent's sessions folder", metadata={"path": location.path}
        )


@dataclass(frozen=True, slots=True)
class SessionContext:
    """What a session loads at its start.

    `files` are in the order in which to load them. `recall_prompt` is empty and `tool_schemas` has none if they were
    not requested.
    """

    files: tuple[ContextFile, ...]
    recall_prompt: str
    tool_schemas: tuple[ToolSchema, ...]
    main_session: bool


def load_session_context(
    request: SessionContextRequest, config: AgentConfig, corpus: Corpus, key: SessionKey, today: date
) -> SessionContext:
    """Return what the session `key` loads from `corpus` on the day `today`. Blocks."""
    main_session = key.is_main_session(config.agent_id)
    files = load_context(
        corpus,
        main_session=main_session,
        today=today,
        max_total_chars=request.max_total_chars,
        max_file_bytes=config.sync.max_file_bytes,
        startup=config.startup,
    )
    # The tools search the index and read what it finds.
    tools, prompt = request.memory_tools if config.enabled else (), ""
    if request.include_recall_prompt and request.prompt_mode is PromptMode.FULL:
        cites = wants_citations(request.citations or config.citations, key)
        prompt = recall_prompt(tools, cites=cites, main_session=main_session)
    schemas = tuple(tool_schemas(tools)) if request.include_recall_prompt else ()
    return SessionContext(files, prompt, schemas, main_session)
