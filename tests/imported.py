"""Conversations and documents as the readers of exports yield them."""

from datetime import UTC, datetime, timedelta

from memoryd_server.imports.conversation import Conversation, Document, ImportedMessage

START = datetime(2025, 3, 14, 9, 26, 53, tzinfo=UTC)


def conversation(
    *texts, own="67d3f1a2-0000-8000-9000-000000000001", title="Backups of the gateway", start=START, **more
):
    """A conversation in which user and assistant speak in turn, a minute apart; without `start`, of unknown time."""
    times = [start and start + timedelta(minutes=number) for number in range(len(texts))]
    messages = tuple(
        ImportedMessage("assistant" if number % 2 else "user", text, times[number]) for number, text in enumerate(texts)
    )
    fields = {"origin": "chatgpt", "project": "", "created": start, "updated": times[-1] if times else start}
    return Conversation(conversation_id=own, title=title, messages=messages, **{**fields, **more})


def document(text, *, own="memory-1", title="Memories", **more):
    fields = {"origin": "claude", "project": "", "created": START, "updated": START}
    return Document(document_id=own, title=title, text=text, **{**fields, **more})
