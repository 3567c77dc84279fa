"""The report of `memoryd eval`: the results of a golden set with an agent's settings, compared with an earlier run.

For each workspace of the golden set, one after the other, a daemon in this process indexes the workspace and runs the
queries.
"""

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

import click
from pydantic import SecretStr

from memoryd_server.cli.evaluation_run import EvaluationRun, only_agent, run_evaluation
from memoryd_server.cli.evaluation_tables import print_comparison, print_report
from memoryd_server.cli.options import FAILURE, CommonOptions, complain, reported
from memoryd_server.cli.progress import progress_bar
from memoryd_server.evaluation import (
    LABELS,
    NAMES,
    EarlierResults,
    EvaluationReport,
    GoldenQuery,
    GroupMeans,
    ResultsFileError,
    RunComparison,
    compare_runs,
    make_report,
    question_scores,
    read_golden_set,
    read_results,
    results_json,
)
from memoryd_server.settings import ResolvedSettings


@dataclass(frozen=True, slots=True)
class EvaluationOptions:
    """The options of `memoryd eval`, as they were given. `by` is None for all labels."""

    data: Path
    limit: int | None
    by: str | None
    keyword: bool
    keep: Path | None
    out: Path | None
    compare: Path | None
    min_recall: float | None
    max_loss: float | None
    database: SecretStr | None = None


def _labels(value: str) -> tuple[str, ...]:
    """Return the parts of the value of `--by`, in order, without duplicates."""
    parts = tuple(dict.fromkeys(part.strip() for part in value.split(",") if part.strip()))
    for part in parts:
        if unknown := sorted(set(part.split("/")) - set(LABELS)):
            raise click.UsageError(f"--by: unknown label {', '.join(unknown)}; the labels are {', '.join(LABELS)}")
    return parts


def evaluate_memory(common: CommonOptions, agent: str, options: EvaluationOptions, *, as_json: bool) -> int:
    """Run the golden set, print and write the results, and return the exit code.

    Raises:
        click.UsageError: a label is unknown, `max_loss` has nothing to be compared with, or a folder is given for
            indexes that are kept in a database.
    """
    labels = LABELS if options.by is None else _labels(options.by)
    compare, max_loss = options.compare, options.max_loss
    if max_loss is not None and not (compare and labels):
        raise click.UsageError("--max-loss requires --compare, and a label in --by")
    if options.keep is not None and options.database is not None:
        raise click.UsageError("--keep and --database exclude each other: the database keeps the indexes")
    with reported():
        settings = only_agent(common.settings(), agent)
        queries = _picked(read_golden_set(options.data), options.limit)
        # Read before the run, which can take minutes and may replace the file.
        earlier = None if compare is None else _read_comparable(compare, queries)
        began = time.monotonic()
        run = _run(settings, queries, options)
        report = make_report(run.outcomes, labels)
        comparison = None if earlier is None else compare_runs(earlier.questions, run.outcomes, labels)
        results = _as_dict(settings.default_agent, options.keyword, run, report, time.monotonic() - began)
        if options.out is not None:
            _write(options.out, results)
    problems = list(_low_recall(options.min_recall, report.overall))
    if as_json:
        more = {} if comparison is None else {"comparison": {"file": str(compare), **comparison.as_dict()}}
        click.echo(results_json(results | more))
    else:
        print_report(report)
    if comparison is not None and earlier is not None:
        if not as_json:
            print_comparison(comparison, f"{compare} ({earlier.mode})")
        if max_loss is not None:
            problems += [*_losses(comparison, labels[0], max_loss), *_missing(earlier, queries, run)]
    _complain_of_gaps(run)
    for problem in problems:
        complain(problem)
    return FAILURE if problems else 0


def _read_comparable(file: Path, queries: Sequence[GoldenQuery]) -> EarlierResults:
    """Return the results of an earlier run, which has at least one of the queries."""
    earlier = read_results(file)
    if not any(query.key in earlier.questions for query in queries):
        raise ResultsFileError(f"{file} has none of the questions of this run; compare runs of the same golden sets")
    return earlier


def _run(settings: ResolvedSettings, queries: Sequence[GoldenQuery], options: EvaluationOptions) -> EvaluationRun:
    count = len(queries)
    with progress_bar(transient=True) as bar:
        bar.update("searching", 0, count)
        return run_evaluation(
            settings,
            queries,
            keyword=options.keyword,
            keep=options.keep,
            database=options.database,
            on_done=lambda done: bar.update("searching", done, count),
        )


def _picked(queries: Sequence[GoldenQuery], limit: int | None) -> list[GoldenQuery]:
    """Return at most `limit` queries of each dataset, spread evenly over the dataset."""
    if limit is None:
        return list(queries)
    picked: list[GoldenQuery] = []
    for _, group in groupby(queries, key=lambda query: query.dataset):
        rows = list(group)
        count = min(limit, len(rows))
        picked += [rows[number * len(rows) // count] for number in range(count)]
    return picked


def _as_dict(agent: str, keyword: bool, run: EvaluationRun, report: EvaluationReport, seconds: float) -> dict[str, Any]:
    about = {"agent": agent, "mode": "keyword" if keyword else "as configured", "seconds": round(seconds, 1)}
    gaps = {"left_out": list(run.left_out), "degradations": list(run.degradations)}
    return {**about, **gaps, **report.as_dict(), **question_scores(run.outcomes)}


def _write(out: Path, results: dict[str, Any]) -> None:
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        out.write_text(results_json(results) + "\n", "utf-8")
    except OSError as error:
        raise click.ClickException(f"cannot write {out}: {error.strerror}") from error


def _complain_of_gaps(run: EvaluationRun) -> None:
    for reason in run.left_out:
        complain(f"left out: {reason}")
    for reason in run.degradations:
        complain(f"degraded: {reason}")


def _low_recall(minimum: float | None, overall: GroupMeans) -> Iterator[str]:
    reached = overall.scores.recall if overall.scores else 0.0
    if minimum is not None and reached < minimum:
        yield f"{NAMES['recall']} is {reached:.4f}, below {minimum}"


def _losses(comparison: RunComparison, labels: str, most: float) -> Iterator[str]:
    for group, metric, size in comparison.losses(labels, most):
        yield f"{metric} of {labels} {group} decreased by {size:.4f}, more than {most}"


def _missing(earlier: EarlierResults, queries: Sequence[GoldenQuery], run: EvaluationRun) -> Iterator[str]:
    """Yield a message if queries of the earlier run were to be run, but were left out."""
    done = {outcome.query.key for outcome in run.outcomes}
    missing = [query for query in queries if query.key in earlier.questions and query.key not in done]
    if missing:
        yield f"{len(missing)} queries of the earlier run are left out"
