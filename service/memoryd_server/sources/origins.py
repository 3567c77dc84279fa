"""Where a text comes from, by the location of its file or by the fields that the gateway stores with a message. Pure.

Nothing in a text can change its origin.
"""

from collections.abc import Mapping
from typing import Any, Final

from memoryd_server.model import Origin, Source
from memoryd_server.sources.roots import LONG_TERM_NAMES, MEMORY_FOLDER

CURATED_FILES: Final = ("MEMORY.md", "USER.md")
"""The files of the workspace's root that the agent curates: a list of entries, whose annotations all count."""

_GENERATED_FOLDERS = ("memory/dreaming/", "memory/.dreams/")


def is_curated(path: str) -> bool:
    """Return whether a display path is that of a curated file."""
    return path in CURATED_FILES


def origin_of_file(source: Source, path: str) -> Origin:
    """Return the origin of a file's text, by its display path; of a transcript, that of an unknown sender."""
    if source is Source.SESSIONS:
        return Origin.UNTRUSTED
    if path.startswith(_GENERATED_FOLDERS):
        return Origin.SYSTEM
    if path in CURATED_FILES or path in LONG_TERM_NAMES or path.startswith(f"{MEMORY_FOLDER}/"):
        return Origin.AGENT
    return Origin.UNTRUSTED


def origin_of_message(message: Mapping[str, Any], *, is_answer: bool) -> Origin:
    """Return the origin of a transcript's message, by the structured fields of its record."""
    host = message.get("__openclaw")
    fields = host if isinstance(host, dict) else {}
    if is_answer:
        # The gateway marks the turns in which the agent read untrusted content.
        return Origin.UNTRUSTED if fields.get("turnTainted") is True else Origin.AGENT
    return Origin.OWNER if fields.get("senderIsOwner") is True else Origin.UNTRUSTED
