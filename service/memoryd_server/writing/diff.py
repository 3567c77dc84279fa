"""Unified diffs of two contents, in bounded time and memory.

The lines that both contents have at the start and at the end are skipped as bytes. Between them, lines that occur once
in each content and in the same order are equal (the patience diff), and `difflib` compares the lines between two of
these. Its time grows with the product of the numbers of equal lines and of matches, so above a limit the lines are
shown as replaced.
"""

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from itertools import accumulate, pairwise

CONTEXT_LINES = 3

MOST_LINES = 20_000
"""The most lines of both contents, without the common start and end, that are compared."""

MOST_STEPS = 5_000_000
"""The most steps of the inner loops of `difflib` for one diff, a fraction of a second."""

NO_FILE = "/dev/null"
"""The name of a file that does not exist."""

_NO_NEWLINE = "\\ No newline at end of file\n"
_STEP_BYTES = 1 << 16

# From this number of lines on, `difflib` ignores a line of the second content that occurs more often than once in 100
# lines.
_AUTOJUNK_LINES = 200

# No character is longer in UTF-8.
_MOST_CHARACTER_BYTES = 4


@dataclass(frozen=True, slots=True)
class _Edit:
    """The bytes from `start` to `end` of the first content are replaced by those of the second one."""

    before_start: int
    before_end: int
    after_start: int
    after_end: int


def unified_diff(
    before: bytes | None, after: bytes | None, *, before_name: str, after_name: str, most_bytes: int
) -> tuple[str, bool]:
    """Return the unified diff as `diff -u` prints it, of at most `most_bytes` in UTF-8, and whether it was cut.

    None is a file that does not exist, and is named `/dev/null`. The diff of equal contents is empty, and so is that of
    an empty file and none. Only a line feed ends a line. Bytes that are not valid UTF-8 are shown as U+FFFD.
    """
    old, new = before or b"", after or b""
    if old == new:
        return "", False
    names = NO_FILE if before is None else _printable(before_name), NO_FILE if after is None else _printable(after_name)
    return _cut(_diff_lines(old, new, names), most_bytes)


def _printable(name: str) -> str:
    """Escape the characters of a name that would end its line or change the terminal."""
    return "".join(each if each.isprintable() else repr(each)[1:-1] for each in name)


def _cut(lines: Iterator[tuple[str, bytes]], most_bytes: int) -> tuple[str, bool]:
    """Join lines, each a mark and the bytes of its text, up to a number of bytes."""
    parts: list[bytes] = []
    room = most_bytes
    for mark, line in lines:
        # One line can be a whole file, so only the part that fits is decoded.
        text = mark + line[: room + _MOST_CHARACTER_BYTES].decode(errors="replace")
        if not text.endswith("\n"):
            text += "\n" + _NO_NEWLINE
        part = text.encode()
        parts.append(part[:room])
        if len(part) > room:
            return b"".join(parts).decode(errors="ignore"), True
        room -= len(part)
    return b"".join(parts).decode(), False


def _diff_lines(before: bytes, after: bytes, names: tuple[str, str]) -> Iterator[tuple[str, bytes]]:
    yield "--- ", f"{names[0]}\n".encode()
    yield "+++ ", f"{names[1]}\n".encode()
    line = counted = 0
    shift = 0
    for hunk in _hunks(before, _edits(before, after)):
        start, end = _back(before, hunk[0].before_start), _forward(before, hunk[-1].before_end)
        line += before.count(b"\n", counted, start)
        counted = start
        removed = _count_lines(before, start, end)
        grown = sum(
            _count_lines(after, edit.after_start, edit.after_end)
            - _count_lines(before, edit.before_start, edit.before_end)
            for edit in hunk
        )
        ranges = f"-{_range(line, removed)} +{_range(line + shift, removed + grown)}"
        yield "@@ ", f"{ranges} @@\n".encode()
        shift += grown
        yield from _hunk_lines(before, after, hunk, start, end)


def _hunk_lines(
    before: bytes, after: bytes, hunk: Sequence[_Edit], start: int, end: int
) -> Iterator[tuple[str, bytes]]:
    for edit in hunk:
        yield from _marked(" ", before, start, edit.before_start)
        yield from _marked("-", before, edit.before_start, edit.before_end)
        yield from _marked("+", after, edit.after_start, edit.after_end)
        start = edit.before_end
    yield from _marked(" ", before, start, end)


def _marked(mark: str, data: bytes, start: int, end: int) -> Iterator[tuple[str, bytes]]:
    while start < end:
        following = _line_end(data, start)
        yield mark, data[start:following]
        start = following


def _range(lines_before: int, count: int) -> str:
    """Return a range of a hunk's header; an empty range names the line before it."""
    start = lines_before + (count > 0)
    return str(start) if count == 1 else f"{start},{count}"


def _hunks(before: bytes, edits: Sequence[_Edit]) -> Iterator[list[_Edit]]:
    """Group the edits whose context lines touch."""
    hunk: list[_Edit] = []
    for edit in edits:
        if hunk and _forward(before, hunk[-1].before_end) < _back(before, edit.before_start):
            yield hunk
            hunk = []
        hunk.append(edit)
    yield hunk


def _edits(before: bytes, after: bytes) -> list[_Edit]:
    start = _common_start(before, after)
    before_end, after_end = _common_end(before, after, start)
    middle = _Edit(start, before_end, start, after_end)
    lines = _count_lines(before, start, before_end) + _count_lines(after, start, after_end)
    if lines > MOST_LINES:
        return [middle]
    old = [line for _, line in _marked("", before, start, before_end)]
    new = [line for _, line in _marked("", after, start, after_end)]
    old_offsets = list(accumulate(map(len, old), initial=start))
    new_offsets = list(accumulate(map(len, new), initial=start))
    return [
        _Edit(old_offsets[edit[0]], old_offsets[edit[1]], new_offsets[edit[2]], new_offsets[edit[3]])
        for edit in _line_edits(old, new)
    ]


def _line_edits(before: Sequence[bytes], after: Sequence[bytes]) -> Iterator[tuple[int, int, int, int]]:
    """Return the replaced ranges of lines, as the start and end in `before` and then in `after`."""
    steps_left = MOST_STEPS
    for (before_anchor, after_anchor), (before_end, after_end) in pairwise(
        [(-1, -1), *_anchors(before, after), (len(before), len(after))]
    ):
        before_start, after_start = before_anchor + 1, after_anchor + 1
        old_lines, new_lines = before[before_start:before_end], after[after_start:after_end]
        steps = _most_steps(old_lines, new_lines)
        if steps > steps_left:
            yield before_start, before_end, after_start, after_end
            continue
        steps_left -= steps
        for tag, old_start, old_end, new_start, new_end in SequenceMatcher(None, old_lines, new_lines).get_opcodes():
            if tag != "equal":
                old = before_start + old_start, before_start + old_end
                yield *old, after_start + new_start, after_start + new_end


def _most_steps(before: Sequence[bytes], after: Sequence[bytes]) -> int:
    """Return a bound of the steps of `difflib`.

    It searches the longest match about once for each match that it finds, and each search visits the lines of `before`
    and, for each of them, the equal lines of `after`.
    """
    counts = Counter(after)
    most = len(after) // 100 + 1 if len(after) >= _AUTOJUNK_LINES else len(after)
    pairs = sum(count for line in before if (count := counts[line]) <= most)
    searches = 2 * min(len(before), len(after), pairs) + 1
    return searches * (len(before) + pairs)


def _anchors(before: Sequence[bytes], after: Sequence[bytes]) -> list[tuple[int, int]]:
    """Return the longest increasing sequence of pairs of equal lines that occur once in each content."""
    places = _unique_lines(after)
    pairs = [(number, places[line]) for line, number in _unique_lines(before).items() if line in places]
    # For each length, the last pair of the sequence of that length that ends first.
    last_places: list[int] = []
    last_pairs: list[int] = []
    previous: list[int] = []
    for number, (_, place) in enumerate(pairs):
        length = bisect_left(last_places, place)
        previous.append(last_pairs[length - 1] if length else -1)
        last_places[length : length + 1] = [place]
        last_pairs[length : length + 1] = [number]
    found: list[tuple[int, int]] = []
    number = last_pairs[-1] if last_pairs else -1
    while number >= 0:
        found.append(pairs[number])
        number = previous[number]
    return found[::-1]


def _unique_lines(lines: Sequence[bytes]) -> dict[bytes, int]:
    counts = Counter(lines)
    return {line: number for number, line in enumerate(lines) if counts[line] == 1}


def _common_start(before: bytes, after: bytes) -> int:
    """Return the number of bytes of the whole lines that both contents have at the start."""
    size = _common_bytes(before, after)
    return before.rfind(b"\n", 0, size) + 1


def _common_end(before: bytes, after: bytes, start: int) -> tuple[int, int]:
    """Return where in each content the whole lines begin that both have at the end, not before `start`."""
    size = _common_bytes(before[start:][::-1], after[start:][::-1])
    before_end, after_end = len(before) - size, len(after) - size
    if _is_line_start(before, before_end) and _is_line_start(after, after_end):
        return before_end, after_end
    newline = before.find(b"\n", before_end)
    kept = len(before) - newline - 1 if newline >= 0 else 0
    return len(before) - kept, len(after) - kept


def _is_line_start(data: bytes, place: int) -> bool:
    return place == 0 or data[place - 1 : place] == b"\n"


def _common_bytes(first: bytes, second: bytes) -> int:
    """Return the number of equal bytes at the start of both."""
    size, most = 0, min(len(first), len(second))
    while size < most and first[size : size + _STEP_BYTES] == second[size : size + _STEP_BYTES]:
        size = min(size + _STEP_BYTES, most)
    low, high = size, min(size + _STEP_BYTES, most)
    while low < high:
        middle = (low + high + 1) // 2
        if first[low:middle] == second[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low


def _count_lines(data: bytes, start: int, end: int) -> int:
    return data.count(b"\n", start, end) + (end > start and data[end - 1 : end] != b"\n")


def _line_end(data: bytes, start: int) -> int:
    newline = data.find(b"\n", start)
    return len(data) if newline < 0 else newline + 1


def _forward(data: bytes, place: int) -> int:
    for _ in range(CONTEXT_LINES):
        place = _line_end(data, place)
    return place


def _back(data: bytes, place: int) -> int:
    for _ in range(CONTEXT_LINES):
        place = data.rfind(b"\n", 0, max(place - 1, 0)) + 1
    return place
