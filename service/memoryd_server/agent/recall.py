"""Recall: what an agent's memory contains about a turn of a session, or the reason why the block is empty.

The turn is reduced to a short query, which is searched like any other. What is found is returned only if the answer is
relevant enough: a block is inserted before a turn without a request of the user, so for most turns it must be empty.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import Executor
from contextlib import nullcontext
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from enum import StrEnum
from typing import NamedTuple

from memoryd_server.agent.config import AgentConfig
from memoryd_server.agent.entry_search import EntryAnswer, EntryQuery, SharedEntrySearch, alternating, can_match
from memoryd_server.agent.files import SessionContext
from memoryd_server.agent.index import run_on
from memoryd_server.agent.recall_request import RecallPlan
from memoryd_server.agent.search import SearchResult
from memoryd_server.model import Clock, utc_day
from memoryd_server.recall import (
    CONVERSATION_WORDS,
    Block,
    FileLines,
    Passage,
    SeenPassages,
    Selection,
    ShownPassages,
    hits_of_dates,
    is_relevant,
    make_block,
    past_dates,
    read_turn,
    select,
    with_context,
)
from memoryd_server.search import (
    NO_ANSWER,
    DateRange,
    EmptyReason,
    Hit,
    SearchAnswer,
    SearchQuery,
    citation,
    is_date_word,
    names_in,
)
from memoryd_server.text import Analyzer

# A question with fewer words of its own, without those of conversation, is searched with the message before it.
_FEW_WORDS = 3
_ENTRIES = 3
_ENTRY_CHARS = 1_000
_ENTRY_SECONDS = 0.5
# The latest time in nanoseconds, for lines that were seen whatever has become of their file.
_EVER = 2**63 - 1


class SilentReason(StrEnum):
    """Why a block is empty. The names are those of the wire's enum."""

    NO_QUERY = "NO_QUERY"
    EMPTY_INDEX = "EMPTY_INDEX"
    NOTHING_RELEVANT = "NOTHING_RELEVANT"
    ALREADY_SEEN = "ALREADY_SEEN"
    BUDGET_TOO_SMALL = "BUDGET_TOO_SMALL"
    SCOPE_DENIED = "SCOPE_DENIED"


@dataclass(frozen=True, slots=True)
class RecallAnswer:
    """A block and its passages, or the reason why it is empty; and the search that found them."""

    block: Block
    search: SearchResult
    silent_reason: SilentReason | None = None
    explanation: str = ""


class _Turn(NamedTuple):
    """What a turn is searched for, empty if it is not searched; its names and telling words, as in `Hit.words`.

    `dates` are ranges of days whose notes are relevant because the turn asks about nothing else.
    """

    text: str
    is_question: bool = False
    names: frozenset[str] = frozenset()
    words: frozenset[str] = frozenset()
    dates: tuple[DateRange, ...] = ()


class Recaller:
    """Recalls for one agent. Use it on the event loop's thread.

    `search` searches the agent's files, and `result` adds the agent's state to an answer.
    """

    def __init__(
        self,
        search: Callable[[SearchQuery, str], Awaitable[SearchAnswer]],
        result: Callable[[SearchAnswer, float], SearchResult],
        analyzer: Analyzer,
        entries: SharedEntrySearch,
        clock: Clock,
    ) -> None:
        self._search = search
        self._result = result
        self._analyzer = analyzer
        self._entries = entries
        self._clock = clock
        self._shown = ShownPassages(clock.monotonic)
        self._composing = asyncio.Lock()

    def forget_session(self, session_key: str) -> None:
        """Forget what a session has seen."""
        self._shown.forget(session_key)

    def record_context(self, session_key: str, context: SessionContext, read_at_ns: int) -> None:
        """Record the files that a session has read at its start, at this time or later."""
        read = [FileLines(file.path, file.start_line, file.end_line) for file in context.files if file.text]
        if session_key and read:
            self._shown.add_lines(session_key, read, read_at_ns)

    async def recall(
        self, plan: RecallPlan, config: AgentConfig, languages: Sequence[str], threads: Executor
    ) -> RecallAnswer:
        """Return the block for a turn. `languages` are those of the index."""
        began = self._clock.monotonic()
        turn = await run_on(threads, self._read_turn, plan, languages)
        if not turn.text:
            explanation = "the turn has nothing to search for: no words, only those of conversation, or a command"
            return self._silent(NO_ANSWER, began, SilentReason.NO_QUERY, explanation)
        query = replace(plan.query, text=turn.text)
        answer, entries = await asyncio.gather(self._search_files(plan, query), self._find_entries(plan, config, query))
        answer = replace(answer, degradations=(*answer.degradations, *entries.degradations))
        relevant = is_relevant(answer, plan.least_confidence, turn.names, turn.words, is_question=turn.is_question)
        hits = answer.hits if relevant else hits_of_dates(answer.hits, turn.dates)
        of_entries = [hit.as_hit(_ENTRY_CHARS, citations=False) for hit in entries.hits]
        if answer.empty_reason is EmptyReason.SCOPE_DENIED:
            of_entries = []
        passages = [_passage(hit) for hit in alternating(of_entries, hits)]
        # Two recalls of one session at the same time must not return the same passage.
        async with self._composing if plan.remember_shown else nullcontext():
            chosen, block = await run_on(threads, _compose, passages, self._seen(plan), plan)
            if plan.remember_shown and block.passages:
                self._shown.add(plan.session_key, [passage.text for passage in block.passages])
        if block.passages:
            return RecallAnswer(block, self._ended(answer, began))
        return self._silent(answer, began, *_reason(answer, chosen, plan, relevant=relevant))

    def _read_turn(self, plan: RecallPlan, languages: Sequence[str]) -> _Turn:
        """Return what to search for; nothing for a turn that is only conversation.

        A question that is made of such words only is searched, because its meaning or its date may be known.
        """
        turn = read_turn(plan.text)
        text, words = turn.query, self._telling_words(turn.query, languages)
        if turn.is_question and len(words) < _FEW_WORDS and plan.recent_messages:
            text = with_context(turn, plan.recent_messages[-1])
            words = self._telling_words(text, languages)
        dates = past_dates(text, plan.query.now or datetime.now(UTC)) if turn.is_question else ()
        if dates and all(map(is_date_word, words)):
            return _Turn(text, dates=dates)
        if words:
            names = (self._telling_words(name, languages) for name in names_in(text))
            return _Turn(text, turn.is_question, frozenset(word for found in names for word in found), frozenset(words))
        has_words = turn.is_question and self._analyzer.content_words(text, languages)
        return _Turn(text if has_words else "", turn.is_question)

    def _telling_words(self, text: str, languages: Sequence[str]) -> list[str]:
        found = self._analyzer.content_words(text, languages) if text else ()
        return [word for word in found if word not in CONVERSATION_WORDS]

    async def _search_files(self, plan: RecallPlan, query: SearchQuery) -> SearchAnswer:
        return await self._search(query, plan.session_key) if plan.search_files else NO_ANSWER

    async def _find_entries(self, plan: RecallPlan, config: AgentConfig, query: SearchQuery) -> EntryAnswer:
        wanted = plan.entries_are_named or (plan.entries and self._entries.recalls(config))
        if not wanted or not can_match(query.files):
            return EntryAnswer()
        began = self._clock.monotonic()
        entry_query = EntryQuery(
            text=query.text,
            limit=_ENTRIES,
            min_score=0.0,
            # They may have to be opened first, which takes seconds and continues for the next recall.
            deadline=began + min(_ENTRY_SECONDS, (query.deadline - began) / 2),
            for_prompt=True,
            since=query.files.since,
            until=query.files.until,
            embedding_seconds=query.embedding_seconds,
        )
        return await self._entries.find(config, entry_query)

    def _seen(self, plan: RecallPlan) -> SeenPassages:
        seen = self._shown.seen(plan.session_key) if plan.remember_shown else SeenPassages()
        return seen._replace(ranges=(*seen.ranges, *((lines, _EVER) for lines in plan.seen)))

    def _silent(self, answer: SearchAnswer, began: float, reason: SilentReason, explanation: str) -> RecallAnswer:
        return RecallAnswer(Block(""), self._ended(answer, began), reason, explanation)

    def _ended(self, answer: SearchAnswer, began: float) -> SearchResult:
        return self._result(answer, self._clock.monotonic() - began)


def _compose(passages: Sequence[Passage], seen: SeenPassages, plan: RecallPlan) -> tuple[Selection, Block]:
    chosen = select(passages, seen)
    return chosen, make_block(chosen.passages, plan.budget)


def _reason(answer: SearchAnswer, chosen: Selection, plan: RecallPlan, *, relevant: bool) -> tuple[SilentReason, str]:
    if chosen.passages:
        return SilentReason.BUDGET_TOO_SMALL, "not even one passage fits the budget; raise max_tokens or max_chars"
    if chosen.seen_any:
        return SilentReason.ALREADY_SEEN, "the session has already seen everything that is relevant"
    if answer.empty_reason is EmptyReason.SCOPE_DENIED:
        return SilentReason.SCOPE_DENIED, answer.empty_explanation
    if answer.empty_reason is EmptyReason.EMPTY_INDEX:
        return SilentReason.EMPTY_INDEX, answer.empty_explanation
    explanation = answer.empty_explanation or "no text matches the turn"
    if answer.hits and not relevant:
        explanation = _why_irrelevant(answer, plan)
    if plan.query.origins:
        explanation += "; text of other people and programs was not searched (memoryd.recall.includeUntrusted is false)"
    return SilentReason.NOTHING_RELEVANT, explanation


def _why_irrelevant(answer: SearchAnswer, plan: RecallPlan) -> str:
    least = plan.least_confidence.of(answer)
    if answer.confidence is not None and answer.confidence < least:
        return f"the confidence of the results is {answer.confidence:.2f}, below {least:.2f}"
    return "no result shares a rare word, a name or an identifier with the turn, or is close to its meaning"


def _passage(hit: Hit) -> Passage:
    words = f"words: {', '.join(hit.words)}" if hit.words else ""
    nearness = "" if hit.vector_score is None else f"similarity {hit.vector_score:.2f}"
    named = "date in the turn" if hit.date else ""
    reason = "; ".join(part for part in (words, nearness, named) if part)
    # Parts of one long line are joined by line feeds.
    end_line = min(hit.snippet_end_line, hit.end_line)
    return Passage(
        path=hit.path,
        start_line=hit.snippet_start_line,
        end_line=end_line,
        citation=hit.path if hit.source is None else citation(hit.path, hit.snippet_start_line, end_line),
        text=hit.snippet,
        day=hit.day or utc_day(hit.mtime_ns / 1e9),
        score=hit.score,
        why="similar entry" if hit.source is None else reason,
        source=hit.source,
        origin=hit.origin,
        mtime_ns=hit.mtime_ns,
    )
