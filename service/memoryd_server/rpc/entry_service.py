"""EntryService: read the request, call one method of the agent's entries, convert its result.

A request that is not valid is refused with all its violations. Bounds are those of the contract's comments.
"""

import asyncio
import math
import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from memoryd.v1 import entry_service_pb2 as pb
from memoryd.v1.entry_service_pb2_grpc import EntryServiceServicer, add_EntryServiceServicer_to_server
from memoryd_server.agent import MOST_KEY_BYTES, MOST_QUERY_BYTES, Agents
from memoryd_server.entries import (
    IMPORTANCE,
    LEAST_PROMPT_CHARS,
    CaptureRefusal,
    CaptureSuggestion,
    Entry,
    EntryCategory,
    EntryForgetResult,
    EntryMemories,
    EntryPage,
    ListPosition,
    NewEntry,
    RecallResult,
    RememberResult,
    ScoredEntry,
    recall_block,
    suggest,
)
from memoryd_server.errors import FieldViolation, InvalidRequest
from memoryd_server.model import Degradation
from memoryd_server.rpc import responses
from memoryd_server.rpc.health import EntryHealth, ExtensionService
from memoryd_server.rpc.memory_service import MemoryService
from memoryd_server.rpc.requests import FieldReader, page_request
from memoryd_server.rpc.wire import Context, build_message, fitting, make_page_token, read_page_token, timestamp

ENTRY_SERVICE = "memoryd.v1.EntryService"


class EntryService(EntryServiceServicer):
    """Answers every RPC of the contract's second service, with the deadlines of `memory_service`."""

    def __init__(self, agents: Agents, entries: EntryMemories, memory_service: MemoryService) -> None:
        self._agents = agents
        self._entries = entries
        self._memory_service = memory_service

    async def Remember(self, request: pb.RememberRequest, context: Context) -> pb.RememberResponse:
        """Store an entry, unless an equivalent one is stored."""
        deadline = self._memory_service.deadline(context)
        async with self._entries.use(self._agents.memory_config(request.agent_id), deadline) as memory:
            new = remember_call(request)
            return remembered(*await deadline.limit(memory.remember(new, deadline.at)))

    async def Recall(self, request: pb.RecallRequest, context: Context) -> pb.RecallResponse:
        """Return the entries nearest to a text."""
        deadline = self._memory_service.deadline(context)
        async with self._entries.use(self._agents.memory_config(request.agent_id), deadline) as memory:
            call = recall_call(request)
            work = memory.recall(call.query, call.limit, call.min_score, call.categories, deadline.at)
            return recalled(await deadline.limit(work))

    async def Forget(self, request: pb.ForgetRequest, context: Context) -> pb.ForgetResponse:
        """Delete an entry by its id, or the one that a text clearly means."""
        deadline = self._memory_service.deadline(context)
        async with self._entries.use(self._agents.memory_config(request.agent_id), deadline) as memory:
            call = forget_call(request)
            if call.entry_id:
                return forgotten(EntryForgetResult(await deadline.limit(memory.forget(call.entry_id))))
            return forgotten(await deadline.limit(memory.forget_by_text(call.query, deadline.at)))

    async def ListEntries(self, request: pb.ListEntriesRequest, context: Context) -> pb.ListEntriesResponse:
        """Return a page of an agent's entries, newest first."""
        deadline = self._memory_service.deadline(context)
        async with self._entries.use(self._agents.memory_config(request.agent_id), deadline) as memory:
            call = list_call(request)
            return listed(await deadline.limit(memory.page(call.after, call.size, call.categories)))

    async def SuggestCapture(self, request: pb.SuggestCaptureRequest, context: Context) -> pb.SuggestCaptureResponse:
        """Return which of a turn's messages are worth storing."""
        config = self._entries.require_config(self._agents.memory_config(request.agent_id))
        messages = captured_messages(request)
        work = asyncio.to_thread(suggest, messages, config.capture_max_chars)
        judged = await self._memory_service.deadline(context).limit(work)
        return captured(*judged, auto_capture=config.auto_capture)

    async def RecallBlock(self, request: pb.RecallBlockRequest, context: Context) -> pb.RecallBlockResponse:
        """Return the entries that concern a prompt, as a block to put before it."""
        config = self._agents.memory_config(request.agent_id)
        prompt = prompt_of(request)
        if not self._entries.require_config(config).auto_recall:
            return pb.RecallBlockResponse(empty_reason=pb.RECALL_BLOCK_EMPTY_REASON_OFF)
        if len(prompt) < LEAST_PROMPT_CHARS:
            return pb.RecallBlockResponse(empty_reason=pb.RECALL_BLOCK_EMPTY_REASON_PROMPT_TOO_SHORT)
        deadline = self._memory_service.deadline(context)
        async with self._entries.use(config, deadline) as memory:
            return block(await deadline.limit(memory.recall_for_prompt(prompt, deadline.at)))


def make_entry_service(
    agents: Agents, entries: EntryMemories, memory_service: MemoryService, *, checked: bool
) -> ExtensionService:
    """Return the EntryService for a server to add; its health is checked only if it is `checked`."""
    servicer = EntryService(agents, entries, memory_service)
    health = EntryHealth(agents, entries) if checked else None
    return ExtensionService(ENTRY_SERVICE, servicer, add_EntryServiceServicer_to_server, health)


MOST_TEXT_BYTES = 128 * 1024
MOST_ENTRIES = 50
DEFAULT_ENTRIES = 5
DEFAULT_MIN_SCORE = 0.1
DEFAULT_IMPORTANCE = 0.7
MOST_MESSAGES = 1_000
MOST_MESSAGES_BYTES = 1024 * 1024

_LIST = "entries"

_CATEGORIES: Mapping[int, EntryCategory] = {
    pb.ENTRY_CATEGORY_UNSPECIFIED: EntryCategory.OTHER,
    pb.ENTRY_CATEGORY_PREFERENCE: EntryCategory.PREFERENCE,
    pb.ENTRY_CATEGORY_FACT: EntryCategory.FACT,
    pb.ENTRY_CATEGORY_DECISION: EntryCategory.DECISION,
    pb.ENTRY_CATEGORY_ENTITY: EntryCategory.ENTITY,
    pb.ENTRY_CATEGORY_OTHER: EntryCategory.OTHER,
}
# As a filter, UNSPECIFIED matches no entry.
_NAMED: Mapping[int, EntryCategory] = {
    number: category for number, category in _CATEGORIES.items() if number != pb.ENTRY_CATEGORY_UNSPECIFIED
}


@dataclass(frozen=True, slots=True)
class RecallRequest:
    """A text to recall entries by, and which entries."""

    query: str
    limit: int
    min_score: float
    categories: tuple[EntryCategory, ...]


@dataclass(frozen=True, slots=True)
class EntryForgetRequest:
    """What to forget: an entry by its id or, if the id is empty, the one that a text means."""

    entry_id: str
    query: str


@dataclass(frozen=True, slots=True)
class EntryListRequest:
    """A page of the list: at most `size` entries after a position."""

    after: ListPosition | None
    size: int
    categories: tuple[EntryCategory, ...]


def remember_call(request: pb.RememberRequest) -> NewEntry:
    """Return the new entry of a valid request."""
    fields = FieldReader(request)
    key = fields.text("idempotency_key", most_bytes=MOST_KEY_BYTES)
    if not all("!" <= character <= "~" or character == " " for character in key):
        fields.violation("idempotency_key", "must be printable ASCII characters")
    importance = _share(fields, "importance", DEFAULT_IMPORTANCE)
    new = NewEntry(
        text=fields.text("text", most_bytes=MOST_TEXT_BYTES, required=True),
        importance=importance,
        category=fields.choice("category", _CATEGORIES),
        key=key,
    )
    fields.check()
    return new


def recall_call(request: pb.RecallRequest) -> RecallRequest:
    """Return a valid request."""
    fields = FieldReader(request)
    call = RecallRequest(
        query=fields.text("query", most_bytes=MOST_QUERY_BYTES, required=True),
        limit=fields.clamped("limit", DEFAULT_ENTRIES, MOST_ENTRIES),
        min_score=_share(fields, "min_score", DEFAULT_MIN_SCORE),
        categories=fields.choices("categories", _NAMED),
    )
    fields.check()
    return call


def _share(fields: FieldReader, field: str, default: float) -> float:
    if fields.value(field) is not None and math.isnan(fields.value(field)):
        fields.violation(field, "is not a number")
        return default
    value = fields.share(field)
    return default if value is None else value


def forget_call(request: pb.ForgetRequest) -> EntryForgetRequest:
    """Return a valid request."""
    fields = FieldReader(request)
    target = request.WhichOneof("target")
    call = EntryForgetRequest("", "")
    if target is None:
        fields.violation("target", "is missing; give an entry_id or a query")
    elif target == "query":
        call = EntryForgetRequest("", fields.text("query", most_bytes=MOST_QUERY_BYTES, required=True))
    else:
        call = EntryForgetRequest(_uuid(fields, request.entry_id), "")
    fields.check()
    return call


def _uuid(fields: FieldReader, text: str) -> str:
    try:
        return str(uuid.UUID(text.strip()))
    except ValueError:
        fields.violation("entry_id", f"{text[:64]!r} is not the UUID of an entry; Recall and ListEntries return these")
        return ""


def list_call(request: pb.ListEntriesRequest) -> EntryListRequest:
    """Return a valid request."""
    fields = FieldReader(request)
    categories = fields.choices("categories", _NAMED)
    fields.check()
    page = page_request(request)
    page.check()
    return EntryListRequest(_position(page.page_token), page.size, categories)


def token_after(position: ListPosition) -> str:
    """Return the token of the page after a position."""
    return make_page_token(_LIST, f"{position.created_ms}:{position.entry_id}")


def _position(token: str) -> ListPosition | None:
    text = read_page_token(_LIST, token)
    if not text:
        return None
    try:
        created_ms, entry_id = text.split(":")
        return ListPosition(int(created_ms), str(uuid.UUID(entry_id)))
    except ValueError:
        raise InvalidRequest([FieldViolation("page_token", "is not a next_page_token of this list")]) from None


def captured_messages(request: pb.SuggestCaptureRequest) -> list[str]:
    """Return the messages of a valid request."""
    fields = FieldReader(request)
    messages = list(request.user_messages)
    if len(messages) > MOST_MESSAGES:
        fields.violation("user_messages", f"are {len(messages):,}; at most {MOST_MESSAGES:,} are allowed")
    if (size := sum(len(message.encode()) for message in messages)) > MOST_MESSAGES_BYTES:
        fields.violation("user_messages", f"are {size:,} bytes long; at most {MOST_MESSAGES_BYTES:,} are allowed")
    fields.check()
    return messages


def prompt_of(request: pb.RecallBlockRequest) -> str:
    """Return the part of a prompt that is compared with entries."""
    return request.prompt.strip().encode()[:MOST_QUERY_BYTES].decode("utf-8", "ignore")


def _category(value: EntryCategory) -> str:
    return f"ENTRY_CATEGORY_{value.upper()}"


def _cut(text: str) -> str:
    if 4 * len(text) <= MOST_TEXT_BYTES:
        return text
    return text.encode("utf-8", "replace")[:MOST_TEXT_BYTES].decode("utf-8", "ignore")


def entry(value: Entry) -> pb.Entry:
    """Return an entry. A longer text than can be stored, which another program has written, is cut."""
    return build_message(
        pb.Entry,
        entry_id=value.entry_id,
        text=_cut(value.text),
        importance=value.importance,
        category=_category(value.category),
        create_time=timestamp(value.created_ms * 1_000_000),
    )


def scored_entries(values: Iterable[ScoredEntry]) -> list[pb.ScoredEntry]:
    """Return entries with their scores; only the first ones that fit a reply."""
    return fitting(values, lambda value: pb.ScoredEntry(entry=entry(value.entry), score=value.score))


def remembered(value: RememberResult, degradations: Iterable[Degradation]) -> pb.RememberResponse:
    """Return what was done with a text."""
    return pb.RememberResponse(
        action=f"REMEMBER_ACTION_{value.action}",
        entry=entry(value.entry),
        score=value.score,
        degradations=responses.degradations(degradations),
    )


def recalled(value: RecallResult) -> pb.RecallResponse:
    """Return the recalled entries."""
    return pb.RecallResponse(
        entries=scored_entries(value.entries), degradations=responses.degradations(value.degradations)
    )


def forgotten(value: EntryForgetResult) -> pb.ForgetResponse:
    """Return what was deleted, or the candidates."""
    if value.deleted is not None:
        action = pb.FORGET_ACTION_DELETED
    else:
        action = pb.FORGET_ACTION_CANDIDATES if value.candidates else pb.FORGET_ACTION_NOTHING_FOUND
    return pb.ForgetResponse(
        action=action,
        deleted=None if value.deleted is None else entry(value.deleted),
        candidates=scored_entries(value.candidates),
        degradations=responses.degradations(value.degradations),
    )


def listed(value: EntryPage) -> pb.ListEntriesResponse:
    """Return a page, which ends before it is too large; it has at least one entry."""
    shown = fitting(value.entries, entry)
    more = value.more or len(shown) < len(value.entries)
    last = value.entries[len(shown) - 1] if more else None
    token = "" if last is None else token_after(ListPosition(last.created_ms, last.entry_id))
    return pb.ListEntriesResponse(entries=shown, next_page_token=token, total=value.total)


def captured(
    suggestions: Iterable[CaptureSuggestion], refusals: Iterable[CaptureRefusal], *, auto_capture: bool
) -> pb.SuggestCaptureResponse:
    """Return which messages of a turn are worth storing, and why the others are not."""
    return pb.SuggestCaptureResponse(
        suggestions=[
            pb.CaptureSuggestion(
                message_index=found.index,
                text=found.text,
                category=_category(found.category),
                importance=IMPORTANCE,
                trigger=f"CAPTURE_TRIGGER_{found.trigger}",
            )
            for found in suggestions
        ],
        refusals=[
            pb.CaptureRefusal(
                message_index=found.index,
                exclusion=f"CAPTURE_EXCLUSION_{found.exclusion}",
            )
            for found in refusals
        ],
        auto_capture=auto_capture,
    )


def block(value: RecallResult) -> pb.RecallBlockResponse:
    """Return the block of recalled entries."""
    return pb.RecallBlockResponse(
        block=recall_block([found.entry for found in value.entries]),
        entries=scored_entries(value.entries),
        empty_reason=pb.RECALL_BLOCK_EMPTY_REASON_UNSPECIFIED
        if value.entries
        else pb.RECALL_BLOCK_EMPTY_REASON_NOTHING_NEAR,
        degradations=responses.degradations(value.degradations),
    )
