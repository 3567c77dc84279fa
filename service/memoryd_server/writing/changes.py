"""Changes of the content of one file. Pure: bytes in, bytes out.

Lines end with a line feed and are numbered from 1. The empty string after a line feed at the end of the content is not
a line. Texts are compared byte for byte, so a content need not be valid UTF-8.
"""

from dataclasses import dataclass

from memoryd_server.errors import FieldViolation, InvalidRequest

_MOST_NAMED = 5


@dataclass(frozen=True, slots=True)
class ChangeResult:
    """The content after a change, None for a deleted file, and the lines that the change inserted or replaced.

    `end_line` is `start_line` - 1 if text was only removed. Both are 0 for a deleted file.
    """

    data: bytes | None
    start_line: int
    end_line: int


@dataclass(frozen=True, slots=True)
class NewContent:
    """The whole new content. The only change that can create a file."""

    data: bytes

    def apply(self, _data: bytes) -> ChangeResult:
        """Return the new content."""
        return ChangeResult(self.data, 1, count_lines(self.data))


@dataclass(frozen=True, slots=True)
class TextReplacement:
    """Replaces `old`, which must occur exactly once, by `new`. Overlapping occurrences count."""

    old: bytes
    new: bytes

    def apply(self, data: bytes) -> ChangeResult:
        """Return the content with the text replaced.

        Raises:
            InvalidRequest: the old text is empty, or does not occur exactly once. The message names its lines.
        """
        places = self._places(data)
        if len(places) != 1:
            raise _invalid("replace.old_text", self._problem(data, places))
        (place,) = places
        first = data.count(b"\n", 0, place) + 1
        after = data[:place] + self.new + data[place + len(self.old) :]
        return ChangeResult(after, first, first + count_lines(self.new) - 1)

    def _places(self, data: bytes) -> list[int]:
        """Return the places of the old text, at most one more than are named."""
        places: list[int] = []
        at = data.find(self.old) if self.old else -1
        while at >= 0 and len(places) <= _MOST_NAMED:
            places.append(at)
            at = data.find(self.old, at + 1)
        return places

    def _problem(self, data: bytes, places: list[int]) -> str:
        if not self.old:
            return "must not be empty"
        if not places:
            return "does not occur in the file; read the file again, and copy the text exactly"
        lines = dict.fromkeys(data.count(b"\n", 0, place) + 1 for place in places[:_MOST_NAMED])
        more = " and others" if len(places) > _MOST_NAMED else ""
        noun = "line" if len(lines) == 1 and not more else "lines"
        named = f"{noun} {', '.join(map(str, lines))}{more}"
        return f"occurs more than once, in {named}; include more of the text around it, so that it occurs exactly once"


@dataclass(frozen=True, slots=True)
class LineInsertion:
    """Inserts a text as whole lines after a line; 0 is the start of the file."""

    after_line: int
    text: bytes

    def apply(self, data: bytes) -> ChangeResult:
        """Return the content with the text inserted.

        A line feed is added after the text if it does not end with one, and before it if the last line has none.

        Raises:
            InvalidRequest: there is no such line, or the text is empty.
        """
        if not self.text:
            raise _invalid("insert.text", "must not be empty")
        lines = count_lines(data)
        if not 0 <= self.after_line <= lines:
            raise _invalid("insert.after_line", f"is {self.after_line}, but the file has {lines} lines")
        place = _end_of_line(data, self.after_line)
        lead = b"\n" if place and data[place - 1 : place] != b"\n" else b""
        text = self.text if self.text.endswith(b"\n") else self.text + b"\n"
        after = data[:place] + lead + text + data[place:]
        return ChangeResult(after, self.after_line + 1, self.after_line + count_lines(text))


@dataclass(frozen=True, slots=True)
class LineDeletion:
    """Deletes the lines from `start_line` to `end_line`, with their line feeds."""

    start_line: int
    end_line: int

    def apply(self, data: bytes) -> ChangeResult:
        """Return the content without the lines.

        Raises:
            InvalidRequest: there are no such lines.
        """
        if self.start_line < 1:
            raise _invalid("delete_lines.start_line", f"is {self.start_line}, but lines are numbered from 1")
        if self.end_line < self.start_line:
            raise _invalid("delete_lines.end_line", f"is {self.end_line}, less than start_line {self.start_line}")
        lines = count_lines(data)
        if self.end_line > lines:
            raise _invalid("delete_lines.end_line", f"is {self.end_line}, but the file has {lines} lines")
        start, end = _end_of_line(data, self.start_line - 1), _end_of_line(data, self.end_line)
        return ChangeResult(data[:start] + data[end:], self.start_line, self.start_line - 1)


@dataclass(frozen=True, slots=True)
class FileDeletion:
    """Deletes the file."""

    def apply(self, _data: bytes) -> ChangeResult:
        """Return no content."""
        return ChangeResult(None, 0, 0)


Change = NewContent | TextReplacement | LineInsertion | LineDeletion | FileDeletion


def text_field(change: Change) -> str:
    """Return the name of the request's field with the text that a change adds; of the operation if it adds none."""
    match change:
        case NewContent():
            return "content"
        case TextReplacement():
            return "replace.new_text"
        case LineInsertion():
            return "insert.text"
        case LineDeletion():
            return "delete_lines"
        case FileDeletion():
            return "delete_file"


def count_lines(data: bytes) -> int:
    """Return the number of lines. A last line without a line feed counts."""
    return data.count(b"\n") + (not data.endswith(b"\n") if data else 0)


def _end_of_line(data: bytes, line: int) -> int:
    """Return the place after the line feed of an existing line, or the end of the data if it has none; 0 for line 0."""
    place = 0
    for _ in range(line):
        place = data.find(b"\n", place) + 1 or len(data)
    return place


def _invalid(field: str, description: str) -> InvalidRequest:
    return InvalidRequest([FieldViolation(field, description)])
