"""The memories that `benchmarks/answers.py` searches, below one folder, with the same paths, texts and times each time.

Each workspace of a golden set is copied into the memory of one agent, because the modification times of files, which
decay and filters use, must not depend on the checkout. The transcripts of a workspace are its agent's sessions. Two
more agents have what the sets do not: `merged` has the files of all sets, with front matter and annotations, and
`prose` has enough chunks for the code paths of large indexes.
"""

import hashlib
import json
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any, TypeVar

from corpus import Prose, write

from memoryd_server.evaluation import GoldenQuery, read_golden_set

_T = TypeVar("_T")

MERGED = "merged"
PROSE = "prose"

# More than 10,000 chunks: from there on, common words and vectors are searched in other ways.
PROSE_FILES = 1_150
_PROSE_BYTES = 13_500
_PROSE_SEED = 5
_QUESTION_SEED = 77

_TRANSCRIPTS = "sessions"
# 2023-01-01, within the dates of LoCoMo; the files of a workspace are three days apart.
_FIRST_TIME = 1_672_531_200
_TIME_STEP = 3 * 86_400
_TIMES = 300


@dataclass(frozen=True, slots=True)
class Question:
    """A query of a set: its text, its day as `YYYY-MM-DD` if it has one, and a file to ask about."""

    key: str
    text: str
    day: str
    path: str


@dataclass(frozen=True, slots=True)
class Memory:
    """The memory of one agent, and the questions about it."""

    agent: str
    workspace: Path
    questions: tuple[Question, ...]
    has_sessions: bool = False


def prepare(data: Path, state: Path, most: int) -> tuple[Memory, ...]:
    """Write the files of every memory below `state`, and return the memories with at most `most` questions of each set.

    Files that have the right content already are kept.
    """
    memories = []
    for dataset, group in groupby(read_golden_set(data), key=lambda query: query.dataset):
        rows = list(group)
        chosen = spread(rows, most)
        for workspace in dict.fromkeys(query.workspace for query in rows):
            questions = [_question(query) for query in chosen if query.workspace == workspace]
            memories.append(_copy(f"{dataset}-{workspace.name}".lower(), workspace, state, questions))
    merged = _workspace(state, MERGED)
    _write_merged(merged, [memory.workspace for memory in memories if not memory.has_sessions])
    every = [question for memory in memories for question in memory.questions]
    memories.append(Memory(MERGED, merged, tuple(spread(every, 2 * most))))
    return (*memories, _prose(state, most))


def write_settings(
    state: Path, memories: Sequence[Memory], search: Mapping[str, Any], more: Mapping[str, Mapping[str, Any]]
) -> Path:
    """Write the settings of all agents and return their file; `search` has those of `memorySearch`, `more` by agent."""
    own = {"sync": {"onSearch": False, "onSessionStart": False, "watch": False}}
    sessions = {"sources": ["memory", "sessions"], "experimental": {"sessionMemory": True}}
    agents: list[dict[str, Any]] = [
        {
            "id": memory.agent,
            "workspace": str(memory.workspace),
            "memorySearch": {**more[memory.agent], **(sessions if memory.has_sessions else {})},
        }
        for memory in memories
    ]
    agents[0]["default"] = True
    settings = {
        "agents": {"defaults": {"memorySearch": {**search, **own}}, "list": agents},
        # A recall that waits for its vector only for a short time has another answer on a busy machine.
        "memoryd": {"confirmAboveTokens": 0, "recall": {"embeddingTimeoutMs": 60_000, "includeUntrusted": True}},
    }
    file = state / "memoryd.json5"
    file.write_text(json.dumps(settings, indent=1), "utf-8")
    return file


def spread(rows: Sequence[_T], most: int) -> list[_T]:
    """Return at most `most` rows, spread evenly."""
    count = min(most, len(rows))
    return [rows[number * len(rows) // count] for number in range(count)]


def _question(query: GoldenQuery) -> Question:
    day = "" if query.asked_at is None else query.asked_at.date().isoformat()
    return Question(query.key, query.text, day, query.gold[0].span.path if query.gold else "MEMORY.md")


def _workspace(state: Path, agent: str) -> Path:
    return state / "workspaces" / agent


def _copy(agent: str, source: Path, state: Path, questions: Sequence[Question]) -> Memory:
    target = _workspace(state, agent)
    sessions = state / "agents" / agent / "sessions"
    has_sessions = False
    for number, (path, text) in enumerate(_texts(source)):
        is_transcript = path.startswith(f"{_TRANSCRIPTS}/")
        has_sessions |= is_transcript
        _write(sessions / path.removeprefix(f"{_TRANSCRIPTS}/") if is_transcript else target / path, text, number)
    target.mkdir(parents=True, exist_ok=True)
    return Memory(agent, target, tuple(questions), has_sessions)


def _texts(folder: Path) -> Iterator[tuple[str, bytes]]:
    for file in sorted(folder.rglob("*")):
        if file.is_file():
            yield file.relative_to(folder).as_posix(), file.read_bytes()


def _write(file: Path, text: bytes, number: int) -> None:
    """Write a file unless it has this content, with the modification time of this number."""
    if not file.is_file() or file.read_bytes() != text:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(text)
    time = _FIRST_TIME + number % _TIMES * _TIME_STEP
    if file.stat().st_mtime_ns != time * 10**9:
        os.utime(file, (time, time))


def _write_merged(target: Path, workspaces: Sequence[Path]) -> None:
    entries = ["# Memory", ""]
    number = 0
    for workspace in workspaces:
        for path, text in _texts(workspace):
            name = Path(path).name
            tags = f"tags: [{('red', 'green', 'blue')[number % 3]}, {workspace.name}]\nproject: p{number % 5}"
            front = f"---\n{tags}\n---\n\n" if number % 2 else ""
            _write(target / "memory" / workspace.name / name, front.encode() + text, number)
            first = next((line for line in text.decode().splitlines() if len(line) > 60), "")
            if first:
                note = (f"importance: {number % 10 + 1}", f"project: p{number % 3}", "trigger: cranes, tides")[
                    number % 3
                ]
                entries.append(f"- {first.lstrip('-# ')[:400]} <!-- {note} -->")
            number += 1
    _write(target / "MEMORY.md", "\n".join([*entries[:400], ""]).encode(), number)


def _prose(state: Path, most: int) -> Memory:
    target = _workspace(state, PROSE)
    if not target.exists():
        # A run that is interrupted leaves no part of the files.
        draft = state / f"{PROSE}.draft"
        shutil.rmtree(draft, ignore_errors=True)
        write(draft, PROSE_FILES, _PROSE_BYTES, _PROSE_SEED)
        for number, (path, text) in enumerate(list(_texts(draft))):
            _write(draft / path, text, number)
        draft.rename(target)
    prose = Prose(_QUESTION_SEED)
    # The words of the notes, with those of another seed in between, which the index does not have.
    own = Prose(_PROSE_SEED)
    texts = [(own if number % 4 else prose).question() for number in range(most)]
    files = [f"memory/{number // 100:03}/note-{number:05}.md" for number in range(PROSE_FILES)]
    questions = [
        Question(f"{PROSE}/{number}", text, "", files[_number_of(text) % PROSE_FILES])
        for number, text in enumerate(texts)
    ]
    return Memory(PROSE, target, tuple(questions))


def _number_of(text: str) -> int:
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:4])
