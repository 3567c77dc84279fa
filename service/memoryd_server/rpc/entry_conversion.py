"""Answers of the EntryService as messages."""

from collections.abc import Iterable

from memoryd.v1 import entry_service_pb2 as pb
from memoryd_server.backend.entry_memory import Forgotten, Recalled
from memoryd_server.entries.block import recall_block
from memoryd_server.entries.capture import IMPORTANCE, Refusal, Suggestion
from memoryd_server.entries.model import Category, Entry, Listing, Position, Remembered, Scored
from memoryd_server.model import Degradation
from memoryd_server.rpc.conversion import degradation
from memoryd_server.rpc.entry_calls import token_after
from memoryd_server.rpc.messages import build_message
from memoryd_server.rpc.times import timestamp

MOST_PAGE_BYTES = 1024 * 1024


def _category(value: Category) -> str:
    return f"ENTRY_CATEGORY_{value.upper()}"


def entry(value: Entry) -> pb.Entry:
    """An entry."""
    return build_message(
        pb.Entry,
        entry_id=value.entry_id,
        text=value.text,
        importance=value.importance,
        category=_category(value.category),
        create_time=timestamp(value.created_ms * 1_000_000),
    )


def _scored(values: Iterable[Scored]) -> list[pb.ScoredEntry]:
    return [pb.ScoredEntry(entry=entry(value.entry), score=value.score) for value in values]


def remembered(value: Remembered, degradations: Iterable[Degradation]) -> pb.RememberResponse:
    """What became of a text."""
    return pb.RememberResponse(
        action=f"REMEMBER_ACTION_{value.action}",
        entry=entry(value.entry),
        score=value.score,
        degradations=map(degradation, degradations),
    )


def recalled(value: Recalled) -> pb.RecallResponse:
    """What was recalled."""
    return pb.RecallResponse(entries=_scored(value.entries), degradations=map(degradation, value.degradations))


def forgotten(value: Forgotten) -> pb.ForgetResponse:
    """What was forgotten."""
    if value.deleted is not None:
        action = pb.FORGET_ACTION_DELETED
    else:
        action = pb.FORGET_ACTION_CANDIDATES if value.candidates else pb.FORGET_ACTION_NOTHING_FOUND
    return pb.ForgetResponse(
        action=action,
        deleted=None if value.deleted is None else entry(value.deleted),
        candidates=_scored(value.candidates),
        degradations=map(degradation, value.degradations),
    )


def listed(value: Listing) -> pb.ListEntriesResponse:
    """A page, which ends where it would grow too large; one entry is always on it."""
    shown: list[Entry] = []
    room = MOST_PAGE_BYTES
    for each in value.entries:
        room -= len(each.text.encode())
        if shown and room < 0:
            break
        shown.append(each)
    more = value.more or len(shown) < len(value.entries)
    token = token_after(Position(shown[-1].created_ms, shown[-1].entry_id)) if more else ""
    return pb.ListEntriesResponse(entries=map(entry, shown), next_page_token=token, total=value.total)


def captured(
    suggestions: Iterable[Suggestion], refusals: Iterable[Refusal], *, auto_capture: bool
) -> pb.SuggestCaptureResponse:
    """What of a turn would be worth storing."""
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


def block(value: Recalled) -> pb.RecallBlockResponse:
    """The block of what was recalled."""
    return pb.RecallBlockResponse(
        block=recall_block([found.entry for found in value.entries]),
        entries=_scored(value.entries),
        empty_reason=pb.RECALL_BLOCK_EMPTY_REASON_UNSPECIFIED
        if value.entries
        else pb.RECALL_BLOCK_EMPTY_REASON_NOTHING_NEAR,
        degradations=map(degradation, value.degradations),
    )
