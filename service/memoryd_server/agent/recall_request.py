"""The request of a recall: bounds, defaults and violations. As in `requests`, `resolve` checks the fields."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from memoryd_server.agent.config import AgentConfig
from memoryd_server.agent.entry_search import ENTRY_FOLDER
from memoryd_server.agent.filter_request import NO_FILTER, FilterRequest
from memoryd_server.agent.requests import MOST_LINE_NUMBER, MOST_PATH_BYTES, FieldChecks, Request
from memoryd_server.model import Origin, Source
from memoryd_server.recall import CHARS_PER_TOKEN, CONVERSATION_WORDS, Budget, FileLines, LeastConfidence
from memoryd_server.search import SearchMode, SearchQuery

MOST_TEXT_BYTES = 2 * 2**20
MOST_MESSAGES = 64
MOST_REFERENCES = 4_096

CANDIDATES = 12
"""Results that are considered for a block. About half of them fit the default budget."""
CANDIDATES_OF_A_SESSION = 24
"""The same for a session that has seen some of them."""
MOST_PASSAGE_CHARS = 1_000
_LEAST_PASSAGE_CHARS = 160
_PASSAGES_PER_BUDGET = 6

_TRUSTED = (Origin.OWNER, Origin.AGENT)


@dataclass(frozen=True, slots=True)
class RecallPlan:
    """What a recall has to do.

    `query` has everything but its text, which is made of the turn. `seen` are the passages that the caller says the
    session has seen.
    """

    text: str
    recent_messages: Sequence[str]
    query: SearchQuery
    budget: Budget
    session_key: str
    seen: tuple[FileLines, ...]
    remember_shown: bool
    search_files: bool
    entries: bool
    entries_are_named: bool
    least_confidence: LeastConfidence


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryRecallRequest(Request):
    """A turn of a session. The fields are those of the contract's `MemoryRecallRequest`.

    No `sources` means those that the agent's configuration searches by default, and its entries. `entries` is whether
    entries are named, and `search_files` whether files are searched.
    """

    text: str
    session_key: str = ""
    recent_messages: tuple[str, ...] = ()
    max_tokens: int | None = None
    max_chars: int | None = None
    sources: tuple[Source, ...] = ()
    entries: bool = False
    search_files: bool = True
    filter: FilterRequest = NO_FILTER
    seen: tuple[FileLines, ...] = ()
    remember_shown: bool = False
    now: datetime | None = None
    active_projects: tuple[str, ...] = ()
    min_confidence: float | None = None
    max_staleness: float | None = None

    def resolve(self, config: AgentConfig, now: datetime, deadline: float) -> RecallPlan:
        """Return what to do; `now` replaces an unset clock, and `deadline` is in `time.monotonic()` seconds."""
        checks = FieldChecks(self, self.unreadable)
        checks.session_key(config.agent_id)
        settings, confidence = config.recall, checks.share("min_confidence")
        tokens, chars = checks.positive("max_tokens"), checks.positive("max_chars")
        budget = Budget(settings.max_tokens if tokens is None and chars is None else tokens, chars)
        if self.remember_shown and not self.session_key:
            checks.violation(
                "session_key", "must not be empty with remember_shown; what is shown is kept for a session"
            )
        self._check_sizes(checks)
        query = SearchQuery(
            text="",
            max_results=CANDIDATES_OF_A_SESSION if self.remember_shown or self.seen else CANDIDATES,
            min_score=config.min_score,
            min_score_is_requested=False,
            sources=self.sources or config.searched_sources,
            mode=SearchMode.UNSPECIFIED,
            max_snippet_chars=_passage_chars(budget),
            citations=False,
            max_total_chars=None,
            deadline=deadline,
            now=self.now or now,
            active_projects=checks.projects(),
            abstain_below=0.0,
            files=checks.files(),
            origins=() if settings.include_untrusted else _TRUSTED,
            embedding_seconds=settings.embedding_seconds,
            rerank=False,
            builtin_only=True,
            common_words=CONVERSATION_WORDS,
            max_staleness=checks.max_staleness(),
        )
        checks.check()
        return RecallPlan(
            text=self.text,
            recent_messages=self.recent_messages,
            query=query,
            budget=budget,
            session_key=self.session_key,
            seen=self.seen,
            remember_shown=self.remember_shown,
            search_files=self.search_files,
            entries=self.entries or not self.sources,
            entries_are_named=self.entries,
            least_confidence=LeastConfidence(settings.min_confidence, settings.min_keyword_confidence)
            if confidence is None
            else LeastConfidence(confidence, confidence),
        )

    def _check_sizes(self, checks: FieldChecks) -> None:
        checks.text("text", most_bytes=MOST_TEXT_BYTES)
        messages, seen = self.recent_messages, self.seen
        if len(messages) > MOST_MESSAGES:
            checks.violation("recent_messages", f"has {len(messages):,} messages; at most {MOST_MESSAGES} are allowed")
        elif (size := sum(len(message.encode()) for message in messages)) > MOST_TEXT_BYTES:
            checks.violation("recent_messages", f"are {size:,} bytes long; at most {MOST_TEXT_BYTES:,} are allowed")
        if len(seen) > MOST_REFERENCES:
            checks.violation("seen", f"has {len(seen):,} passages; at most {MOST_REFERENCES:,} are allowed")
        elif any(not lines.path or len(lines.path.encode()) > MOST_PATH_BYTES for lines in seen):
            checks.violation("seen", f"has a path that is empty or has more than {MOST_PATH_BYTES:,} bytes")
        elif not all(map(_is_valid, seen)):
            checks.violation("seen", "has lines that do not begin at 1 or later, or end before they begin")


def _is_valid(lines: FileLines) -> bool:
    # An entry has no lines.
    return lines.path.startswith(ENTRY_FOLDER) or 1 <= lines.start_line <= lines.end_line <= MOST_LINE_NUMBER


def _passage_chars(budget: Budget) -> int:
    """Return the most code points of a passage: a small budget is for several passages too."""
    limits = [budget.chars, None if budget.tokens is None else CHARS_PER_TOKEN * budget.tokens]
    chars = min(limit for limit in limits if limit is not None)
    return min(MOST_PASSAGE_CHARS, max(_LEAST_PASSAGE_CHARS, chars // _PASSAGES_PER_BUDGET))
