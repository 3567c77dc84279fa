"""What a reader of an export yields: conversations, documents, and the parts that it left out.

A reader checks the shape of the foreign file and yields its text unchanged. The importer masks secrets, chooses the
names of files and writes Markdown. Nothing of these objects is shown or written before it is masked.
"""

from dataclasses import dataclass
from datetime import datetime
from typing import Literal, TypeAlias


@dataclass(frozen=True, slots=True)
class ImportedMessage:
    """One message that the user or the assistant wrote.

    `text` is as in the export: not masked, and possibly several paragraphs of Markdown. `time` is aware and in UTC.
    """

    role: Literal["user", "assistant"]
    text: str
    time: datetime | None


@dataclass(frozen=True, slots=True)
class Conversation:
    """One branch of a conversation in order: what the user and the assistant said, without empty messages.

    `origin` is the name of the format: "chatgpt", "claude", "claude-code" or "codex". `conversation_id` is the id in
    the export, printable and of at most 200 characters. `title` and `project` are "" if the format has none.
    """

    origin: str
    conversation_id: str
    title: str
    created: datetime | None
    updated: datetime | None
    project: str
    messages: tuple[ImportedMessage, ...]


@dataclass(frozen=True, slots=True)
class Document:
    """Text of an export that is not a conversation: memories, and the documents and instructions of a project."""

    origin: str
    document_id: str
    title: str
    created: datetime | None
    updated: datetime | None
    project: str
    text: str


@dataclass(frozen=True, slots=True)
class Unreadable:
    """A part of the input that was left out.

    `place` names it for people ("conversations.json, conversation 12"); `reason` is plain and of bounded length.
    """

    place: str
    reason: str


Imported: TypeAlias = Conversation | Document | Unreadable
