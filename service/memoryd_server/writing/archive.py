"""Archiver: a transcript into a memory file.

Turns the last messages of a transcript into a memory file of their own, and writes over nothing.

The file appears under its name whole or not at all. A call that is repeated finds what the first one wrote, by the
contents: those of the same session with the same messages, written that day or the day before.

What an archive of a session is called. Pure.

Which transcript an archive is made of, and what of it.
"""

import os
import re
import threading
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from pathlib import Path

from memoryd_server.errors import FileNotFound, MemorydError, PathNotAllowed, WorkspaceReadOnly
from memoryd_server.sources import (
    MEMORY_FOLDER,
    SUFFIX,
    USER,
    Message,
    Roots,
    TranscriptFile,
    last_messages,
    list_transcripts,
    open_directory,
    read_file,
    resolve_for_append,
    session_id,
)
from memoryd_server.text import normalized, stop_words
from memoryd_server.writing.files import file_errors, write_new

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
class ArchiveReceipt:
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

    def archive(self, roots: Roots, transcripts: Path, request: ArchiveRequest) -> ArchiveReceipt:
        """Writes the archive, and returns once it is on disk. Blocks.

        Raises:
            PathNotAllowed: the transcript's name is none, or the memory folder is a link.
            FileNotFound: there is no such transcript.
            WorkspaceReadOnly: the file system or its permissions refuse the write.
            DiskFull: no space is left; nothing was written.
        """
        file, messages = last_said(transcripts, request.transcript, request.count)
        if not messages:
            return ArchiveReceipt()
        title, body = _title(request.local), _body(file.session_id, request.session_key, messages)
        with self._mutex:
            known = _same(roots, request.local.date(), body)
            if known:
                return ArchiveReceipt(known, len(messages), already=True)
            slug = request.slug or slug_from(messages) or f"{request.local:%H%M}"
            return ArchiveReceipt(
                self._written(roots, request.local.date(), slug, (title + body).encode()), len(messages)
            )

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


MOST_SLUG_CHARS = 60
# A file's name has 255 bytes at most, and the date and a number take some.
_MOST_SLUG_BYTES = 200
_MOST_WORDS = 6
# A message of fewer telling words, such as a greeting, does not say yet what the session is about.
_FEW_WORDS = 3
# What a masked secret leaves standing, and addresses, tell nothing in a name.
_UNTELLING = re.compile(r"…|\*{3}|://")


def slug_of(text: str) -> str:
    """`text` in lower case with a hyphen for whatever is neither letter nor digit; empty when nothing is."""
    kept = "".join(c if unicodedata.category(c)[0] in "LNM" else " " for c in normalized("NFC", text.lower()))
    words = [word for word in kept.split() if any(c.isalnum() for c in word)]
    slug = "-".join(words)[:MOST_SLUG_CHARS]
    while len(slug.encode()) > _MOST_SLUG_BYTES:
        slug = slug[:-1]
    return slug.rstrip("-")


def slug_from(messages: Iterable[Message]) -> str:
    """A name made from what the user said first; empty where that tells nothing."""
    words: list[str] = []
    for message in messages:
        if message.role != USER:
            continue
        words += _telling(message.text)
        if len(words) >= _FEW_WORDS:
            break
    slug = ""
    for word in words[:_MOST_WORDS]:
        longer = f"{slug}-{word}" if slug else word
        if slug and len(longer) > MOST_SLUG_CHARS:
            break
        slug = longer
    return slug_of(slug)


def _telling(text: str) -> list[str]:
    words = [
        word for piece in text.split() if not _UNTELLING.search(piece) for word in slug_of(piece).split("-") if word
    ]
    dropped = stop_words(words, ())
    return [word for word in words if word not in dropped]


def paths(day: date, slug: str) -> Iterator[str]:
    """The display paths of an archive, the first choice first: those after it are numbered."""
    stem = f"{MEMORY_FOLDER}/{day.isoformat()}-{slug}"
    yield f"{stem}{SUFFIX}"
    for number in range(2, 10_000):
        yield f"{stem}-{number}{SUFFIX}"


_TOPIC = "-topic-"
# "/new", "/model gpt" and their like are told to the gateway; "/etc/hosts is missing" is said to the agent.
_COMMAND = re.compile(r"/[A-Za-z][\w:-]*(?:\s|$)")


def last_said(folder: Path, asked: str, count: int) -> tuple[TranscriptFile, list[Message]]:
    """The last `count` messages of the transcript or session `asked`, commands left out, and the file that has them.

    A transcript that was rotated, or begun anew and still without a message, is looked for in its newest rotated file,
    then in those of the session's topics. Blocks.

    Raises:
        PathNotAllowed: `asked` is no file name or session id, or the folder may not be read.
        FileNotFound: there is no such transcript.
    """
    if not asked or "/" in asked or "\0" in asked or asked in {".", ".."}:
        raise PathNotAllowed(asked, "it is not the name of a transcript or the id of a session")
    try:
        files = _candidates(list_transcripts(folder), asked)
        found = ((file, last_messages(file, count, _is_said)) for file in files)
        best = next(((file, messages) for file, messages in found if messages), None)
    except FileNotFound:
        raise _no_transcript(asked) from None
    except OSError as error:
        raise PathNotAllowed(asked, f"the transcript cannot be read: {error.strerror}") from error
    if best is not None:
        return best
    if not files:
        raise _no_transcript(asked)
    return files[0], []


def _candidates(files: list[TranscriptFile], asked: str) -> list[TranscriptFile]:
    named = [file for file in files if file.file_name == asked]
    if named and named[0].rotated:
        return named
    session = session_id(asked)
    live = [file for file in files if file.session_id == session and not file.rotated]
    rotated = [file for file in files if file.session_id == session and file.rotated]
    topics = [file for file in files if file.session_id.startswith(session + _TOPIC)]
    return live + _newest_first(rotated) + _newest_first(topics)


def _newest_first(files: list[TranscriptFile]) -> list[TranscriptFile]:
    return sorted(files, key=lambda file: (file.mtime_ns, file.file_name), reverse=True)


def _is_said(message: Message) -> bool:
    return message.role != USER or not _COMMAND.match(message.text)


def _no_transcript(asked: str) -> FileNotFound:
    return FileNotFound(
        f"no transcript {asked!r} in the agent's sessions folder; name a file in it or a session id",
        metadata={"path": asked},
    )
