"""DocumentCorpus: finds and reads an agent's memory files and transcripts in the database.

The `.memoryignore` is a document too. There are no folders: a path is that of a document, or nothing exists there.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from memoryd_server.errors import FileNotFound
from memoryd_server.foreign_text import shown_path
from memoryd_server.model import FileFailure, FileStat, Source, SourceFile
from memoryd_server.postgres.agent_database import AgentRows, DocumentReads
from memoryd_server.postgres.document_rows import DocumentRows, document_stat
from memoryd_server.postgres.transcripts import TranscriptStream, list_transcripts, stat_transcripts
from memoryd_server.sources import (
    CURATED_NAMES,
    DREAM_NAMES,
    IGNORE_FILE,
    MEMORY_FOLDER,
    MOST_EXCLUDED,
    MOST_IGNORE_BYTES,
    NO_RULES,
    SESSIONS_FOLDER,
    Discovery,
    ExcludedPlace,
    FileTooLarge,
    IgnoreFileUnusable,
    IgnoreRule,
    IgnoreRules,
    Location,
    Message,
    Roots,
    Transcript,
    TranscriptReader,
    UnreadableFolder,
    messages_of_session,
    parse_rules,
    resolve_dreams,
    resolve_path,
    transcript_location,
    transcript_name,
)

_LIST = """SELECT path, size_bytes, mtime_ns, version,
        CASE WHEN path = %(ignore)s AND size_bytes <= %(most)s THEN content END
    FROM documents WHERE agent_id = %(agent)s"""
_NOTES = f"""{_LIST} AND (path = %(ignore)s
    OR starts_with(path, '{MEMORY_FOLDER}/') AND strpos(substr(path, {len(MEMORY_FOLDER) + 2}), '/') = 0)"""
_WORKSPACE: Final = "."


@dataclass(frozen=True, slots=True)
class _Listing:
    """The memory files of an agent, sorted by path, with the rules for them.

    `rules` is an error if `.memoryignore` cannot be used.
    """

    files: Sequence[SourceFile]
    rules: IgnoreRules | IgnoreFileUnusable

    def usable_rules(self) -> IgnoreRules:
        """Return the rules, or raise the error."""
        if isinstance(self.rules, IgnoreFileUnusable):
            raise self.rules
        return self.rules


@dataclass(frozen=True, slots=True)
class DocumentCorpus:
    """The sources of one agent in the database. Thread-safe. Every method blocks.

    `memory` and `indexes_sessions` are whether memory files and transcripts are indexed; they can be read in either
    case. `unread_files` is called if the agent has no memory files in the database. It returns a message if there are
    memory files in the workspace, which is not read, or an empty text.

    Raises:
        IndexUnavailable, IndexBusy: the database cannot be used; raised by every method that reads.
    """

    documents: DocumentReads
    roots: Roots
    memory: bool = True
    indexes_sessions: bool = True
    unread_files: Callable[[], str] = str

    @property
    def agent_id(self) -> str:
        """The agent."""
        return self.documents.agent_id

    @property
    def sessions(self) -> str:
        """The root of the locations of transcripts, or empty if transcripts are not indexed."""
        return SESSIONS_FOLDER if self.indexes_sessions else ""

    @property
    def database(self) -> str:
        """Empty: no database of a gateway is read."""
        return ""

    @property
    def sources(self) -> tuple[Source, ...]:
        """The indexed sources."""
        return (*((Source.MEMORY,) if self.memory else ()), *((Source.SESSIONS,) if self.sessions else ()))

    @property
    def watches(self) -> bool:
        """False: no event reports the changes of other programs."""
        return False

    def discover(self) -> Discovery:
        """Return every file of the indexed sources, sorted by path. Reads no content but that of `.memoryignore`."""
        with self.documents.read() as rows:
            transcripts = tuple(self._transcripts(rows)) if self.sessions else ()
            listing = self._list(rows) if self.memory else None
        if listing is None:
            return Discovery(transcripts, (), ())
        if isinstance(listing.rules, IgnoreFileUnusable):
            problem = f"no new files next to it are indexed: {listing.rules}"
            reason = f"its {IGNORE_FILE} cannot be used: {listing.rules}"
            unseen = UnreadableFolder(_WORKSPACE, reason, (*CURATED_NAMES, f"{MEMORY_FOLDER}/"))
            failure = FileFailure(IGNORE_FILE, Source.MEMORY, problem)
            return Discovery(transcripts, (failure,), (), (unseen,))
        rules = listing.rules
        found = [file for file in listing.files if not rules.ignores_file(file.parts)]
        unread = "" if listing.files else self.unread_files()
        issues = () if found else (unread or "no memory files found",)
        return Discovery(tuple(sorted((*found, *transcripts), key=lambda file: file.path)), (), issues)

    def excluded(self) -> list[ExcludedPlace]:
        """Return the files and folders that `.memoryignore` excludes, at most 100,000."""
        if not self.memory:
            return []
        with self.documents.read() as rows:
            listing = self._list(rows)
        if isinstance(listing.rules, IgnoreFileUnusable):
            return []
        rules = listing.rules
        places = {place: None for file in listing.files for place in _exclusions(rules, file.parts)}
        return list(places)[:MOST_EXCLUDED]

    def ignoring_rule(self, location: Location) -> str:
        """Return the rule that excludes a memory file; empty if none does.

        Raises:
            IgnoreFileUnusable: the `.memoryignore` cannot be used.
        """
        return next((place.rule for place in _exclusions(self._rules(), location.parts)), "")

    def is_discoverable(self, location: Location) -> bool:
        """Return whether discovery finds an existing file."""
        try:
            return location.source is Source.MEMORY and not self._rules().ignores_file(location.parts)
        except IgnoreFileUnusable:
            return False

    def _list(self, rows: AgentRows, query: str = _LIST) -> _Listing:
        files: list[SourceFile] = []
        rules: IgnoreRules | IgnoreFileUnusable = NO_RULES
        for path, size, mtime_ns, version, content in rows.all(query, ignore=IGNORE_FILE, most=MOST_IGNORE_BYTES):
            if path == IGNORE_FILE:
                rules = _parsed(size, content)
            elif path not in DREAM_NAMES:
                files.append(self._memory_file(path, document_stat(size, mtime_ns, version)))
        return _Listing(sorted(files, key=lambda file: file.path), rules)

    def _memory_file(self, path: str, stat: FileStat) -> SourceFile:
        return SourceFile(path, Source.MEMORY, self.roots.base(), tuple(path.split("/")), stat)

    def _rules(self) -> IgnoreRules:
        with self.documents.read() as rows:
            found = DocumentRows(rows).read(IGNORE_FILE, MOST_IGNORE_BYTES)
        rules = NO_RULES if found is None else _parsed(found[0].size_bytes, found[1])
        if isinstance(rules, IgnoreFileUnusable):
            raise rules
        return rules

    def _transcripts(self, rows: AgentRows) -> Iterator[SourceFile]:
        for name, stat in list_transcripts(rows).items():
            yield SourceFile(f"{SESSIONS_FOLDER}/{name}", Source.SESSIONS, SESSIONS_FOLDER, (name,), stat)

    def resolve(self, path: str) -> Location:
        """Return the location of a memory file or transcript.

        Raises:
            PathNotAllowed: it is not a file of these sources, or not in canonical form.
        """
        name = transcript_name(path)
        return resolve_path(self.roots, path) if name is None else self.transcript(name)

    def locations(self, path: str) -> Sequence[Location]:
        """Return the location of a file, which is the only one. Raises as `resolve`."""
        return [self.resolve(path)]

    def locations_for_reading(self, path: str) -> Sequence[Location]:
        """Return the only location of a file that callers may read, such as `DREAMS.md`. Raises as `resolve`."""
        dreams = resolve_dreams(self.roots, path)
        return self.locations(path) if dreams is None else [dreams]

    def transcript(self, file_name: str) -> Location:
        """Return the location of the transcript with this name.

        Raises:
            PathNotAllowed: transcripts are not a source, or the name is not a transcript's.
        """
        return transcript_location(self.sessions, file_name)

    def stat(self, locations: Sequence[Location]) -> list[FileStat | None]:
        """Return the stat of each location, or None for one that is missing."""
        if not locations:
            return []
        paths = [_key(place) for place in locations if place.source is Source.MEMORY]
        names = [_key(place) for place in locations if place.source is Source.SESSIONS]
        with self.documents.read() as rows:
            memory = DocumentRows(rows).find_all(paths)
            transcripts = stat_transcripts(rows, names)
        stats = {(Source.MEMORY, path): document.stat for path, document in memory.items()}
        stats |= {(Source.SESSIONS, name): stat for name, stat in transcripts.items()}
        return [stats.get((place.source, _key(place))) for place in locations]

    def stat_file(self, file: Location | SourceFile) -> FileStat | None:
        """Return the stat of a file, or None if it is missing."""
        return self.stat([Location(file.path, file.root, file.parts, file.source)])[0]

    def is_deleted(self, location: Location, device: int) -> bool:  # noqa: ARG002 -- documents are on no device
        """Return whether a file does not exist."""
        return self.stat_file(location) is None

    def read(self, file: Location | SourceFile, max_bytes: int) -> tuple[bytes, FileStat]:
        """Return the bytes and the stat of a memory file.

        Raises:
            FileNotFound: it does not exist.
            FileTooLarge: it has more than `max_bytes` bytes.
        """
        with self.documents.read() as rows:
            found = DocumentRows(rows).read(file.path, max_bytes)
        if found is None:
            raise FileNotFound(f"no file at {file.path!r}", metadata={"path": file.path})
        document, content = found
        if content is None:
            raise FileTooLarge(file.path, document.size_bytes, max_bytes)
        return content, document.stat

    def notes(self, accepts: Callable[[str], bool], *, ignored: bool = False) -> Sequence[SourceFile]:
        """Return the memory files directly in memory/ whose names are accepted, by name.

        Those that `.memoryignore` excludes are left out unless `ignored`; all are if it cannot be used.
        """
        with self.documents.read() as rows:
            listing = self._list(rows, _NOTES)
        try:
            rules = NO_RULES if ignored else listing.usable_rules()
        except IgnoreFileUnusable:
            return []
        notes = [file for file in listing.files if accepts(file.parts[-1])]
        return [file for file in notes if not rules.ignores_file(file.parts)]

    def list_transcripts(self) -> Sequence[SourceFile]:
        """Return the transcripts by name, also if they are not indexed."""
        with self.documents.read() as rows:
            return tuple(self._transcripts(rows))

    def open_transcript(
        self,
        file: SourceFile | Location,
        should_stop: Callable[[], bool] = lambda: False,  # noqa: ARG002 -- it is read in small ranges
        *,
        quickly: bool = False,  # noqa: ARG002 -- no gateway holds a lock
    ) -> Transcript:
        """Open a transcript.

        Raises:
            FileNotFound: it does not exist.
        """
        stream = TranscriptStream(self.documents, file.parts[-1])
        return TranscriptReader(stream, stream.stat)

    def require_not_tombstoned(self, location: Location) -> None:
        """Do nothing: only the database of a gateway has tombstones."""

    def has_session(self, session_id: str) -> bool:  # noqa: ARG002 -- the protocol
        """Return False: there is no database of a gateway."""
        return False

    def last_messages(self, name: str, count: int, keep: Callable[[Message], bool]) -> tuple[str, list[Message]]:
        """Return the id of the session that `name` means, and its last `count` messages that `keep` accepts, in order.

        Raises:
            PathNotAllowed: `name` is not a file name or session id.
            FileNotFound: the transcript does not exist.
        """
        return messages_of_session(self, name, count, keep)


def _key(place: Location) -> str:
    """Return the key of a file among the files of its source."""
    return place.path if place.source is Source.MEMORY else place.parts[-1]


def _parsed(size_bytes: int, content: bytes | None) -> IgnoreRules | IgnoreFileUnusable:
    """Return the rules of a `.memoryignore`, or why it cannot be used."""
    if content is None:
        return IgnoreFileUnusable(f"{IGNORE_FILE} has {size_bytes} bytes, more than the {MOST_IGNORE_BYTES} allowed")
    try:
        return parse_rules(content.decode("utf-8", "surrogateescape"))
    except IgnoreFileUnusable as error:
        return error


def _exclusions(rules: IgnoreRules, parts: tuple[str, ...]) -> Iterator[ExcludedPlace]:
    """Yield the outermost folder that contains a file and is ignored, or else the file if it is ignored."""
    for depth in range(1, len(parts)):
        rule = rules.rule_of(parts[:depth], folder=True)
        if rule is not None:
            yield ExcludedPlace(shown_path("/".join(parts[:depth]) + "/"), _shown(rule))
            return
    rule = rules.rule_of(parts, folder=False)
    if rule is not None:
        yield ExcludedPlace(shown_path("/".join(parts)), _shown(rule))


def _shown(rule: IgnoreRule) -> str:
    return shown_path(f"{IGNORE_FILE}:{rule.line}: {rule.text}")
