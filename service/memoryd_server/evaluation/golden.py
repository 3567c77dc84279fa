"""Read golden sets: questions, and the lines that answer them.

A set is a folder with `queries.jsonl` and the workspaces that its rows name, or a folder of such folders. A row is

    {"id": "…", "workspace": "…", "query": "…", "gold": [["memory/a.md", 5, 7]], "kind": "…", "lang": "…"}

with the optional fields `dataset` (by default the folder's name) and `ref_date` (the day of the question). Lines count
from 1, both ends inclusive. For a question without an answer, `gold` is empty or `kind` is `adversarial`.
"""

import json
import os
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from memoryd_server.errors import MemorydError
from memoryd_server.evaluation.scoring import GoldAnswer, GoldenQuery, LineSpan
from memoryd_server.foreign_text import parse_json

_QUERIES = "queries.jsonl"
_WORDS = ("id", "workspace", "query", "kind", "lang")
_UNANSWERABLE = "adversarial"


class GoldenSetError(MemorydError):
    """A golden set cannot be used. The message names the file, the line and the problem."""

    reason = "INVALID_REQUEST"


def read_golden_set(data: Path) -> tuple[GoldenQuery, ...]:
    """Return every question of the set, in the order of file names and rows.

    Raises:
        GoldenSetError: there is no question, or a row is not valid.
    """
    files = [data / _QUERIES] if (data / _QUERIES).is_file() else sorted(data.glob(f"*/{_QUERIES}"))
    if not files:
        raise GoldenSetError(f"{data}: no {_QUERIES} in this folder or in a folder below it")
    queries = tuple(query for file in files for query in _Reader(file).read())
    if not queries:
        raise GoldenSetError(f"{data}: no question in {', '.join(map(str, files))}")
    return queries


class _Reader:
    """Reads one file of questions, and once each file that its gold names."""

    def __init__(self, file: Path) -> None:
        self._file = file
        # Links are not resolved: the folders of several sets can be links with the same target.
        self._folder = Path(os.path.abspath(file)).parent.name  # noqa: PTH100 -- Path.absolute() keeps ".."
        self._ids: set[str] = set()
        self._lines: dict[Path, list[str]] = {}

    def read(self) -> Iterator[GoldenQuery]:
        try:
            text = self._file.read_text("utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise GoldenSetError(f"{self._file}: {error}") from error
        for number, line in enumerate(text.split("\n"), start=1):
            if line.strip():
                try:
                    yield self._query(_row(line))
                except _InvalidRowError as error:
                    raise GoldenSetError(f"{self._file}:{number}: {error}") from error

    def _query(self, row: Mapping[str, Any]) -> GoldenQuery:
        query_id, workspace_name, text, kind, lang = (_word(row, name) for name in _WORDS)
        if query_id in self._ids:
            raise _InvalidRowError(f"id {query_id!r} is also in an earlier row; ids must be unique")
        self._ids.add(query_id)
        workspace = self._file.parent / workspace_name
        if not workspace.is_dir():
            raise _InvalidRowError(f"workspace {workspace_name!r} is not a folder next to the file")
        spans = _spans(row)
        dataset = _word(row, "dataset") if "dataset" in row else self._file.resolve().parent.name
        gold = () if kind == _UNANSWERABLE else tuple(self._gold(workspace, span) for span in spans)
        key = f"{self._folder}/{query_id}"
        return GoldenQuery(key, workspace.resolve(), text, gold, kind, lang, dataset, _parse_ref_date(row))

    def _gold(self, workspace: Path, span: LineSpan) -> GoldAnswer:
        file = workspace / span.path
        if file not in self._lines:
            try:
                self._lines[file] = file.read_text("utf-8").split("\n")
            except (OSError, UnicodeDecodeError) as error:
                raise _InvalidRowError(f"gold file {span.path!r} cannot be read: {error}") from error
        lines = self._lines[file]
        if span.end_line > len(lines):
            raise _InvalidRowError(f"gold ends at line {span.end_line} of {span.path!r}, which has {len(lines)}")
        text = _message_text if file.suffix == ".jsonl" else str
        return GoldAnswer(span, "\n".join(map(text, lines[span.start_line - 1 : span.end_line])))


class _InvalidRowError(Exception):
    """A row is not valid; the message says why."""


def _row(line: str) -> Mapping[str, Any]:
    try:
        row = parse_json(line)
    except ValueError as error:
        raise _InvalidRowError(f"not JSON: {error}") from error
    if not isinstance(row, dict):
        raise _InvalidRowError("a row must be a JSON object")
    return row


def _word(row: Mapping[str, Any], name: str) -> str:
    value = row.get(name)
    if not isinstance(value, str) or not value.strip():
        raise _InvalidRowError(
            f"{name!r} must be a string that is not blank, not {json.dumps(value, ensure_ascii=False)}"
        )
    return value


def _spans(row: Mapping[str, Any]) -> list[LineSpan]:
    gold = row.get("gold")
    if not isinstance(gold, list):
        raise _InvalidRowError("'gold' must be a list of [path, first line, last line]")
    return [_span(each) for each in gold]


def _span(value: object) -> LineSpan:
    match value:
        case [str(path), int(start), int(end)] if 1 <= start <= end:
            return LineSpan(path, start, end)
    raise _InvalidRowError(
        f"'gold' contains {json.dumps(value)}: each item must be [path, first line, last line], lines from 1"
    )


def _parse_ref_date(row: Mapping[str, Any]) -> datetime | None:
    """Return noon of the day in UTC, which is on that day almost everywhere."""
    value = row.get("ref_date")
    if value is None:
        return None
    try:
        return datetime.strptime(str(value), "%Y-%m-%d").replace(hour=12, tzinfo=UTC)
    except ValueError as error:
        raise _InvalidRowError(f"'ref_date' must be a day as in 2026-02-03, not {json.dumps(value)}") from error


def _message_text(line: str) -> str:
    """Return the text of a transcript's row; the row itself if it has another form."""
    match _json(line):
        case {"message": {"content": str(text)}}:
            return text
        case {"message": {"content": [*parts]}}:
            texts = [part.get("text") for part in parts if isinstance(part, dict)]
            return " ".join(text for text in texts if isinstance(text, str))
    return line


def _json(line: str) -> object:
    try:
        return parse_json(line)
    except ValueError:
        return None
