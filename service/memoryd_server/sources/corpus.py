"""The sources of one agent, its Markdown and its session transcripts, and the resolution of their paths."""

from dataclasses import dataclass, replace
from pathlib import Path

from memoryd_server.errors import MemorydError, PathNotAllowed
from memoryd_server.model import FileFailure, Source
from memoryd_server.sources.discover import Discovery, UnreadableFolder, below, discover_files
from memoryd_server.sources.roots import Location, Roots, resolve_dreams, resolve_path
from memoryd_server.sources.session_store import read_generated_sessions
from memoryd_server.sources.transcripts import SESSIONS_FOLDER, is_transcript, list_transcripts

_NOTHING = Discovery((), (), ())


@dataclass(frozen=True, slots=True)
class Corpus:
    """The sources of one agent.

    `sessions` is the absolute folder of the session transcripts, or empty if transcripts are not indexed. `memory` is
    whether the Markdown is indexed; it can be read in either case.
    """

    roots: Roots
    sessions: str = ""
    memory: bool = True

    @property
    def sources(self) -> tuple[Source, ...]:
        """The indexed sources."""
        return (*((Source.MEMORY,) if self.memory else ()), *((Source.SESSIONS,) if self.sessions else ()))

    def discover(self) -> Discovery:
        """Return every file of the sources, sorted by path. Reads folders, but opens no file except `.memoryignore`."""
        found = discover_files(self.roots) if self.memory else _NOTHING
        return _merge(found, discover_transcripts(Path(self.sessions))) if self.sessions else found

    def resolve(self, path: str) -> Location:
        """Return the location of a file. A path `sessions/<name>` with a transcript's name is a transcript.

        Raises:
            PathNotAllowed: it is not a file of these sources, or not in canonical form.
        """
        name = transcript_name(path)
        return resolve_path(self.roots, path) if name is None else self.transcript(name)

    def resolve_for_reading(self, path: str) -> Location:
        """Return the location of a file that callers may read: one of `resolve`, or `DREAMS.md`.

        Raises:
            PathNotAllowed: it is not such a file, or not in canonical form.
        """
        return resolve_dreams(self.roots, path) or self.resolve(path)

    def transcript(self, file_name: str) -> Location:
        """Return the location of the transcript with this name.

        Raises:
            PathNotAllowed: transcripts are not a source, or the name is not a transcript's.
        """
        path = f"{SESSIONS_FOLDER}/{file_name}"
        if not self.sessions:
            raise PathNotAllowed(path, "session transcripts are not a source of this agent")
        if not is_transcript(file_name):
            raise PathNotAllowed(path, "it is not the name of a transcript (<session>.jsonl)")
        return Location(path, self.sessions, (file_name,), Source.SESSIONS)


def transcript_name(path: str) -> str | None:
    """Return the file name of a transcript's display path; None for any other path."""
    folder, _, name = path.partition("/")
    return name if folder == SESSIONS_FOLDER and "/" not in name and is_transcript(name) else None


def discover_transcripts(folder: Path) -> Discovery:
    """Return the transcripts of a folder, without those of scheduled runs and other sessions of the gateway itself.

    If the folder cannot be read, no transcript counts as deleted. If it does not exist, all of them do, because it is
    part of the state directory, which exists.
    """
    unseen = UnreadableFolder(str(folder), "", (below(SESSIONS_FOLDER),), source=Source.SESSIONS)
    try:
        listed = list_transcripts(folder)
        generated, problem = read_generated_sessions(folder)
        device = folder.stat().st_dev
    except FileNotFoundError:
        return Discovery((), (), (f"the folder of session transcripts, {folder}, does not exist",))
    except (OSError, MemorydError) as error:
        reason = error.message if isinstance(error, MemorydError) else f"cannot be read: {error.strerror}"
        failure = FileFailure(SESSIONS_FOLDER, Source.SESSIONS, f"folder {reason}")
        return Discovery((), (failure,), (), (replace(unseen, reason=reason),))
    files = tuple(file.source_file for file in listed if file.session_id not in generated)
    emptied = replace(unseen, reason="is empty, but its files were indexed on another drive", device=device)
    return Discovery(files, (), (problem,) if problem else (), () if listed else (emptied,))


def _merge(one: Discovery, other: Discovery) -> Discovery:
    return Discovery(
        tuple(sorted((*one.files, *other.files), key=lambda file: file.path)),
        tuple(sorted((*one.failures, *other.failures), key=lambda failure: failure.path)),
        (*one.issues, *other.issues),
        (*one.unseen, *other.unseen),
    )
