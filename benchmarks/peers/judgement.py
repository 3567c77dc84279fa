"""Judge the results of a search by the lines that answer the question, with the formulas of `memoryd eval`."""

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from pathlib import Path

from peer import Shown

from memoryd_server.evaluation import GoldenQuery, LineSpan, ShownHit, judge

RESULTS = 6
# A shorter line, such as a closing bracket or a heading, can be in many places of a file.
LEAST_LETTERS = 16


@dataclass(frozen=True, slots=True)
class Judgement:
    """The outcome of one question: `rank` is that of the first result that shares a line with an answer, from 1."""

    recall: float
    shown: float
    rank: int | None


class Notes:
    """The texts of the notes as they were written, which the lines of the answers belong to."""

    def __init__(self, folder: Path) -> None:
        self._texts = {file.relative_to(folder).as_posix(): NoteText(file) for file in folder.rglob("*.md")}

    def judge(self, question: GoldenQuery, results: Sequence[Shown]) -> Judgement:
        """Return the share of the answers that the first six results find and show, and the first rank."""
        hits = [ShownHit(self.span(each), each.text) for each in results[:RESULTS]]
        scores = judge(question, hits).scores
        if scores is None:
            raise ValueError(f"{question.key} has no answer")
        found = [any(hit.span.overlaps(answer.span) for answer in question.gold) for hit in hits]
        return Judgement(scores.recall, scores.shown, found.index(True) + 1 if any(found) else None)

    def span(self, result: Shown) -> LineSpan:
        """Return the lines of a result; those of its text if it has no lines, else those of the whole note."""
        if result.start_line is not None and result.end_line is not None:
            return LineSpan(result.path, result.start_line, result.end_line)
        note = self._texts.get(result.path)
        start, end = (1, 1) if note is None else note.lines_of(result.text)
        return LineSpan(result.path, start, end)


class NoteText:
    """One note, which finds the lines of a text whose spaces, case and punctuation a tool may have changed."""

    def __init__(self, file: Path) -> None:
        self._file = file

    @cached_property
    def _lines(self) -> list[str]:
        return [letters(line) for line in self._file.read_text("utf-8").split("\n")]

    @cached_property
    def _ends(self) -> list[int]:
        """The number of letters up to the end of each line."""
        return list(accumulate(map(len, self._lines)))

    def lines_of(self, text: str) -> tuple[int, int]:
        """Return the first and last line of `text`, from the first to the last of its lines that are in the note.

        If none is, return the lines of the whole note.
        """
        if whole := self._find(letters(text)):
            return whole
        lines = [line for line in map(letters, text.split("\n")) if len(line) >= LEAST_LETTERS]
        found = [span for span in map(self._find, lines) if span]
        if not found:
            return 1, len(self._lines)
        return min(start for start, _ in found), max(end for _, end in found)

    def _find(self, wanted: str) -> tuple[int, int] | None:
        start = "".join(self._lines).find(wanted) if wanted else -1
        if start < 0:
            return None
        return bisect_right(self._ends, start) + 1, bisect_right(self._ends, start + len(wanted) - 1) + 1


def letters(text: str) -> str:
    """Return the letters and digits of a text in lower case."""
    return "".join(filter(str.isalnum, text.lower()))
