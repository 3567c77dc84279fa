"""Corpus: finds and reads the memory files and the transcripts of one agent.

`FolderCorpus` reads files and the gateway's database of sessions; the PostgreSQL driver has one that reads documents.
All code that reads memory files or transcripts uses a corpus, so that it does not depend on where they are stored.
"""

from collections.abc import Callable, Sequence
from typing import Protocol

from memoryd_server.errors import PathNotAllowed
from memoryd_server.model import FileStat, Source, SourceFile
from memoryd_server.sources.discover import Discovery
from memoryd_server.sources.exclusions import ExcludedPlace
from memoryd_server.sources.roots import Location, Roots
from memoryd_server.sources.session_source import Transcript
from memoryd_server.sources.transcript_text import Message
from memoryd_server.sources.transcripts import SESSIONS_FOLDER, is_transcript


class Corpus(Protocol):
    """The memory files and transcripts of one agent. Hashable and thread-safe; every method may block.

    Every method that looks at files, also one that is documented to raise no error, raises `IndexUnavailable` or
    `IndexBusy` if the files are in a store that cannot be used.
    """

    def __hash__(self) -> int:
        """Return a hash that is equal for equal corpora. A cache of resolved paths has them as keys."""

    @property
    def agent_id(self) -> str:
        """The agent."""

    @property
    def roots(self) -> Roots:
        """The paths that are memory."""

    @property
    def memory(self) -> bool:
        """Whether the memory files are indexed; they can be read in either case."""

    @property
    def sessions(self) -> str:
        """The root in the locations of transcripts, or empty if transcripts are not indexed."""

    @property
    def database(self) -> str:
        """The path of the gateway's database of sessions, or empty if there is none or it is not indexed."""

    @property
    def sources(self) -> tuple[Source, ...]:
        """The indexed sources."""

    @property
    def watches(self) -> bool:
        """Whether file events report the changes of other programs."""

    def discover(self) -> Discovery:
        """Return every file of the indexed sources, sorted by path.

        A file that is not in the result was deleted, unless a failure or an unseen place of the result covers it.
        """

    def excluded(self) -> list[ExcludedPlace]:
        """Return the files and folders that are left out because of a rule, in no order. Costs as much as `discover`.

        Among them are the transcripts that are not indexed because of their kind.
        """

    def ignoring_rule(self, location: Location) -> str:
        """Return the rule that keeps discovery from finding a memory file; empty if none does.

        Raises:
            IgnoreFileUnusable: a `.memoryignore` cannot be used, so that its folder gets no new files.
        """

    def is_discoverable(self, location: Location) -> bool:
        """Return whether discovery finds an existing file below memory/, without looking at other files.

        False if only discovery can decide this.
        """

    def resolve(self, path: str) -> Location:
        """Return the location of a file. A path `sessions/<name>` with a transcript's name is a transcript.

        Raises:
            PathNotAllowed: it is not a file of these sources, or not in canonical form.
        """

    def locations(self, path: str) -> Sequence[Location]:
        """Return the places where a file may be; the first is the one that is indexed under this path.

        Raises:
            PathNotAllowed: as `resolve`.
        """

    def locations_for_reading(self, path: str) -> Sequence[Location]:
        """Return the places of a file that callers may read: those of `locations`, or that of `DREAMS.md`.

        Raises:
            PathNotAllowed: it is not such a file, or not in canonical form.
        """

    def transcript(self, file_name: str) -> Location:
        """Return the location of the transcript with this name.

        Raises:
            PathNotAllowed: transcripts are not a source, or the name is not a transcript's.
        """

    def stat(self, locations: Sequence[Location]) -> list[FileStat | None]:
        """Return the stat of each location, or None for one that is missing or cannot be read."""

    def stat_file(self, file: Location | SourceFile) -> FileStat | None:
        """Return the stat of a file outside the gateway's database of sessions, or None if it is missing.

        Raises:
            PathNotAllowed: it leads through a link, or is not a regular file.
        """

    def is_deleted(self, location: Location, device: int) -> bool:
        """Return whether a file no longer exists. `device` is the device on which it was when it was indexed.

        False if that is unknown.

        Raises:
            PathNotAllowed: a component is a link.
        """

    def read(self, file: Location | SourceFile, max_bytes: int) -> tuple[bytes, FileStat]:
        """Return the bytes of a memory file, and its stat from before they were read.

        Raises:
            PathNotAllowed: it leads through a link, or is not a regular file.
            FileNotFound: it does not exist.
            FileTooLarge: it has more than `max_bytes` bytes.
            OSError: it cannot be read.
        """

    def notes(self, accepts: Callable[[str], bool], *, ignored: bool = False) -> Sequence[SourceFile]:
        """Return the memory files directly in memory/ whose names, without the folder, are accepted; by name.

        Files that `.memoryignore` excludes are left out unless `ignored`. Return none if the folder or, unless
        `ignored`, the `.memoryignore` cannot be read. Reads the stats of the accepted files only.
        """

    def list_transcripts(self) -> Sequence[SourceFile]:
        """Return the transcripts and compressed archives of sessions by name, also if they are not indexed.

        Transcripts in the gateway's database are not among them.

        Raises:
            OSError: they cannot be listed.
        """

    def open_transcript(
        self,
        file: SourceFile | Location,
        should_stop: Callable[[], bool] = lambda: False,
        *,
        quickly: bool = False,
    ) -> Transcript:
        """Open a transcript. An archive is read as a whole, until `should_stop` returns True.

        With `quickly`, wait only shortly for a lock of the gateway, because a call waits for the result.

        Raises:
            FileNotFound: it does not exist.
            PathNotAllowed: it is a link or a special file.
            OSError: it cannot be read, or is damaged; `DamagedArchive` if it fails again unless it changes.
            ReadStopped: `should_stop` returned True.
        """

    def require_not_tombstoned(self, location: Location) -> None:
        """Check that the gateway has not forgotten the session of a transcript, which may still be in a file.

        Raises:
            FileNotFound: it has forgotten the session.
            PathNotAllowed: the gateway's database is a link or a special file.
            OSError: the gateway's database cannot be read, so it is unknown which sessions are forgotten.
        """

    def has_session(self, session_id: str) -> bool:
        """Return whether the gateway's database has the session, also if it is not indexed; False without a database.

        Raises:
            PathNotAllowed: the gateway's database is a link or a special file.
            OSError: it cannot be read.
        """

    def last_messages(self, name: str, count: int, keep: Callable[[Message], bool]) -> tuple[str, list[Message]]:
        """Return the id of the session that `name` means, and its last `count` messages that `keep` accepts, in order.

        `name` is a file name or session id; sessions that are not indexed can be read, too. See `conversation`.

        Raises:
            PathNotAllowed: `name` is not a file name or session id, or the transcripts are not readable.
            FileNotFound: the transcript does not exist.
        """


def transcript_name(path: str) -> str | None:
    """Return the file name of a transcript's display path; None for any other path."""
    folder, _, name = path.partition("/")
    return name if folder == SESSIONS_FOLDER and "/" not in name and is_transcript(name) else None


def transcript_location(sessions: str, file_name: str) -> Location:
    """Return the location of the transcript with this name, with `sessions` as its root.

    Raises:
        PathNotAllowed: `sessions` is empty because transcripts are not a source, or the name is not a transcript's.
    """
    path = f"{SESSIONS_FOLDER}/{file_name}"
    if not sessions:
        raise PathNotAllowed(path, "session transcripts are not a source of this agent")
    if not is_transcript(file_name):
        raise PathNotAllowed(path, "it is not the name of a transcript (<session>.jsonl)")
    return Location(path, sessions, (file_name,), Source.SESSIONS)


def is_session_path(path: str) -> bool:
    """Return whether a display path is in the folder of transcripts, whether or not they are indexed."""
    return path.startswith(f"{SESSIONS_FOLDER}/") and not path.endswith(".md")
