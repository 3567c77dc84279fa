"""The words that the index holds: how many chunks each stands in, and which names hold a given piece."""

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import apsw

from memoryd_server.index.connection import scalar
from memoryd_server.text import QueryTerm

# A list of names that took a second to read is read anew no sooner than so many seconds after.
_SECONDS_OF_USE_A_SECOND_OF_READING = 20.0

_MOST_FREQUENCIES_KEPT = 20_000
_MOST_NAMES_LOOKED_AT = 300


@dataclass(slots=True)
class KnownWords:
    """What was looked up at one revision. Document frequencies of prefixes are kept under their text and a "*"."""

    revision: int
    frequencies: dict[str, int] = field(default_factory=dict)
    chunks: int | None = None


@dataclass(frozen=True, slots=True)
class NameList:
    """The names in the index, one a line. `good_until` is when, by the monotonic clock, it may be replaced."""

    revision: int
    lines: str
    good_until: float


@dataclass(slots=True)
class VocabularyMemo:
    """What all readers of one index remember together. Each replaces what it finds out of date."""

    words: KnownWords | None = None
    names: NameList | None = None


class Vocabulary:
    """The words of one snapshot, of `revision`."""

    def __init__(self, connection: apsw.Connection, memo: VocabularyMemo, revision: int) -> None:
        self._connection = connection
        self._memo = memo
        self._revision = revision
        known = memo.words
        if known is None or known.revision != revision or len(known.frequencies) > _MOST_FREQUENCIES_KEPT:
            known = memo.words = KnownWords(revision)
        self._known = known

    def frequency(self, term: str) -> int:
        """In how many chunks `term` stands."""
        known = self._known.frequencies.get(term)
        if known is None:
            row = self._connection.execute("SELECT doc FROM temp.vocabulary WHERE term = ?", (term,)).fetchone()
            known = self._known.frequencies[term] = 0 if row is None else int(row[0])
        return known

    def term_frequency(self, term: QueryTerm) -> int:
        """In how many chunks a term stands, or begins another where it is a prefix."""
        return self.prefix_frequency(term.text) if term.prefix else self.frequency(term.text)

    def prefix_frequency(self, prefix: str) -> int:
        """In how many chunks a term stands that begins with `prefix`."""
        key = f"{prefix}*"
        known = self._known.frequencies.get(key)
        if known is None:
            count = "SELECT count(*) FROM keyword WHERE keyword MATCH ?"
            known = int(scalar(self._connection, count, (expression(prefix, prefix=True),)))
            self._known.frequencies[key] = known
        return known

    def known(self, terms: Sequence[str]) -> tuple[str, ...]:
        """Those of `terms` that the index holds. Quick where it holds none of them, which is the rule for guesses."""
        unsure = [term for term in terms if term not in self._known.frequencies]
        if unsure:
            match = " OR ".join(map(expression, unsure))
            row = self._connection.execute("SELECT 1 FROM keyword WHERE keyword MATCH ? LIMIT 1", (match,)).fetchone()
            if row is None:
                self._known.frequencies.update(dict.fromkeys(unsure, 0))
        return tuple(term for term in terms if self.frequency(term))

    def chunks(self) -> int:
        """How many chunks the keyword leg holds, as BM25 counts them."""
        if self._known.chunks is None:
            # FTS5's record of averages: the number of rows, then the number of tokens in each column; empty at first.
            averages = bytes(scalar(self._connection, "SELECT block FROM keyword_data WHERE id = 1"))
            self._known.chunks = next(_varints(averages), 0)
        return self._known.chunks

    def names_with(self, piece: str, limit: int) -> list[str]:
        """At most `limit` names (terms with "_" or a digit in them) that hold `piece`, those with the least else first.

        Costs milliseconds where names must be read first: after a change, and then not at once in a large index, so
        that a name may be missed for some seconds.
        """
        lines = self._names().lines
        found: list[str] = []
        at = lines.find(piece)
        while at >= 0 and len(found) < _MOST_NAMES_LOOKED_AT:
            start, end = lines.rfind("\n", 0, at) + 1, lines.find("\n", at)
            found.append(lines[start:end])
            at = lines.find(piece, end)
        return sorted(found, key=len)[:limit]

    def _names(self) -> NameList:
        names, now = self._memo.names, time.monotonic()
        if names is None or (names.revision != self._revision and now >= names.good_until):
            names = self._memo.names = self._read_names(now)
        return names

    def _read_names(self, began: float) -> NameList:
        rows = self._connection.execute("SELECT term FROM temp.vocabulary WHERE term GLOB '*[_0-9]*'")
        lines = "\n".join(term for (term,) in rows) + "\n"
        now = time.monotonic()
        return NameList(self._revision, lines, now + _SECONDS_OF_USE_A_SECOND_OF_READING * (now - began))


def expression(term: str, *, prefix: bool = False) -> str:
    """The term as an FTS5 string, quotes doubled: never FTS5 syntax."""
    quoted = '"' + term.replace('"', '""') + '"'
    return quoted + "*" if prefix else quoted


def any_of(terms: Sequence[QueryTerm]) -> str:
    """An FTS5 expression that matches what holds any of these terms."""
    return " OR ".join(expression(term.text, prefix=term.prefix) for term in terms)


def _varints(block: bytes) -> Iterator[int]:
    """SQLite's numbers, seven bits a byte, the last below 128. Ten-digit counts are far below its nine-byte form."""
    value = 0
    for byte in block:
        value = value << 7 | byte & 0x7F
        if byte == byte & 0x7F:
            yield value
            value = 0
