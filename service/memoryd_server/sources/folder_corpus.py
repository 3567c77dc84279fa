"""FolderCorpus: the memory files and transcripts of an agent in folders, and in the gateway's database of sessions."""

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from memoryd_server.errors import FileNotFound, MemorydError, PathNotAllowed
from memoryd_server.model import FileFailure, FileStat, Source, SourceFile
from memoryd_server.sources.corpus import transcript_location, transcript_name
from memoryd_server.sources.discover import (
    Discovery,
    UnreadableFolder,
    below,
    discover_files,
    excluded_places,
    is_discoverable,
)
from memoryd_server.sources.exclusions import OTHER_TRANSCRIPT, ExcludedPlace, ignoring_rule
from memoryd_server.sources.files import file_stat, is_deleted, open_directory, read_file, stat_file, stat_files
from memoryd_server.sources.generated_sessions import read_generated_sessions
from memoryd_server.sources.ignore import NO_RULES, IgnoreFileUnusable, read_rules
from memoryd_server.sources.roots import MEMORY_FOLDER, SUFFIX, Location, Roots, resolve_dreams, resolve_path
from memoryd_server.sources.session_database import SessionDatabase
from memoryd_server.sources.session_list import is_transcript_name, session_path
from memoryd_server.sources.session_messages import last_session_messages, messages_of_session
from memoryd_server.sources.session_source import (
    Transcript,
    discover_sessions,
    has_session,
    is_archive,
    list_archives,
    list_session_files,
    open_quickly,
    open_transcript,
    require_not_tombstoned,
    stat_sessions,
)
from memoryd_server.sources.transcript_text import Message
from memoryd_server.sources.transcripts import SESSIONS_FOLDER, is_rotated, list_transcripts, session_id

_NOTHING = Discovery((), (), ())


@dataclass(frozen=True, slots=True)
class FolderCorpus:
    """The sources of one agent in folders.

    `sessions_folder` is the absolute folder of the session transcripts, and `session_database` the absolute path of the
    agent's database of sessions, which need not exist; both are empty if there are none. `indexes_sessions` is whether
    they are indexed; sessions that are not can still be archived and forgotten. `memory` is whether the Markdown is
    indexed; it can be read in either case.
    """

    roots: Roots
    sessions_folder: str = ""
    memory: bool = True
    session_database: str = ""
    agent_id: str = ""
    indexes_sessions: bool = True

    @property
    def sessions(self) -> str:
        """The folder of the session transcripts, or empty if transcripts are not indexed."""
        return self.sessions_folder if self.indexes_sessions else ""

    @property
    def database(self) -> str:
        """The path of the database of sessions, or empty if there is none or it is not indexed."""
        return self.session_database if self.sessions else ""

    @property
    def sources(self) -> tuple[Source, ...]:
        """The indexed sources."""
        return (*((Source.MEMORY,) if self.memory else ()), *((Source.SESSIONS,) if self.sessions else ()))

    @property
    def watches(self) -> bool:
        """True: events of the file system show changes."""
        return True

    def discover(self) -> Discovery:
        """Return every file of the sources, sorted by path.

        Reads folders and lists the sessions of the database, but opens no file except `.memoryignore`.
        """
        found = discover_files(self.roots) if self.memory else _NOTHING
        return _merge(found, self._discover_transcripts()) if self.sessions else found

    def excluded(self) -> list[ExcludedPlace]:
        """Return the files and folders that are left out because of a rule, at most 100,000 of the Markdown's.

        Among them are the transcripts that are not indexed because of their kind, or because the database has them.
        Costs as much as `discover`, and opens no file except `.memoryignore`.
        """
        places = excluded_places(self.roots) if self.memory else []
        with suppress(OSError):
            places += self._excluded_transcripts()
        return places

    def _excluded_transcripts(self) -> list[ExcludedPlace]:
        if not self.sessions:
            return []
        found, folder = self._discover_transcripts(), Path(self.sessions)
        if found.unseen:
            return []
        paths = {file.source_file.path for file in list_transcripts(folder)}
        paths |= {file.path for file in list_archives(folder, self.agent_id)} if self.database else set()
        paths -= {file.path for file in found.files}
        return [ExcludedPlace(path, OTHER_TRANSCRIPT, Source.SESSIONS) for path in paths]

    def _discover_transcripts(self) -> Discovery:
        """Return the transcripts in files and in the database; each once, even if it is in both."""
        if not self.database:
            return discover_transcripts(Path(self.sessions))
        stored, excluded = discover_sessions(self.database, self.agent_id, self.sessions)
        # OpenClaw makes the folder only when it archives a session, and the agent's folder at its first session.
        may_be_missing = bool(stored.files or stored.failures) or not Path(self.sessions).parent.exists()
        files = discover_transcripts(Path(self.sessions), self.agent_id, may_be_missing=may_be_missing)
        live = {session_id(file.parts[-1]) for file in stored.files if not is_rotated(file.parts[-1])}
        kept = tuple(file for file in files.files if not _is_stored(file, live, excluded))
        names = {file.parts[-1] for file in kept}
        new = tuple(file for file in stored.files if file.parts[-1] not in names)
        return _merge(replace(files, files=kept), replace(stored, files=new))

    def resolve(self, path: str) -> Location:
        """Return the location of a file. A path `sessions/<name>` with a transcript's name is a transcript.

        Raises:
            PathNotAllowed: it is not a file of these sources, or not in canonical form.
        """
        return self.locations(path)[0]

    def locations(self, path: str) -> Sequence[Location]:
        """Return the places where a file may be; the first is the one that is indexed under this path.

        A transcript has other places, because a citation of it stays valid when OpenClaw moves it into its database, or
        publishes it from there.

        Raises:
            PathNotAllowed: as `resolve`.
        """
        name = transcript_name(path)
        if name is not None:
            return [self.transcript(name), *self._in_database(path, name)]
        name = self._session_name(path)
        if name is None:
            return [resolve_path(self.roots, path)]
        file = Location(path, self.sessions, (name,), Source.SESSIONS)
        return [file, *self._in_database(path, name)] if is_archive(name) else [*self._in_database(path, name), file]

    def _session_name(self, path: str) -> str | None:
        """Return the file name in a path `sessions/<agent>/<name>`; None for any other path."""
        prefix = session_path(self.agent_id, "")
        name = path.removeprefix(prefix)
        if not (self.sessions and self.database and path.startswith(prefix)):
            return None
        return name if is_transcript_name(name) else None

    def _in_database(self, path: str, name: str) -> list[Location]:
        return (
            [Location(path, self.sessions, (name,), Source.SESSIONS, self.database, self.agent_id)]
            if self.database
            else []
        )

    def stat(self, locations: Sequence[Location]) -> list[FileStat | None]:
        """Return the stat of each location, or None for one that is missing or cannot be read."""
        if not self.database:
            return stat_files(locations)
        stored = [place.parts[-1] for place in locations if place.database]
        archived = [place.parts[-1] for place in locations if is_archive(place.parts[-1])]
        names = {*stored, *archived}
        in_database = stat_sessions(self.database, self.agent_id, names) if names else {}
        files = iter(stat_files([place for place in locations if not place.database]))
        stats = [in_database.get(place.parts[-1]) if place.database else next(files) for place in locations]
        return [
            in_database.get(place.parts[-1]) if stat is None and is_archive(place.parts[-1]) else stat
            for place, stat in zip(locations, stats, strict=True)
        ]

    def locations_for_reading(self, path: str) -> Sequence[Location]:
        """Return the places of a file that callers may read: those of `locations`, or that of `DREAMS.md`.

        Raises:
            PathNotAllowed: it is not such a file, or not in canonical form.
        """
        dreams = resolve_dreams(self.roots, path)
        return self.locations(path) if dreams is None else [dreams]

    def require_not_tombstoned(self, location: Location) -> None:
        """Check that OpenClaw has not forgotten the session of a transcript, which may still be in a file. Blocks.

        Raises:
            FileNotFound: it has forgotten the session.
            PathNotAllowed: the database of sessions is a link or a special file.
            OSError: the database cannot be read, so it is unknown which sessions are forgotten.
        """
        if self.database:
            require_not_tombstoned(self.database, self.agent_id, location.parts[-1])

    def transcript(self, file_name: str) -> Location:
        """Return the location of the transcript with this name.

        Raises:
            PathNotAllowed: transcripts are not a source, or the name is not a transcript's.
        """
        return transcript_location(self.sessions, file_name)

    def ignoring_rule(self, location: Location) -> str:
        """Return the rule that keeps discovery from finding a memory file; see `exclusions.ignoring_rule`."""
        return ignoring_rule(self.roots, location)

    def is_discoverable(self, location: Location) -> bool:
        """Return whether discovery finds an existing file below memory/; see `discover.is_discoverable`."""
        return is_discoverable(self.roots, location)

    def stat_file(self, file: Location | SourceFile) -> FileStat | None:
        """Return the stat of a file, or None if it is missing; see `files.stat_file`."""
        return stat_file(file)

    def is_deleted(self, location: Location, device: int) -> bool:
        """Return whether the file's folder is on this device and does not contain the file; see `files.is_deleted`."""
        return is_deleted(location, device)

    def read(self, file: Location | SourceFile, max_bytes: int) -> tuple[bytes, FileStat]:
        """Return the bytes and the stat of a file; see `files.read_file`."""
        return read_file(file, max_bytes)

    def notes(self, accepts: Callable[[str], bool], *, ignored: bool = False) -> Sequence[SourceFile]:
        """Return the memory files directly in memory/ whose names are accepted; see `Corpus.notes`."""
        base = self.roots.base()
        try:
            rules = NO_RULES if ignored else read_rules(base, ())
            folder = open_directory(base, (MEMORY_FOLDER,))
        except (IgnoreFileUnusable, MemorydError, OSError):
            return []
        try:
            with os.scandir(folder) as entries:
                accepted = [entry for entry in entries if entry.name.endswith(SUFFIX) and accepts(entry.name)]
                kept = (entry for entry in accepted if not rules.ignores_file((MEMORY_FOLDER, entry.name)))
                found = [note for entry in kept for note in self._as_note(entry)]
        except OSError:
            return []
        finally:
            os.close(folder)
        return sorted(found, key=lambda file: file.path)

    def _as_note(self, entry: "os.DirEntry[str]") -> Iterator[SourceFile]:
        try:
            place = resolve_path(self.roots, f"{MEMORY_FOLDER}/{entry.name}")
            if entry.is_file(follow_symlinks=False):
                stat = file_stat(entry.stat(follow_symlinks=False))
                yield SourceFile(place.path, place.source, place.root, place.parts, stat)
        except (PathNotAllowed, OSError):
            # The name is not valid text, or the file has disappeared.
            return

    def list_transcripts(self) -> Sequence[SourceFile]:
        """Return the transcripts and compressed archives in the folder, none if there is no folder; by name.

        Raises:
            OSError: the folder exists but cannot be read.
        """
        if not self.sessions_folder:
            return []
        return [file.source_file for file in list_session_files(Path(self.sessions_folder))]

    def open_transcript(
        self,
        file: SourceFile | Location,
        should_stop: Callable[[], bool] = lambda: False,
        *,
        quickly: bool = False,
    ) -> Transcript:
        """Open a transcript; see `session_source.open_transcript`."""
        return open_transcript(file, should_stop, open_database=open_quickly if quickly else SessionDatabase)

    def has_session(self, session_id: str) -> bool:
        """Return whether the gateway's database has the session or an archive of it, also if it is not indexed.

        Raises:
            PathNotAllowed, SessionDatabaseUnusable: as `SessionDatabase`.
        """
        return bool(self.session_database) and has_session(self.session_database, self.agent_id, session_id)

    def last_messages(self, name: str, count: int, keep: Callable[[Message], bool]) -> tuple[str, list[Message]]:
        """Return the id of a session, and its last messages from the gateway's database, or else from files.

        Raises:
            PathNotAllowed, FileNotFound: as `messages_of_session`.
        """
        session = session_id(name)
        stored = None
        # The name of a rotated file means that file.
        if self.session_database and name in {session, f"{session}.jsonl"}:
            place = self.session_database, self.agent_id, self.sessions_folder
            stored = last_session_messages(*place, session, count, keep=keep)
        if stored:
            return session, stored
        try:
            return messages_of_session(self, name, count, keep)
        except FileNotFound:
            if stored is None:
                raise
            return session, []


def _is_stored(file: SourceFile, live: set[str], excluded: frozenset[str]) -> bool:
    """Return whether the database has the current transcript of a file's session, or excludes the session."""
    name = file.parts[-1]
    return session_id(name) in excluded or (not is_rotated(name) and session_id(name) in live)


def discover_transcripts(folder: Path, agent_id: str = "", *, may_be_missing: bool = False) -> Discovery:
    """Return the transcripts of a folder; with `agent_id`, also the compressed archives.

    Those of scheduled runs and other sessions of the gateway itself are left out.

    If the folder cannot be read, no transcript counts as deleted. If it does not exist, all of them do, because it is
    part of the state directory, which exists; this is an issue unless it `may_be_missing`.
    """
    unseen = UnreadableFolder(str(folder), "", (below(SESSIONS_FOLDER),), source=Source.SESSIONS)
    try:
        listed = [file.source_file for file in list_transcripts(folder)]
        listed += list_archives(folder, agent_id) if agent_id else []
        generated, problem = read_generated_sessions(folder)
        device = folder.stat().st_dev
    except FileNotFoundError:
        missing = f"the folder of session transcripts, {folder}, does not exist"
        return Discovery((), (), () if may_be_missing else (missing,))
    except (OSError, MemorydError) as error:
        reason = error.message if isinstance(error, MemorydError) else f"cannot be read: {error.strerror}"
        failure = FileFailure(SESSIONS_FOLDER, Source.SESSIONS, f"folder {reason}")
        return Discovery((), (failure,), (), (replace(unseen, reason=reason),))
    files = tuple(file for file in listed if session_id(file.parts[-1]) not in generated)
    emptied = replace(unseen, reason="is empty, but its files were indexed on another drive", device=device)
    return Discovery(files, (), (problem,) if problem else (), () if listed else (emptied,))


def _merge(one: Discovery, other: Discovery) -> Discovery:
    return Discovery(
        tuple(sorted((*one.files, *other.files), key=lambda file: file.path)),
        tuple(sorted((*one.failures, *other.failures), key=lambda failure: failure.path)),
        (*one.issues, *other.issues),
        (*one.unseen, *other.unseen),
    )
