"""Imports of conversations: exports of chat services and transcripts of coding agents become Markdown or sessions."""

from memoryd_server.imports.conversation import Conversation, Document, Imported, ImportedMessage, Unreadable

__all__ = ["Conversation", "Document", "Imported", "ImportedMessage", "Unreadable"]
