"""Split Markdown into chunks with the headings above them.

`pack` collects the lines of a text into spans of bounded size. A line is one segment, or several if it is long; a span
is segments joined by newlines. Sizes are weighted lengths (`cjk_length`), plus one for each segment's newline. A span
also never has more UTF-16 units than its limit: if the overlap and the next segment would exceed it, the overlap is cut
to its end and the segment to the remaining room.

`breadcrumbs` returns the headings above a line: ATX headings (`## Title`) outside code fences. `split_utf8` cuts text
at a number of UTF-8 bytes, as embedding providers count.

Lengths are UTF-16 units, or weighted lengths for chunk sizes. Both are never smaller than the number of code points,
and equal to it for ASCII. A lone surrogate is one unit.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from hashlib import sha256
from itertools import pairwise
from typing import Final, NamedTuple

from memoryd_server.model import Chunk

_MIN_UNITS = 32
_UNITS_PER_TOKEN = 4


@dataclass(frozen=True, slots=True)
class TextSpan:
    """Text with the numbers of its first and last line."""

    text: str
    start_line: int
    end_line: int


@dataclass(frozen=True, slots=True)
class ChunkLimits:
    """Sizes in UTF-16 units: of a span, of the overlap, and of the segments of a line in a dense script."""

    span: int
    overlap: int
    dense_segment: int

    @classmethod
    def from_tokens(cls, tokens: int, overlap: int) -> "ChunkLimits":
        """Return the limits for sizes in tokens; a span is never smaller than 32 units."""
        return cls(
            span=max(_MIN_UNITS, tokens * _UNITS_PER_TOKEN),
            overlap=max(0, overlap * _UNITS_PER_TOKEN),
            dense_segment=max(1, tokens),
        )


class _Segment(NamedTuple):
    line: int
    text: str
    cost: int


def pack(text: str, limits: ChunkLimits) -> list[TextSpan]:
    """Return the spans of `text` in order, numbered from line 1. An empty text gives one empty span.

    Linear in the length of `text`. Lines end at line feeds only, so a carriage return stays in its line.
    """
    packer = _Packer(limits, measure_for(text))
    packer.add_lines(text.split("\n"))
    packer.end_span()
    return packer.spans


class _Packer:
    """Collects segments until the next one does not fit."""

    def __init__(self, limits: ChunkLimits, measure: Callable[[str], int]) -> None:
        self.spans: list[TextSpan] = []
        self._limits = limits
        self._measure = measure
        self._segments: list[_Segment] = []
        self._size = 0

    def add_lines(self, lines: Sequence[str]) -> None:
        """Add the lines; the first is number 1."""
        measure, most = self._measure, self._limits.span
        for number, line in enumerate(lines, 1):
            cost = measure(line) + 1
            # Most lines fit, so the common case comes first.
            if self._size + cost <= most:
                self._segments.append(_Segment(number, line, cost))
                self._size += cost
            elif cost <= most + 1:
                self._add_line(_Segment(number, line, cost))
            else:
                self._add_long(number, line)

    def _add_line(self, segment: _Segment) -> None:
        """Add a whole line; if the overlap leaves room for a part only, the rest goes into the next span."""
        taken = self._add(segment)
        if taken < len(segment.text):
            self._add_long(segment.line, segment.text[taken:])

    def _add_long(self, number: int, text: str) -> None:
        """Add a line segment by segment; after a segment that was added in part, segment the rest again."""
        start = 0
        while start < len(text):
            for part in self._segments_at(text, start):
                taken = self._add(_Segment(number, part, self._measure(part) + 1))
                start += taken
                if taken < len(part):
                    break

    def end_span(self) -> None:
        """End the span."""
        text = "\n".join([segment.text for segment in self._segments])
        self.spans.append(TextSpan(text, self._segments[0].line, self._segments[-1].line))

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
        """Add a segment, ending the span first if it does not fit, and return the number of characters added."""
        if self._size + segment.cost > self._limits.span and self._segments:
            self.end_span()
            self._keep_overlap()
            if self._segments and self._exceeds_span(segment):
                return self._add_after_cut(segment)
        self._segments.append(segment)
        self._size += segment.cost
        return len(segment.text)

    def _keep_overlap(self) -> None:
        """Keep the last segments that reach the overlap; at least one, unless there is no overlap."""
        kept = 0
        first = len(self._segments)
        while first > 0 and kept < self._limits.overlap:
            first -= 1
            kept += self._segments[first].cost
        self._segments = self._segments[first:]
        self._size = kept

    def _exceeds_span(self, segment: _Segment) -> bool:
        # Weighted sizes are never smaller than units, so they settle the common case.
        if self._size + segment.cost <= self._limits.span:
            return False
        return self._units() + 1 + utf16_length(segment.text) > self._limits.span

    def _units(self) -> int:
        return sum(utf16_length(segment.text) + 1 for segment in self._segments) - 1

    def _add_after_cut(self, segment: _Segment) -> int:
        """Cut the kept segments to their end, add the part of `segment` that fits, and return its number of characters.

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
        # Half of the span at most, so that every span contains new text however large the overlap is.
        room = min(self._limits.overlap, self._limits.span // 2)
        kept: list[_Segment] = []
        for segment in reversed(self._segments):
            end = tail(segment.text, room)
            if room <= 0 or (segment.text and not end):
                break
            kept.append(_Segment(segment.line, end, self._measure(end) + 1))
            room -= utf16_length(end) + 1
        self._segments = kept[::-1]


def chunk_markdown(body: str, tokens: int, overlap: int, first_line: int = 1) -> list[Chunk]:
    """Return the chunks of `body` in the order of their lines; the first line is number `first_line`.

    A chunk has at most `max(32, tokens * 4)` UTF-16 units and shares about `overlap * 4` with the previous one. An
    empty text gives one empty chunk, as in OpenClaw; `indexable_chunks` leaves out blank ones.
    """
    spans = pack(body, ChunkLimits.from_tokens(tokens, overlap))
    crumbs = breadcrumbs(body, [span.start_line for span in spans])
    return [make_chunk(span, crumb, first_line - 1) for span, crumb in zip(spans, crumbs, strict=True)]


def indexable_chunks(body: str, tokens: int, overlap: int, first_line: int = 1) -> list[Chunk]:
    """Return the chunks of `body` that contain more than white space; see `chunk_markdown`."""
    return [chunk for chunk in chunk_markdown(body, tokens, overlap, first_line) if not _is_blank(chunk.text)]


def _is_blank(text: str) -> bool:
    return not text or text.isspace()


def make_chunk(span: TextSpan, breadcrumb: str, offset: int) -> Chunk:
    """Return the chunk of a span whose lines are numbered from 1 + `offset`."""
    return Chunk(
        text=span.text,
        start_line=span.start_line + offset,
        end_line=span.end_line + offset,
        # Text with lone surrogates has no UTF-8 form; it must not stop the indexing of its file.
        content_hash=sha256(span.text.encode("utf-8", "surrogatepass")).digest(),
        breadcrumb=breadcrumb,
    )


MAX_BREADCRUMB_CHARS: Final = 200
_SEPARATOR = " > "

# A heading, or a line that can open or close a code fence. A line feed instead of "^" lets the search skip from line to
# line.
_MARK = re.compile(r"\n {0,3}(?:(#{1,6})(?:[ \t]+(.*))?\r?$|(`{3,}|~{3,})(.*)$)", re.MULTILINE)


class Heading(NamedTuple):
    """An ATX heading: its line, its level from 1 to 6, and its title."""

    line: int
    level: int
    title: str


def breadcrumbs(body: str, lines: Sequence[int]) -> list[str]:
    """Return, for each line number, the titles of the headings above it, outermost first, joined by " > ".

    `lines` are 1-based and ascending. A heading is not above itself, and closes those of its own level and deeper. The
    outermost titles of a breadcrumb longer than 200 characters are left out.
    """
    if not lines or lines[-1] == 1 or "#" not in body:
        return [""] * len(lines)
    found = headings(body)
    ahead = next(found, None)
    stack: list[Heading] = []
    result = []
    for line in lines:
        while ahead and ahead.line <= line:
            _push(stack, ahead)
            ahead = next(found, None)
        result.append(_join([heading.title for heading in stack if heading.line < line]))
    return result


def _push(stack: list[Heading], heading: Heading) -> None:
    while stack and stack[-1].level >= heading.level:
        stack.pop()
    stack.append(heading)


def _join(titles: list[str]) -> str:
    shown = [title for title in titles if title]
    while len(shown) > 1 and len(_SEPARATOR.join(shown)) > MAX_BREADCRUMB_CHARS:
        del shown[0]
    return _SEPARATOR.join(shown)[:MAX_BREADCRUMB_CHARS]


def headings(body: str) -> Iterator[Heading]:
    """Yield the headings of `body` outside code fences, in order."""
    line, counted, fence = 0, 0, ""
    for mark in _MARK.finditer("\n" + body):
        hashes, title, ticks, info = mark.groups()
        if ticks:
            fence = fence_after(fence, ticks, info)
        elif not fence:
            line += mark.string.count("\n", counted, mark.start(1))
            counted = mark.start(1)
            # One character above the limit marks a title as too long. The rest would be stored with every chunk below.
            yield Heading(line, len(hashes), _clean(title or "")[: MAX_BREADCRUMB_CHARS + 1])


def fence_after(fence: str, ticks: str, info: str) -> str:
    """Return the fence that is open after a line of `ticks` and `info`, or ""."""
    if not fence:
        return "" if ticks[0] == "`" and "`" in info else ticks
    closes = ticks.startswith(fence) and not info.strip()
    return "" if closes else fence


def _clean(title: str) -> str:
    words = " ".join(title.split())
    without_closing = words.rstrip("#")
    if without_closing.endswith(" ") or not without_closing:
        return without_closing.rstrip()
    return words


# Characters of scripts in which one character is about one token, and so weighs as much as four Latin letters.
_WIDE = re.compile("[\u2e80-\u9fff\ua000-\ua4ff\uac00-\ud7af\uf900-\ufaff\U00020000-\U0002fa1f]+")
_WIDE_WEIGHT = 4
# All characters that can weigh more than 1: the scripts above, and UTF-16 surrogate pairs.
_NOT_SINGLE = re.compile("[\u2e80-\U0010ffff]")


def utf16_length(text: str) -> int:
    """Return the number of UTF-16 code units of `text`."""
    if text.isascii():
        return len(text)
    return len(text.encode("utf-16-le", "surrogatepass")) // 2


def cjk_length(text: str) -> int:
    """Return the weighted length of `text`: 4 for each CJK, Yi or Hangul character, else its UTF-16 units."""
    if text.isascii():
        return len(text)
    narrow = _WIDE.sub("", text)
    return utf16_length(narrow) + _WIDE_WEIGHT * (len(text) - len(narrow))


def measure_for(text: str) -> Callable[[str], int]:
    """Return the cheapest function that gives `cjk_length` for every part of `text`."""
    return len if text.isascii() or not _NOT_SINGLE.search(text) else cjk_length


def head(text: str, units: int) -> str:
    """Return the longest beginning of `text` with at most `units` UTF-16 units that ends between code points."""
    part = text[: max(0, units)]
    while (excess := utf16_length(part) - units) > 0 and part:
        part = part[: -max(1, excess // 2)]
    return part


def tail(text: str, units: int) -> str:
    """Return the longest end of `text` with at most `units` UTF-16 units that begins between code points."""
    part = text[-units:] if units > 0 else ""
    while (excess := utf16_length(part) - units) > 0 and part:
        part = part[max(1, excess // 2) :]
    return part


def split_utf8(text: str, max_bytes: int) -> list[str]:
    """Return `text` in parts of at most `max_bytes` UTF-8 bytes, cut between code points; joined they are `text`.

    `max_bytes` of 0 means no limit. A code point longer than `max_bytes` becomes a separate part, so that no text is
    lost. The result has at least one part.
    """
    data = text.encode("utf-8", "surrogatepass")
    if max_bytes <= 0 or len(data) <= max_bytes:
        return [text]
    parts = []
    start = 0
    while start < len(data):
        end = _cut(data, start, max_bytes)
        parts.append(data[start:end].decode("utf-8", "surrogatepass"))
        start = end
    return parts


def _cut(data: bytes, start: int, max_bytes: int) -> int:
    """Return the end of the part that begins at `start`: always beyond `start`, always between code points."""
    end = min(start + max_bytes, len(data))
    while end > start and _inside(data, end):
        end -= 1
    if end == start:
        end += 1
        while _inside(data, end):
            end += 1
    return end


def _inside(data: bytes, at: int) -> bool:
    return at < len(data) and data[at] & 0xC0 == 0x80  # noqa: PLR2004 -- UTF-8's continuation bytes are 10xxxxxx


CHUNKER_VERSION: Final = 1
"""Increased by every change that gives other chunks for the same text and numbers; then every file is chunked again."""
