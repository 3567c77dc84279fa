"""The requests of `benchmarks/answers.py`: each question with different fields and texts.

Each variant is a kind of request, so that few questions reach most of the paths of a search.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from answer_memories import Memory, Question

from memoryd import messages
from memoryd.client import MemorydClient

# The questions without a day are asked on this one, a while after the last file was modified.
_DEFAULT_DAY = "2025-08-15"
# No answer may depend on how busy the machine is.
_SECONDS = 120.0
_MOST_BYTES = 4_000

PROFILES: Mapping[str, Mapping[str, Any]] = {
    "default": {},
    "mmr": {"query": {"hybrid": {"mmr": {"enabled": True}}}},
    "decay": {"query": {"hybrid": {"temporalDecay": {"enabled": True, "halfLifeDays": 90}}}},
    "weights": {
        "query": {
            "maxResults": 8,
            "minScore": 0.3,
            "hybrid": {"vectorWeight": 0.4, "textWeight": 0.6, "candidateMultiplier": 2},
        }
    },
    "vectors": {"query": {"hybrid": {"enabled": False}}},
}
"""The settings of `memorySearch` by name. `vectors` is for hybrid search only."""


def _fields(**fields: Any) -> Callable[[Question], dict[str, Any]]:
    return lambda question: {"query": question.text, "max_results": 6} | fields


def _text(change: Callable[[str], str]) -> Callable[[Question], dict[str, Any]]:
    return lambda question: {"query": change(question.text).strip() or question.text, "max_results": 6}


def _cut(text: str) -> str:
    """Return a beginning that ends inside a word, as while a user types."""
    return text[: max(2, len(text) * 3 // 5)]


def _longest_word(text: str) -> str:
    return max(text.split(), key=len)


def _long(text: str) -> str:
    return (f"{text} " * 40).encode()[:_MOST_BYTES].decode("utf-8", "ignore")


_PLAIN = _fields(max_results=10, citations=messages.CITATION_MODE_OFF)
_VARIANTS: Mapping[str, Callable[[Question], dict[str, Any]]] = {
    "explain": _fields(explain=True),
    "one": _fields(max_results=1),
    "fifty": _fields(max_results=50, max_snippet_chars=120),
    "min-score": _fields(min_score=0.35),
    "high-min-score": _fields(min_score=0.7, max_results=20),
    "since": _fields(filter={"since": "2023-07"}),
    "month": _fields(filter={"since": "2023-05", "until": "2023-06-15"}, max_results=20),
    "path": _fields(filter={"path_prefixes": ["memory/2023-0", "memory/0", "memory/docs", "memory/en/"]}),
    "one-file": lambda question: _fields(filter={"path_prefixes": [question.path]}, max_results=20)(question),
    "front-matter": _fields(
        filter={
            "front_matter": [{"key": "tags", "values": ["red", "blue"]}, {"key": "project", "values": ["P1", "p2"]}]
        }
    ),
    "memory": _fields(sources=[messages.SOURCE_MEMORY]),
    "sessions": _fields(sources=[messages.SOURCE_SESSIONS]),
    "projects": _fields(active_projects=["p1", "p2/web"], max_results=20),
    "citations": _fields(citations=messages.CITATION_MODE_ON, max_total_chars=900, max_snippet_chars=300),
    "long-snippets": _fields(max_snippet_chars=4_000, max_results=3),
    "abstain": _fields(abstain_below=0.5),
    "cut": _text(_cut),
    "word": _text(_longest_word),
    "character": _text(lambda text: text[:1]),
    "reversed": _text(lambda text: " ".join(reversed(text.split()))),
    "long": _text(_long),
    "date": _text(lambda text: f"{text} in May 2023"),
    "yesterday": _text(lambda text: f"What was yesterday: {text}"),
    "several-scripts": _text(lambda text: f"{text} 什么时候 いつ when"),
    "explain-fifty": _fields(explain=True, max_results=50, filter={"until": "2024-06"}),
    "keyword": _fields(mode=messages.SEARCH_MODE_KEYWORD, max_results=10),
    "vector": _fields(mode=messages.SEARCH_MODE_VECTOR, max_results=10),
    "vector-min-score": _fields(mode=messages.SEARCH_MODE_VECTOR, min_score=0.1, max_results=30),
}
_HYBRID_ONLY = ("keyword", "vector", "vector-min-score")
_RECALL = "recall"
_MISS = "miss"


class Call:
    """One call: `name` is unique in the calls of a memory, `run` returns the response."""

    def __init__(self, agent: str, variant: str, question: Question) -> None:
        self.name = f"{agent}: {question.key}/{variant}"
        self._agent = agent
        self._variant = variant
        self._question = question

    def run(self, client: MemorydClient) -> Any:
        """Call the daemon.

        Raises:
            MemorydError: the status is not OK.
        """
        question, now = self._question, _now(self._question)
        key = f"agent:{self._agent}:cli:direct:answers"
        if self._variant == _RECALL:
            request = messages.MemoryRecallRequest(agent_id=self._agent, session_key=key, text=question.text)
            request.now.FromDatetime(now)
            return client.recall(request, timeout=_SECONDS)
        make = _VARIANTS.get(self._variant, _PLAIN)
        search = messages.MemorySearchRequest(agent_id=self._agent, session_key=key, **make(question))
        search.now.FromDatetime(now)
        if self._variant == _MISS:
            miss = messages.ExplainMissRequest(agent_id=self._agent, search=search, path=question.path)
            return client.explain_miss(miss, timeout=_SECONDS)
        return client.search(search, timeout=_SECONDS)


def calls(memory: Memory, profile: str, *, hybrid: bool, exhaustive: bool) -> Iterator[Call]:
    """Yield the calls about a memory.

    With the default settings, a question is searched as `memoryd eval` does and in two variants, or in all of them if
    `exhaustive`. With other settings, it is searched in one variant. Successive questions have different variants.
    """
    variants = (
        [*_VARIANTS, _RECALL, _MISS]
        if hybrid
        else [*(set_ for set_ in _VARIANTS if set_ not in _HYBRID_ONLY), _RECALL, _MISS]
    )
    first = sum(map(ord, memory.agent))
    for number, question in enumerate(memory.questions, start=first):
        yield from (
            Call(memory.agent, name, question) for name in _chosen(variants, profile, number, exhaustive=exhaustive)
        )


def _chosen(variants: Sequence[str], profile: str, number: int, *, exhaustive: bool) -> list[str]:
    count = len(variants)
    if exhaustive:
        return ["plain", *variants]
    if profile == "default":
        return ["plain", variants[number % count], variants[(number + count // 2) % count]]
    # Every third question with the settings alone: these matter most.
    return ["plain" if number % 3 == 0 else variants[number % count]]


def _now(question: Question) -> datetime:
    return datetime.fromisoformat(f"{question.day or _DEFAULT_DAY}T12:00").replace(tzinfo=UTC)
