"""One workspace of 1,000 notes with questions about it: notes of the dev sets, and synthetic ones."""

import random
import re
import shutil
import sys
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
from corpus import Prose

from memoryd_server.evaluation import GoldenQuery, read_golden_set

SETS = ("cmrc2018", "jaquad", "locomo", "needles", "qmd-eval", "xquad")
# OpenClaw's built-in memory takes the age of a note from a name such as 2023-05-08.md, but not from one with a prefix.
PREFIX = "note-"
DATED_NAME = re.compile(r"(?<![^/])(?=\d{4}-\d{2}-\d{2}[^/]*$)")
FILES = 1_000
FILE_BYTES = 4_096
SEED = 7


@dataclass(frozen=True, slots=True)
class Question:
    """A question, and the lines that answer it: paths in the workspace, lines from 1, both ends inclusive."""

    dataset: str
    text: str
    gold: tuple[tuple[str, int, int], ...]

    def recall(self, results: list[dict]) -> float:
        """Return the share of the answers of which at least one line is in a result."""
        found = sum(
            any(hit["path"] == path and hit["startLine"] <= last and hit["endLine"] >= first for hit in results)
            for path, first, last in self.gold
        )
        return found / len(self.gold)


def write_notes(data: Path, workspace: Path, *, dated: bool) -> None:
    """Write the notes of all sets to `memory/<set>/<part>/`, and synthetic notes until there are 1,000.

    If not `dated`, the names that are dates get a prefix.
    """
    count = 0
    for name in SETS:
        for part in sorted(each for each in (data / name).iterdir() if each.is_dir()):
            for file in sorted(part.rglob("*.md")):
                target = workspace / _target(name, part.name, file.relative_to(part).as_posix(), dated=dated)
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(file, target)
                count += 1
    prose = Prose(SEED)
    folder = workspace / "memory" / "other"
    folder.mkdir(parents=True)
    for number in range(FILES - count):
        (folder / f"note-{number:04}.md").write_text(prose.note(FILE_BYTES), "utf-8")


def sample_questions(data: Path, most: int, *, dated: bool) -> list[Question]:
    """Return up to `most` questions with answers per set, in a fixed random order that does not depend on `dated`."""
    by_set: dict[str, list[Question]] = defaultdict(list)
    for name in SETS:
        for query in read_golden_set(data / name):
            if query.gold:
                by_set[name].append(Question(name, query.text, _gold(name, query, dated=dated)))
    random_ = random.Random(SEED)
    chosen = [each for questions in by_set.values() for each in random_.sample(questions, min(most, len(questions)))]
    random_.shuffle(chosen)
    return chosen


def _gold(name: str, query: GoldenQuery, *, dated: bool) -> tuple[tuple[str, int, int], ...]:
    spans = (answer.span for answer in query.gold)
    return tuple(
        (_target(name, query.workspace.name, span.path, dated=dated), span.start_line, span.end_line) for span in spans
    )


def _target(name: str, part: str, path: str, *, dated: bool) -> str:
    inner = path.removeprefix("memory/")
    return f"memory/{name}/{part}/{inner if dated else DATED_NAME.sub(PREFIX, inner)}"
