"""Requests of the EntryService into values, or every violation at once. Bounds are those of the contract's comments."""

import math
import uuid
from collections.abc import Mapping
from dataclasses import dataclass

from memoryd.v1 import entry_service_pb2 as pb
from memoryd_server.entries.model import Category, Position
from memoryd_server.entries.store import NewEntry
from memoryd_server.errors import FieldViolation, InvalidRequest
from memoryd_server.rpc.fields import Fields
from memoryd_server.rpc.opaque import make_page_token, read_page_token
from memoryd_server.rpc.validation import MOST_KEY_BYTES, MOST_QUERY_BYTES, page

MOST_TEXT_BYTES = 128 * 1024
MOST_ENTRIES = 50
DEFAULT_ENTRIES = 5
DEFAULT_MIN_SCORE = 0.1
DEFAULT_IMPORTANCE = 0.7
MOST_MESSAGES = 1_000
MOST_MESSAGES_BYTES = 1024 * 1024

_LIST = "entries"
_CATEGORIES: Mapping[int, Category] = {
    pb.ENTRY_CATEGORY_UNSPECIFIED: Category.OTHER,
    pb.ENTRY_CATEGORY_PREFERENCE: Category.PREFERENCE,
    pb.ENTRY_CATEGORY_FACT: Category.FACT,
    pb.ENTRY_CATEGORY_DECISION: Category.DECISION,
    pb.ENTRY_CATEGORY_ENTITY: Category.ENTITY,
    pb.ENTRY_CATEGORY_OTHER: Category.OTHER,
}
# In a list to look in, "not set" asks for nothing that there is.
_NAMED: Mapping[int, Category] = {
    number: category for number, category in _CATEGORIES.items() if number != pb.ENTRY_CATEGORY_UNSPECIFIED
}


@dataclass(frozen=True, slots=True)
class RecallCall:
    """A text to recall entries by."""

    query: str
    limit: int
    min_score: float
    categories: tuple[Category, ...]


@dataclass(frozen=True, slots=True)
class ForgetCall:
    """What to forget: an entry's id, or, where that is empty, what a text means."""

    entry_id: str
    query: str


@dataclass(frozen=True, slots=True)
class ListCall:
    """A page of the list."""

    after: Position | None
    size: int
    categories: tuple[Category, ...]


def remember_call(request: pb.RememberRequest) -> NewEntry:
    """A checked RememberRequest."""
    fields = Fields(request)
    key = fields.text("idempotency_key", most_bytes=MOST_KEY_BYTES)
    if not all("!" <= character <= "~" or character == " " for character in key):
        fields.violation("idempotency_key", "must be printable ASCII characters")
    importance = _share(fields, request, "importance", DEFAULT_IMPORTANCE)
    new = NewEntry(
        text=fields.text("text", most_bytes=MOST_TEXT_BYTES, required=True),
        importance=importance,
        category=fields.choice("category", _CATEGORIES),
        key=key,
    )
    fields.check()
    return new


def recall_call(request: pb.RecallRequest) -> RecallCall:
    """A checked RecallRequest."""
    fields = Fields(request)
    call = RecallCall(
        query=fields.text("query", most_bytes=MOST_QUERY_BYTES, required=True),
        limit=fields.clamped("limit", DEFAULT_ENTRIES, MOST_ENTRIES),
        min_score=_share(fields, request, "min_score", DEFAULT_MIN_SCORE),
        categories=fields.choices("categories", _NAMED),
    )
    fields.check()
    return call


def _share(fields: Fields, request: pb.RememberRequest | pb.RecallRequest, field: str, default: float) -> float:
    if fields.has(field) and math.isnan(getattr(request, field)):
        fields.violation(field, "is not a number")
        return default
    value = fields.share(field)
    return default if value is None else value


def forget_call(request: pb.ForgetRequest) -> ForgetCall:
    """A checked ForgetRequest."""
    fields = Fields(request)
    target = request.WhichOneof("target")
    call = ForgetCall("", "")
    if target is None:
        fields.violation("target", "is missing; give an entry_id or a query")
    elif target == "query":
        call = ForgetCall("", fields.text("query", most_bytes=MOST_QUERY_BYTES, required=True))
    else:
        call = ForgetCall(_uuid(fields, request.entry_id), "")
    fields.check()
    return call


def _uuid(fields: Fields, text: str) -> str:
    try:
        return str(uuid.UUID(text.strip()))
    except ValueError:
        fields.violation(
            "entry_id", f"{text[:64]!r} is not a UUID such as an entry has; Recall and ListEntries tell them"
        )
        return ""


def list_call(request: pb.ListEntriesRequest) -> ListCall:
    """A checked ListEntriesRequest."""
    fields = Fields(request)
    categories = fields.choices("categories", _NAMED)
    fields.check()
    asked = page(request)
    return ListCall(_position(asked.token), asked.size, categories)


def token_after(position: Position) -> str:
    """The token of the page after a position."""
    return make_page_token(_LIST, f"{position.created_ms}:{position.entry_id}")


def _position(token: str) -> Position | None:
    text = read_page_token(_LIST, token)
    if not text:
        return None
    try:
        created_ms, entry_id = text.split(":")
        return Position(int(created_ms), str(uuid.UUID(entry_id)))
    except ValueError:
        raise InvalidRequest([FieldViolation("page_token", "is not a next_page_token of this list")]) from None


def captured_messages(request: pb.SuggestCaptureRequest) -> list[str]:
    """The messages of a checked SuggestCaptureRequest."""
    fields = Fields(request)
    messages = list(request.user_messages)
    if len(messages) > MOST_MESSAGES:
        fields.violation("user_messages", f"are {len(messages):,}; at most {MOST_MESSAGES:,} are allowed")
    if (size := sum(len(message.encode()) for message in messages)) > MOST_MESSAGES_BYTES:
        fields.violation("user_messages", f"are {size:,} bytes long; at most {MOST_MESSAGES_BYTES:,} are allowed")
    fields.check()
    return messages


def prompt_of(request: pb.RecallBlockRequest) -> str:
    """The part of a prompt that is looked at."""
    return request.prompt.strip().encode()[:MOST_QUERY_BYTES].decode("utf-8", "ignore")
