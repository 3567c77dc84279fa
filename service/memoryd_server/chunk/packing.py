"""Packs the lines of a text into spans of bounded size.

A line is one segment, or several when it is long; a span is segments joined by newlines. Sizes are weighted lengths
(`cjk_length`), one more for each segment's newline. A span also never has more UTF-16 units than its bound: where the
overlap and the next segment would, the overlap is cut to its end and the segment to the room that is left.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

from memoryd_server.chunk.lengths import head, measure_for, tail, utf16_length

_MIN_UNITS = 32
_UNITS_PER_TOKEN = 4


@dataclass(frozen=True, slots=True)
class Span:
    """Text with the numbers of its first and last line."""

    text: str
    start_line: int
    end_line: int


@dataclass(frozen=True, slots=True)
class Limits:
    """Sizes in UTF-16 units: of a span, of the overlap, and of the segments of a line in a dense script."""

    span: int
    overlap: int
    dense_segment: int

    @classmethod
    def of_tokens(cls, tokens: int, overlap: int) -> "Limits":
        """Returns the limits for sizes in tokens; a span is never smaller than 32 units."""
        return cls(
            span=max(_MIN_UNITS, tokens * _UNITS_PER_TOKEN),
            overlap=max(0, overlap * _UNITS_PER_TOKEN),
            dense_segment=max(1, tokens),
        )


class _Segment(NamedTuple):
    line: int
    text: str
    cost: int


def pack(text: str, limits: Limits) -> list[Span]:
    """Returns the spans of `text` in order, numbered from line 1. Empty text gives one empty span.

    Linear in the length of `text`; lines are told apart by line feeds alone, so a carriage return stays in its line.
    """
    packer = _Packer(limits, measure_for(text))
    packer.add_lines(text.split("\n"))
    packer.emit()
    return packer.spans


class _Packer:
    """Collects segments until the next one does not fit."""

    def __init__(self, limits: Limits, measure: Callable[[str], int]) -> None:
        self.spans: list[Span] = []
        self._limits = limits
        self._measure = measure
        self._segments: list[_Segment] = []
        self._size = 0

    def add_lines(self, lines: Sequence[str]) -> None:
        """Adds the lines, the first of which is number 1."""
        measure, most = self._measure, self._limits.span
        for number, line in enumerate(lines, 1):
            cost = measure(line) + 1
            # Most lines simply fit: the only path that a line of ordinary text pays for.
            if self._size + cost <= most:
                self._segments.append(_Segment(number, line, cost))
                self._size += cost
            elif cost <= most + 1:
                self._add_line(_Segment(number, line, cost))
            else:
                self._add_long(number, line)

    def _add_line(self, segment: _Segment) -> None:
        """Adds a whole line; where the overlap leaves room for a part of it only, the rest goes into the next span."""
        taken = self._add(segment)
        if taken < len(segment.text):
            self._add_long(segment.line, segment.text[taken:])

    def _add_long(self, number: int, text: str) -> None:
        """Adds a line segment by segment, cutting anew behind one that was taken in part."""
        start = 0
        while start < len(text):
            for part in self._segments_at(text, start):
                taken = self._add(_Segment(number, part, self._measure(part) + 1))
                start += taken
                if taken < len(part):
                    break

    def emit(self) -> None:
        """Ends the span."""
        text = "\n".join([segment.text for segment in self._segments])
        self.spans.append(Span(text, self._segments[0].line, self._segments[-1].line))

    def _segments_at(self, text: str, start: int) -> Iterator[str]:
        piece = head(text[start : start + self._limits.span], self._limits.span)
        if self._measure(piece) <= self._limits.span:
            yield piece
            return
        cuts = [0]
        while cuts[-1] < len(piece):
            cuts.append(cuts[-1] + self._dense_length(piece, cuts[-1]))
        for begin, end in pairwise(cuts):
            yield piece[begin:end]

    def _dense_length(self, piece: str, start: int) -> int:
        units = self._limits.dense_segment
        part = head(piece[start : start + units], units)
        short_of_a_pair = utf16_length(part) < units and start + len(part) < len(piece)
        return len(part) + short_of_a_pair

    def _add(self, segment: _Segment) -> int:
        """Adds a segment, ending the span first where it does not fit, and returns how many characters were taken."""
        if self._size + segment.cost > self._limits.span and self._segments:
            self.emit()
            self._keep_overlap()
            if self._segments and self._outgrows(segment):
                return self._squeeze(segment)
        self._segments.append(segment)
        self._size += segment.cost
        return len(segment.text)

    def _keep_overlap(self) -> None:
        """Keeps the last segments, as many as reach the overlap; at least one, unless there is no overlap."""
        kept = 0
        first = len(self._segments)
        while first > 0 and kept < self._limits.overlap:
            first -= 1
            kept += self._segments[first].cost
        self._segments = self._segments[first:]
        self._size = kept

    def _outgrows(self, segment: _Segment) -> bool:
        # Weighted sizes are never smaller than units, so they settle the common case.
        if self._size + segment.cost <= self._limits.span:
            return False
        return self._units() + 1 + utf16_length(segment.text) > self._limits.span

    def _units(self) -> int:
        return sum(utf16_length(segment.text) + 1 for segment in self._segments) - 1

    def _squeeze(self, segment: _Segment) -> int:
        """Cuts the kept segments to their end and adds what of `segment` fits. Returns how many characters that is.

        A part of a line that directly follows a kept part of the same line is joined to it without a newline.
        """
        self._cut_overlap()
        joins = bool(self._segments) and self._segments[-1].line == segment.line
        room = self._limits.span - self._units() - (not joins)
        taken = head(segment.text, room)
        before = self._segments.pop().text if joins else ""
        text = before + taken
        self._segments.append(_Segment(segment.line, text, self._measure(text) + 1))
        self._size = sum(each.cost for each in self._segments)
        return len(taken)

    def _cut_overlap(self) -> None:
        # Half of the span at most, so that every span brings something new however large the overlap is.
        room = min(self._limits.overlap, self._limits.span // 2)
        kept: list[_Segment] = []
        for segment in reversed(self._segments):
            end = tail(segment.text, room)
            if room <= 0 or (segment.text and not end):
                break
            kept.append(_Segment(segment.line, end, self._measure(end) + 1))
            room -= utf16_length(end) + 1
        self._segments = kept[::-1]
