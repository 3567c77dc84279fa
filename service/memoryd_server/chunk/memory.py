"""Split a memory file: annotations become fields of the chunks, and each entry of a curated file is a chunk.

A curated file without entries is split like any other file. An entry is a line that begins with "- ", up to the next
such line or heading. The text below a heading before its first entry is one chunk, too. A heading that is directly
followed by an entry or by a deeper heading has no separate chunk, because it is in the breadcrumb of the chunks below
it. Longer entries are split as other text is.
"""

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from datetime import date
from typing import NamedTuple

from memoryd_server.chunk.annotations import joined_annotations, split_annotations
from memoryd_server.chunk.markdown import (
    MAX_BREADCRUMB_CHARS,
    ChunkLimits,
    TextSpan,
    breadcrumbs,
    fence_after,
    headings,
    indexable_chunks,
    make_chunk,
    pack,
)
from memoryd_server.model import NO_ANNOTATIONS, Annotations, Chunk

_ENTRY = "- "
_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})(.*)")
_ENTRY_DAY = re.compile(r"- (?:\*\*|\[|\()?([0-9]{4}-[0-9]{2}-[0-9]{2})(?![0-9])")


def memory_chunks(body: str, tokens: int, overlap: int, first_line: int = 1, *, curated: bool = False) -> list[Chunk]:
    """Return the chunks of `body` that contain more than white space, in the order of their lines.

    `first_line` is the number of the first line. Only in a `curated` file do importance and triggers count.
    """
    text, annotations = split_annotations(body)
    entries = frozenset(_entry_lines(text.split("\n"))) if curated else frozenset()
    if entries:
        chunks = _curated_chunks(text, entries, annotations, tokens, overlap)
        return [_annotated(*each, first_line) for each in chunks]
    found = indexable_chunks(text, tokens, overlap, first_line)
    if not annotations:
        return found
    return [_with_annotations(chunk, first_line, annotations, curated=curated) for chunk in found]


def _with_annotations(chunk: Chunk, first_line: int, annotations: Mapping[int, Annotations], *, curated: bool) -> Chunk:
    lines = range(chunk.start_line - first_line + 1, chunk.end_line - first_line + 2)
    found = joined_annotations(annotations[line] for line in lines if line in annotations)
    if found is NO_ANNOTATIONS:
        return chunk
    return replace(chunk, annotations=found if curated else Annotations(projects=found.projects))


class _Segment(NamedTuple):
    """An entry or the text of a section: the numbers of its first and last line that are not blank."""

    start: int
    end: int
    is_entry: bool


def _curated_chunks(
    text: str, entries: Collection[int], annotations: Mapping[int, Annotations], tokens: int, overlap: int
) -> Iterator[tuple[Chunk, _Segment, Annotations]]:
    """Yield the chunks with their segments and the annotations of these segments. Linear in the length of `text`."""
    lines = text.split("\n")
    limits = ChunkLimits.from_tokens(tokens, overlap)
    spans: list[tuple[TextSpan, _Segment, Annotations]] = []
    for segment in _segments(lines, text, entries):
        # Once for all chunks of the segment: a long segment has many lines and many chunks.
        numbers = range(segment.start, segment.end + 1) if annotations else ()
        joined = joined_annotations(annotations[number] for number in numbers if number in annotations)
        for span in pack("\n".join(lines[segment.start - 1 : segment.end]), limits):
            if span.text.strip():
                offset = segment.start - 1
                spans.append((TextSpan(span.text, span.start_line + offset, span.end_line + offset), segment, joined))
    crumbs = breadcrumbs(text, [span.start_line for span, _, _ in spans])
    for (span, segment, joined), crumb in zip(spans, crumbs, strict=True):
        yield make_chunk(span, crumb, 0), segment, joined


def _segments(lines: list[str], text: str, entries: Collection[int]) -> Iterator[_Segment]:
    levels = {heading.line: heading.level for heading in headings(text)}
    starts = sorted({1, *levels, *entries})
    for start, following in zip(starts, (*starts[1:], None), strict=True):
        end = len(lines) if following is None else following - 1
        while end >= start and not lines[end - 1].strip():
            end -= 1
        if end < start:
            continue
        is_only_heading = start == end and start in levels and len(lines[start - 1]) <= MAX_BREADCRUMB_CHARS
        leads = following in entries or levels.get(following or 0, 0) > levels.get(start, 0)
        if not (is_only_heading and leads):
            yield _Segment(start, end, start in entries)


def _entry_lines(lines: list[str]) -> Iterator[int]:
    fence = ""
    for number, line in enumerate(lines, 1):
        mark = _FENCE.match(line)
        if mark:
            fence = fence_after(fence, mark[1], mark[2])
        elif not fence and line.startswith(_ENTRY):
            yield number


def _annotated(chunk: Chunk, segment: _Segment, found: Annotations, first_line: int) -> Chunk:
    """Return the chunk with the annotations `found` in its whole segment, and with line numbers of the file."""
    offset = first_line - 1
    day = _entry_day(chunk.text) if segment.is_entry and chunk.start_line == segment.start else ""
    if not offset and found is NO_ANNOTATIONS and not day:
        return chunk
    return replace(
        chunk,
        start_line=chunk.start_line + offset,
        end_line=chunk.end_line + offset,
        annotations=found,
        day=day,
    )


def _entry_day(text: str) -> str:
    """Return the date that an entry begins with, as YYYY-MM-DD; empty if there is none that exists."""
    match = _ENTRY_DAY.match(text)
    try:
        return date.fromisoformat(match[1]).isoformat() if match else ""
    except ValueError:
        return ""
