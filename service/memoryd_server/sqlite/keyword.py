"""The vocabulary of the FTS5 index: the document frequency of each term, and the names that contain a given string."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import apsw

from memoryd_server.sqlite.connection import scalar
from memoryd_server.text import QueryTerm

# How many times as long as reading it took a list of names is used.
_NAMES_USE_FACTOR = 20.0

_MAX_FREQUENCIES = 20_000
_MAX_NAMES_CHECKED = 300

LAST_CHARACTER = "\U0010ffff"
"""A term that begins with a prefix is smaller than the prefix and this character, which no term has."""


class TermCounts(NamedTuple):
    """The number of chunks that contain a term, and the number of its occurrences in them."""

    chunks: int
    occurrences: int


_ABSENT = TermCounts(0, 0)


@dataclass(slots=True)
class RevisionFrequencies:
    """The frequencies looked up at one revision. The key of a prefix is its text followed by "*"."""

    revision: int
    counts: dict[str, TermCounts] = field(default_factory=dict)
    chunks: int | None = None


@dataclass(frozen=True, slots=True)
class SymbolList:
    """The names in the index, one per line. From `use_until` (monotonic seconds) on, the list may be replaced."""

    revision: int
    lines: str
    use_until: float


@dataclass(slots=True)
class SharedVocabulary:
    """The vocabulary caches shared by all readers of one index. A reader replaces caches that are outdated."""

    words: RevisionFrequencies | None = None
    names: SymbolList | None = None


class Vocabulary:
    """The terms of one snapshot, of `revision`."""

    def __init__(self, connection: apsw.Connection, shared: SharedVocabulary, revision: int) -> None:
        self._connection = connection
        self._shared = shared
        self._revision = revision
        known = shared.words
        if known is None or known.revision != revision or len(known.counts) > _MAX_FREQUENCIES:
            known = shared.words = RevisionFrequencies(revision)
        self._cache = known

    def frequency(self, term: str) -> int:
        """Return the number of chunks that contain `term`."""
        return self._counts(term).chunks

    def term_frequency(self, term: QueryTerm) -> int:
        """Return the number of chunks that contain a term or, if it is a prefix, a term that begins with it."""
        return self.term_counts(term).chunks

    def term_counts(self, term: QueryTerm) -> TermCounts:
        """Return the counts of a term or, if it is a prefix, of all terms that begin with it."""
        return self._prefix_counts(term.text) if term.prefix else self._counts(term.text)

    def _counts(self, term: str) -> TermCounts:
        counts = self._cache.counts.get(term)
        if counts is None:
            row = self._connection.execute("SELECT doc, cnt FROM temp.vocabulary WHERE term = ?", (term,)).fetchone()
            counts = self._cache.counts[term] = _ABSENT if row is None else TermCounts(*row)
        return counts

    def _prefix_counts(self, prefix: str) -> TermCounts:
        key = f"{prefix}*"
        counts = self._cache.counts.get(key)
        if counts is None:
            count = "SELECT count(*) FROM keyword WHERE keyword MATCH ?"
            chunks = int(scalar(self._connection, count, (expression(prefix, prefix=True),)))
            total = "SELECT coalesce(sum(cnt), 0) FROM temp.vocabulary WHERE term >= ? AND term < ?"
            occurrences = int(scalar(self._connection, total, (prefix, prefix + LAST_CHARACTER)))
            counts = self._cache.counts[key] = TermCounts(chunks, occurrences)
        return counts

    def occurring(self, terms: Sequence[str]) -> tuple[str, ...]:
        """Return those of `terms` that occur in the index. Fast if none does, as is usual for guessed terms."""
        unknown = [term for term in terms if term not in self._cache.counts]
        if unknown:
            match = " OR ".join(map(expression, unknown))
            row = self._connection.execute("SELECT 1 FROM keyword WHERE keyword MATCH ? LIMIT 1", (match,)).fetchone()
            if row is None:
                self._cache.counts.update(dict.fromkeys(unknown, _ABSENT))
        return tuple(term for term in terms if self.frequency(term))

    def chunks(self) -> int:
        """Return the number of chunks in the keyword index, as BM25 counts them."""
        if self._cache.chunks is None:
            # Each chunk has one row in the keyword table, but counting these is several hundred times as slow.
            self._cache.chunks = int(scalar(self._connection, "SELECT count(*) FROM chunks"))
        return self._cache.chunks

    def names_containing(self, piece: str, limit: int) -> list[str]:
        """Return at most `limit` names (terms with "_" or a digit) that contain `piece`, the shortest first.

        Costs milliseconds if the names have to be read first. They are read again some time after a change, so that in
        a large index a name may be missing for some seconds.
        """
        lines = self._names().lines
        names: list[str] = []
        at = lines.find(piece)
        while at >= 0 and len(names) < _MAX_NAMES_CHECKED:
            start, end = lines.rfind("\n", 0, at) + 1, lines.find("\n", at)
            names.append(lines[start:end])
            at = lines.find(piece, end)
        return sorted(names, key=len)[:limit]

    def _names(self) -> SymbolList:
        names, now = self._shared.names, time.monotonic()
        if names is None or (names.revision != self._revision and now >= names.use_until):
            names = self._shared.names = self._read_names(now)
        return names

    def _read_names(self, started: float) -> SymbolList:
        rows = self._connection.execute("SELECT term FROM temp.vocabulary WHERE term GLOB '*[_0-9]*'")
        lines = "\n".join(term for (term,) in rows) + "\n"
        now = time.monotonic()
        return SymbolList(self._revision, lines, now + _NAMES_USE_FACTOR * (now - started))


def expression(term: str, *, prefix: bool = False) -> str:
    """Return the term as an FTS5 string with doubled quotes, so that it is never FTS5 syntax."""
    quoted = '"' + term.replace('"', '""') + '"'
    return quoted + "*" if prefix else quoted


def any_of(terms: Sequence[QueryTerm]) -> str:
    """Return an FTS5 expression that matches rows that contain any of these terms."""
    return " OR ".join(expression(term.text, prefix=term.prefix) for term in terms)
