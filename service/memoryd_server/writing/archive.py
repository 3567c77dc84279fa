"""Archive the last messages of a transcript as a new memory file. Existing files are not changed.

The file appears under its name with all of its contents or not at all. A repeated call finds the earlier archive by its
contents: one of the same session with the same messages, written on that day or the day before.
"""

import re
import threading
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import date, datetime, timedelta

from memoryd_server.errors import MemorydError, WorkspaceReadOnly
from memoryd_server.sources import MEMORY_FOLDER, SUFFIX, USER, Corpus, Message
from memoryd_server.text import normalized, stop_words
from memoryd_server.writing.memory_writer import MemoryWriter

# Larger than any archive can be.
_MOST_BYTES = 64 << 20

_DAY = timedelta(days=1)


@dataclass(frozen=True, slots=True)
class ArchiveRequest:
    """A request to archive a session.

    `transcript` is a file name or session id. An empty `slug` is generated from the messages. `local` is the caller's
    time in the session's zone.
    """

    transcript: str
    count: int
    slug: str
    session_key: str
    local: datetime


@dataclass(frozen=True, slots=True)
class ArchiveReceipt:
    """The archive and its number of messages; `path` is empty if there was nothing to archive.

    `already` is True if an earlier call wrote it. `revision` is the index's revision that holds the file, None
    if it is not indexed yet.
    """

    path: str = ""
    messages: int = 0
    already: bool = False
    revision: int | None = None


class Archiver:
    """Archive one agent's sessions. Thread-safe, and safe with other processes.

    `writer` creates the files.
    """

    def __init__(self, writer: MemoryWriter) -> None:
        self._writer = writer
        self._mutex = threading.Lock()

    def archive(self, corpus: Corpus, request: ArchiveRequest) -> ArchiveReceipt:
        """Write the archive of a session of `corpus`, and return its path once it is durable. Blocks.

        Raises:
            PathNotAllowed: the transcript's name is not valid, or the memory folder is a link.
            FileNotFound: the transcript or the workspace does not exist.
            WorkspaceReadOnly: the file system or its permissions refuse the write.
            DiskFull: no space is left; nothing was written.
        """
        session, messages = corpus.last_messages(request.transcript, request.count, _is_conversation)
        if not messages:
            return ArchiveReceipt()
        title, body = _title(request.local), _body(session, request.session_key, messages)
        with self._mutex:
            existing = _find_equal(corpus, request.local.date(), body)
            if existing:
                return ArchiveReceipt(existing, len(messages), already=True)
            slug = request.slug or slug_from_messages(messages) or f"{request.local:%H%M}"
            path = self._write(request.local.date(), slug, (title + body).encode())
            return ArchiveReceipt(path, len(messages))

    def _write(self, day: date, slug: str, data: bytes) -> str:
        for path in archive_paths(day, slug):
            if self._writer.create(path, data):
                return path
        raise WorkspaceReadOnly(f"every file name for the slug {slug!r} on {day} is taken; choose another slug")


def _title(local: datetime) -> str:
    return f"# Session: {local.isoformat(sep=' ', timespec='minutes')} ({local.tzinfo})\n"


def _body(session_id: str, session_key: str, messages: Sequence[Message]) -> str:
    # A file's name may contain line breaks and bytes that are not valid UTF-8.
    printable_id = " ".join(session_id.encode("utf-8", "replace").decode().split())
    head = [f"- Session key: {session_key}"] if session_key else []
    head += [f"- Session id: {printable_id}", f"- Messages: {len(messages)}"]
    # Each message is one line that begins with its role, so that no message can be a heading or a list.
    conversation = "\n\n".join(message.labelled for message in messages)
    return "\n" + "\n".join(head) + f"\n\n## Conversation\n\n{conversation}\n"


def _find_equal(corpus: Corpus, day: date, body: str) -> str:
    """Return the path of a file of that day or the day before with the same text below its title, or ""."""
    wanted = body.encode()
    days = tuple(f"{each.isoformat()}-" for each in (day, max(day, date.min + _DAY) - _DAY))
    for file in corpus.notes(lambda name: name.startswith(days), ignored=True):
        # A link or an unreadable file is not an archive.
        with suppress(MemorydError, OSError):
            data, _ = corpus.read(file, _MOST_BYTES)
            if data.partition(b"\n")[2] == wanted:
                return file.path
    return ""


MOST_SLUG_CHARS = 60
# A file name has at most 255 bytes, and the date and a number take some.
_MOST_SLUG_BYTES = 200
_MOST_WORDS = 6
# A message with fewer content words, such as a greeting, does not show the session's topic.
_FEW_WORDS = 3
# The visible parts of masked secrets, and URLs, are not useful in a name.
_UNINFORMATIVE = re.compile(r"…|\*{3}|://")


def make_slug(text: str) -> str:
    """Return `text` in lower case with hyphens between its words; empty if it has no letter or digit."""
    kept = "".join(c if unicodedata.category(c)[0] in "LNM" else " " for c in normalized("NFC", text.lower()))
    words = [word for word in kept.split() if any(c.isalnum() for c in word)]
    slug = "-".join(words)[:MOST_SLUG_CHARS]
    while len(slug.encode()) > _MOST_SLUG_BYTES:
        slug = slug[:-1]
    return slug.rstrip("-")


def slug_from_messages(messages: Iterable[Message]) -> str:
    """Return a slug from the first content words of the user; empty if there are none."""
    words: list[str] = []
    for message in messages:
        if message.role != USER:
            continue
        words += _content_words(message.text)
        if len(words) >= _FEW_WORDS:
            break
    slug = ""
    for word in words[:_MOST_WORDS]:
        longer = f"{slug}-{word}" if slug else word
        if slug and len(longer) > MOST_SLUG_CHARS:
            break
        slug = longer
    return make_slug(slug)


def _content_words(text: str) -> list[str]:
    words = [
        word
        for piece in text.split()
        if not _UNINFORMATIVE.search(piece)
        for word in make_slug(piece).split("-")
        if word
    ]
    dropped = stop_words(words, ())
    return [word for word in words if word not in dropped]


def archive_paths(day: date, slug: str) -> Iterator[str]:
    """Yield the possible display paths of an archive, best first; those after the first are numbered."""
    stem = f"{MEMORY_FOLDER}/{day.isoformat()}-{slug}"
    yield f"{stem}{SUFFIX}"
    for number in range(2, 10_000):
        yield f"{stem}-{number}{SUFFIX}"


# "/new" and "/model gpt" are commands to the gateway; "/etc/hosts is missing" is a message to the agent.
_COMMAND = re.compile(r"/[A-Za-z][\w:-]*(?:\s|$)")


def _is_conversation(message: Message) -> bool:
    return message.role != USER or not _COMMAND.match(message.text)
