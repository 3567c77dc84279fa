"""One workspace of 1,000 notes with questions about it: notes of the dev sets, and synthetic ones."""

import random
import re
import shutil
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1]))
from corpus import Prose

from memoryd_server.evaluation import GoldenQuery, LineSpan, read_golden_set

SETS = ("cmrc2018", "jaquad", "locomo", "needles", "qmd-eval", "xquad")
# OpenClaw's built-in memory takes the age of a note from a name such as 2023-05-08.md, but not from one with a prefix.
PREFIX = "note-"
DATED_NAME = re.compile(r"(?<![^/])(?=\d{4}-\d{2}-\d{2}[^/]*$)")
FILES = 1_000
FILE_BYTES = 4_096
QUESTIONS_PER_SET = 60
SEED = 7


@dataclass(frozen=True, slots=True)
class Corpus:
    """What is measured: how many notes and questions, and whether the notes keep the names that are dates."""

    data: Path
    dated: bool = True
    files: int = FILES
    questions: int | None = None
    """The first of the sampled questions; None for all of them."""

    def sample_questions(self) -> list[GoldenQuery]:
        """Return up to 60 questions with answers per set, in a fixed random order that does not depend on `dated`.

        The paths of the answers are those in the workspace, and `dataset` is the name of the set's folder.
        """
        by_set = [[query for query in read_golden_set(self.data / name) if query.gold] for name in SETS]
        random_ = random.Random(SEED)
        chosen = [
            self._renamed(name, query)
            for name, queries in zip(SETS, by_set, strict=True)
            for query in random_.sample(queries, min(QUESTIONS_PER_SET, len(queries)))
        ]
        random_.shuffle(chosen)
        return chosen[: self.questions]

    def write(self, workspace: Path) -> None:
        """Write the notes of all sets to `memory/<set>/<part>/`, and synthetic notes until there are `files`.

        If the sets have more notes than `files`, the notes that answer the questions come first, then others in a
        fixed random order.
        """
        wanted = {answer.span.path for query in self.sample_questions() for answer in query.gold}
        notes = list(self._notes())
        random.Random(SEED).shuffle(notes)
        notes = sorted(notes, key=lambda note: note[0] not in wanted)[: self.files]
        for path, file in notes:
            target = workspace / path
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(file, target)
        prose = Prose(SEED)
        folder = workspace / "memory" / "other"
        folder.mkdir(parents=True)
        for number in range(self.files - len(notes)):
            (folder / f"note-{number:04}.md").write_text(prose.note(FILE_BYTES), "utf-8")

    def _notes(self) -> Iterator[tuple[str, Path]]:
        """Yield the path in the workspace and the file of each note of the sets."""
        for name in SETS:
            for part in sorted(each for each in (self.data / name).iterdir() if each.is_dir()):
                for file in sorted(part.rglob("*.md")):
                    yield self._path(name, part.name, file.relative_to(part).as_posix()), file

    def _renamed(self, name: str, query: GoldenQuery) -> GoldenQuery:
        part = query.workspace.name
        gold = tuple(
            replace(
                answer,
                span=LineSpan(self._path(name, part, answer.span.path), answer.span.start_line, answer.span.end_line),
            )
            for answer in query.gold
        )
        return replace(query, gold=gold, dataset=name)

    def _path(self, name: str, part: str, path: str) -> str:
        inner = path.removeprefix("memory/")
        return f"memory/{name}/{part}/{inner if self.dated else DATED_NAME.sub(PREFIX, inner)}"


def rename_dated(workspace: Path) -> None:
    """Give the notes of a workspace the names that `Corpus(dated=False)` writes, without changing anything else."""
    for file in sorted(workspace.rglob("*.md")):
        if (name := DATED_NAME.sub(PREFIX, file.name)) != file.name:
            file.rename(file.with_name(name))
