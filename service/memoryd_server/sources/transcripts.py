"""Which files are session transcripts, and how they are read: from any place on, for they only grow.

A session's transcript is `<session>.jsonl`; when the session is begun anew or deleted, the file is renamed to
`<session>.jsonl.reset.<time>` or `.deleted.<time>`.
"""

import os
import re
import stat
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from memoryd_server.errors import FileNotFound, PathNotAllowed
from memoryd_server.model import FileStat, Source, SourceFile
from memoryd_server.sources.contained import file_stat, open_directory
from memoryd_server.sources.flattening import Message
from memoryd_server.sources.transcript_reader import START, TranscriptReader

SESSIONS_FOLDER = "sessions"
"""The first part of a transcript's display path."""

_SUFFIX = re.compile(r"\.jsonl(?:\.(?:reset|deleted)\..|\Z)", re.DOTALL)
_NO_TRANSCRIPTS = (".bak", ".md", ".tmp", ".lock")

_FIRST_TAIL_BYTES = 1 << 20
_TAIL_GROWTH = 4


@dataclass(frozen=True, slots=True)
class TranscriptFile:
    """A transcript in `folder`. `session_id` is that of its rotated ones, too."""

    folder: Path
    file_name: str
    stat: FileStat

    @property
    def path(self) -> Path:
        """Where it is."""
        return self.folder / self.file_name

    @property
    def session_id(self) -> str:
        """The session's id, which stays when the file is rotated."""
        return session_id(self.file_name)

    @property
    def rotated(self) -> bool:
        """Whether the session goes on elsewhere, or not at all."""
        return is_rotated(self.file_name)

    @property
    def name(self) -> str:
        """A name that no other transcript of the folder has, without `.jsonl`."""
        return self.file_name.replace(".jsonl", "", 1)

    @property
    def size_bytes(self) -> int:
        """Bytes, when it was listed."""
        return self.stat.size_bytes

    @property
    def mtime_ns(self) -> int:
        """When it was last written to, when it was listed; Unix nanoseconds."""
        return self.stat.mtime_ns

    @property
    def source_file(self) -> SourceFile:
        """The same as the index knows it."""
        shown = f"{SESSIONS_FOLDER}/{self.file_name}"
        return SourceFile(shown, Source.SESSIONS, str(self.folder), (self.file_name,), self.stat)


def is_transcript(file_name: str) -> bool:
    """Whether a file of this name, without folders, is a transcript."""
    return _suffix(file_name) is not None and not file_name.endswith(_NO_TRANSCRIPTS) and file_name.isprintable()


def is_rotated(file_name: str) -> bool:
    """Whether a transcript's name says that the session was begun anew or deleted."""
    return not file_name.endswith(".jsonl")


def session_id(file_name: str) -> str:
    """The session of a transcript's name, rotated or not; the name itself where it is none of a transcript."""
    suffix = _suffix(file_name)
    return file_name if suffix is None else file_name[: suffix.start()]


def _suffix(file_name: str) -> re.Match[str] | None:
    """Return where a transcript's name goes on after the session's id; None for any other name."""
    return None if "/" in file_name else _SUFFIX.search(file_name, 1)


def list_transcripts(folder: Path) -> list[TranscriptFile]:
    """The transcripts in a folder, by name; none where there is no folder. Links, folders and backups are none.

    Raises:
        OSError: the folder is there and cannot be read.
    """
    try:
        descriptor = open_directory(str(folder), ())
    except (FileNotFound, PathNotAllowed):
        return []
    try:
        with os.scandir(descriptor) as entries:
            found = [file for entry in entries for file in _transcript(folder, entry)]
    finally:
        os.close(descriptor)
    return sorted(found, key=lambda file: file.file_name)


def _transcript(folder: Path, entry: os.DirEntry[str]) -> Iterator[TranscriptFile]:
    if not is_transcript(entry.name):
        return
    # One that goes away meanwhile is none any more.
    with suppress(FileNotFoundError):
        status = entry.stat(follow_symlinks=False)
        if stat.S_ISREG(status.st_mode):
            yield TranscriptFile(folder, entry.name, file_stat(status))


def read_transcript(file: TranscriptFile) -> str:
    """Return what is said in a transcript, one line per message. Holds all of it in memory.

    Raises:
        FileNotFound: it is gone.
        PathNotAllowed: it has become a link, or no plain file.
        OSError: it cannot be read.
    """
    with TranscriptReader(file.source_file) as reader:
        return "\n".join(line.message.labelled for line in reader.lines(START) if line.message)


def last_messages(file: TranscriptFile, count: int, keep: Callable[[Message], bool] = lambda _: True) -> list[Message]:
    """The last `count` messages that `keep` lets through, in their order; their `line` numbers are 0.

    Reads no more of the end of the file than that takes.

    Raises:
        FileNotFound, PathNotAllowed, OSError: as `read_transcript`.
    """
    with TranscriptReader(file.source_file) as reader:
        tail = _FIRST_TAIL_BYTES
        while True:
            messages = [message for message in reader.messages_of_tail(tail) if keep(message)]
            if len(messages) >= count or tail >= reader.stat.size_bytes:
                return messages[len(messages) - min(count, len(messages)) :]
            tail *= _TAIL_GROWTH
