"""The results file of a run, with the scores of each question, so that a later run can be compared with it.

The file is a JSON object. Of the keys that a comparison reads, `mode` names the kind of search, and

    "question_metrics": ["recall@6", "hit@1", "mrr@10", "ndcg@10", "shown@6"],
    "questions": {
      "locomo/conv-26/1": [1,0,0.5,0.6309,1],
      "locomo/conv-26/152": {"answered_with_nothing":0}
    }

has the metrics of each question by its key, in the order of `question_metrics`; an object for a question without an
answer. Each question is one line.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from memoryd_server.errors import MemorydError
from memoryd_server.evaluation.scoring import NAMES, SILENT, QueryOutcome
from memoryd_server.foreign_text import parse_json

_METRICS = "question_metrics"
_QUESTIONS = "questions"


class ResultsFileError(MemorydError):
    """A results file cannot be used. The message names the file and the problem."""

    reason = "INVALID_REQUEST"


@dataclass(frozen=True, slots=True)
class EarlierResults:
    """The results of an earlier run: its kind of search, and the metrics of each question by its key."""

    mode: str
    questions: Mapping[str, Mapping[str, float]]


def question_scores(outcomes: Iterable[QueryOutcome]) -> dict[str, Any]:
    """Return the keys of a results file that have the scores of each question."""
    return {_METRICS: list(NAMES.values()), _QUESTIONS: {each.query.key: _row(each) for each in outcomes}}


def results_json(results: Mapping[str, Any]) -> str:
    """Return the text of a results file, without a line break at its end. `results` has the keys of `question_scores`.

    The JSON is indented, except that each question is one line.
    """
    other = json.dumps({key: results[key] for key in results if key != _QUESTIONS}, ensure_ascii=False, indent=2)
    lines = ",\n".join(f"    {_line(key)}: {_line(row)}" for key, row in results[_QUESTIONS].items())
    return f'{other.removesuffix("}").rstrip()},\n  "{_QUESTIONS}": {{\n{lines}\n  }}\n}}'


def read_results(file: Path) -> EarlierResults:
    """Return the results of an earlier run.

    Raises:
        ResultsFileError: the file cannot be read, is not a results file, or has no scores of single questions.
    """
    try:
        results = parse_json(file.read_bytes())
    except OSError as error:
        raise ResultsFileError(f"{file} cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise ResultsFileError(f"{file} is not a results file of `memoryd eval`: {error}") from error
    if not isinstance(results, dict) or "overall" not in results:
        raise ResultsFileError(f"{file} is not a results file of `memoryd eval`: it has no key 'overall'")
    if _QUESTIONS not in results or results.get(_METRICS) != list(NAMES.values()):
        raise ResultsFileError(
            f"{file} does not have the scores of each question that a comparison needs; another version of memoryd "
            "wrote it. Measure that state again with this version: memoryd eval --out FILE"
        )
    return EarlierResults(str(results.get("mode", "")), _questions(file, results[_QUESTIONS]))


def _row(outcome: QueryOutcome) -> list[float] | dict[str, float]:
    metrics = {name: _short(value) for name, value in outcome.as_dict().items()}
    return metrics if outcome.scores is None else list(metrics.values())


def _short(value: float) -> float:
    """Return whole numbers as int, whose JSON is shorter."""
    return int(value) if value == int(value) else value


def _line(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _questions(file: Path, rows: object) -> dict[str, Mapping[str, float]]:
    if not isinstance(rows, dict):
        raise ResultsFileError(f"{file}: {_QUESTIONS!r} must be an object")
    found = {}
    for key, row in rows.items():
        metrics = _parse_row(row)
        if metrics is None:
            wanted = f"{len(NAMES)} numbers from 0 to 1, or {{{_line(SILENT)}: 0 or 1}}"
            raise ResultsFileError(f"{file}: the scores of question {key!r} must be {wanted}, not {_line(row)[:80]}")
        found[key] = metrics
    return found


def _parse_row(row: object) -> Mapping[str, float] | None:
    """Return the metrics of a question by name; None if the row is not valid."""
    if isinstance(row, list) and len(row) == len(NAMES):
        row = dict(zip(NAMES.values(), row, strict=True))
    elif not isinstance(row, dict) or row.keys() != {SILENT}:
        return None
    return row if all(map(_is_share, row.values())) else None


def _is_share(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= 1
