"""Turns the last messages of a transcript into a memory file of their own, and writes over nothing.

The file appears under its name whole or not at all. A call that is repeated finds what the first one wrote, by the
contents: those of the same session with the same messages, written that day or the day before.
"""

import os
import threading
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from pathlib import Path

from memoryd_server.errors import MemorydError, WorkspaceReadOnly
from memoryd_server.sources.contained import open_directory, read_file
from memoryd_server.sources.flattening import Message
from memoryd_server.sources.roots import MEMORY_FOLDER, SUFFIX, Roots, resolve_for_append
from memoryd_server.writing.archive_name import paths, slug_from
from memoryd_server.writing.archive_source import last_said
from memoryd_server.writing.faults import file_errors
from memoryd_server.writing.new_file import write_new

# Beyond what our own archives can have: a file that is larger is none.
_MOST_BYTES = 64 << 20

_DAY = timedelta(days=1)


@dataclass(frozen=True, slots=True)
class ArchiveRequest:
    """What to archive: `transcript` is a file name or session id; an empty `slug` means one that is made here.

    `local` is the caller's time in the session's zone.
    """

    transcript: str
    count: int
    slug: str
    session_key: str
    local: datetime


@dataclass(frozen=True, slots=True)
class Archived:
    """The file and how many messages it holds; no path where there was nothing to archive.

    `already` is true when an earlier call had written it.
    """

    path: str = ""
    messages: int = 0
    already: bool = False


class Archiver:
    """Archives one agent's sessions. Safe from any thread."""

    def __init__(self, agent_id: str) -> None:
        self._draft = f".{agent_id}.archive.tmp"
        self._mutex = threading.Lock()

    def archive(self, roots: Roots, transcripts: Path, request: ArchiveRequest) -> Archived:
        """Writes the archive, and returns once it is on disk. Blocks.

        Raises:
            PathNotAllowed: the transcript's name is none, or the memory folder is a link.
            FileNotFound: there is no such transcript.
            WorkspaceReadOnly: the file system or its permissions refuse the write.
            DiskFull: no space is left; nothing was written.
        """
        file, messages = last_said(transcripts, request.transcript, request.count)
        if not messages:
            return Archived()
        title, body = _title(request.local), _body(file.session_id, request.session_key, messages)
        with self._mutex:
            known = _same(roots, request.local.date(), body)
            if known:
                return Archived(known, len(messages), already=True)
            slug = request.slug or slug_from(messages) or f"{request.local:%H%M}"
            return Archived(self._written(roots, request.local.date(), slug, (title + body).encode()), len(messages))

    def _written(self, roots: Roots, day: date, slug: str, data: bytes) -> str:
        for path in paths(day, slug):
            with file_errors(path):
                if write_new(resolve_for_append(roots, path), data, self._draft):
                    return path
        raise WorkspaceReadOnly(f"every name for the slug {slug!r} is taken on {day}; give another slug")


def _title(local: datetime) -> str:
    return f"# Session: {local.isoformat(sep=' ', timespec='minutes')} ({local.tzinfo})\n"


def _body(session_id: str, session_key: str, messages: Sequence[Message]) -> str:
    # A file's name may hold line breaks, and bytes that are no text.
    shown = " ".join(session_id.encode("utf-8", "replace").decode().split())
    head = [f"- Session key: {session_key}"] if session_key else []
    head += [f"- Session id: {shown}", f"- Messages: {len(messages)}"]
    # Each message is one line that begins with who said it, so that nothing in it can be a heading or a list.
    said = "\n\n".join(message.labelled for message in messages)
    return "\n" + "\n".join(head) + f"\n\n## Conversation\n\n{said}\n"


def _same(roots: Roots, day: date, body: str) -> str:
    """The path of a file of that day or the day before that says the same below its title; empty when there is none."""
    wanted = body.encode()
    days = tuple(f"{each.isoformat()}-" for each in (day, max(day, date.min + _DAY) - _DAY))
    for name in sorted(_names(roots)):
        if name.startswith(days) and name.endswith(SUFFIX):
            path = f"{MEMORY_FOLDER}/{name}"
            # One that is a link, or cannot be read, is none of ours.
            with suppress(MemorydError, OSError):
                data, _ = read_file(resolve_for_append(roots, path), _MOST_BYTES)
                if data.partition(b"\n")[2] == wanted:
                    return path
    return ""


def _names(roots: Roots) -> list[str]:
    with suppress(MemorydError, OSError):
        folder = open_directory(roots.base(), (MEMORY_FOLDER,))
        try:
            with os.scandir(folder) as entries:
                return [entry.name for entry in entries]
        finally:
            os.close(folder)
    return []
