"""The tables of `memoryd eval`: the metrics of a run, and its comparison with an earlier run."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING

import click

from memoryd_server.evaluation import (
    NAMES,
    SILENT,
    EvaluationReport,
    GroupComparison,
    GroupMeans,
    MetricComparison,
    RunComparison,
)

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

# Columns of a table in a pipe or a log.
_WIDTH = 120
_SILENT = "silent"


def print_report(report: EvaluationReport) -> None:
    """Print a table of the means for each combination of labels, and one of all questions."""
    console = _console()
    for labels, groups in report.by.items():
        console.print(_means_table(labels, groups))
    console.print(_means_table("", {"all": report.overall}))


def print_comparison(comparison: RunComparison, other: str) -> None:
    """Print a table of the differences for each combination of labels, and one of all questions.

    `other` describes the earlier run. Metrics that are the same in each question are left out.
    """
    counts = f"{comparison.paired} questions in both, {comparison.only_new} only in this run"
    click.echo(f"\nCompared with {other}: {counts}, {comparison.only_old} only in the other.")
    click.echo("Each difference has its 95 % interval; * if the interval excludes 0.\n")
    console = _console()
    for labels, groups in comparison.by.items():
        console.print(_differences_table(labels, groups))
    console.print(_differences_table("", {"all": comparison.overall}))


def _console() -> Console:
    from rich.console import Console  # noqa: PLC0415 -- not needed for help

    return Console(width=None if sys.stdout.isatty() else _WIDTH, markup=False, highlight=False)


def _table(labels: str) -> Table:
    from rich.table import Table  # noqa: PLC0415 -- not needed for help

    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column(labels, min_width=24)
    return table


def _means_table(labels: str, groups: Mapping[str, GroupMeans]) -> Table:
    table = _table(labels)
    with_silence = any(each.silent is not None for each in groups.values())
    for name in ("queries", *NAMES.values(), *(("unanswerable", _SILENT) if with_silence else ())):
        table.add_column(name, justify="right", no_wrap=True)
    for name, each in groups.items():
        scores = [f"{getattr(each.scores, field):.3f}" if each.scores else "" for field in NAMES]
        silence = ["", ""] if each.silent is None else [str(each.unanswerable), f"{each.silent:.3f}"]
        table.add_row(name, str(each.queries), *scores, *(silence if with_silence else []))
    return table


def _differences_table(labels: str, groups: Mapping[str, GroupComparison]) -> Table:
    table = _table(labels)
    table.add_column("metric", no_wrap=True)
    for name in ("questions", "better", "worse", "old", "new", "difference", "95 % interval", ""):
        table.add_column(name, justify="right", no_wrap=True)
    for name, group in groups.items():
        changed = {metric: each for metric, each in group.items() if each.better or each.worse}
        if not changed:
            table.add_row(name, "unchanged", str(_questions(group)))
        for number, (metric, each) in enumerate(changed.items()):
            shown = _SILENT if metric == SILENT else metric
            table.add_row("" if number else name, shown, *_cells(each))
    return table


def _questions(group: GroupComparison) -> int:
    """Return the number of the group's questions with and without an answer."""
    return sum(group[metric].questions for metric in (NAMES["recall"], SILENT) if metric in group)


def _cells(each: MetricComparison) -> list[str]:
    counts = [str(each.questions), str(each.better), str(each.worse)]
    interval = f"[{each.low:+.4f}, {each.high:+.4f}]"
    mark = "*" if each.significant else ""
    return [*counts, f"{each.old:.3f}", f"{each.new:.3f}", f"{each.difference:+.4f}", interval, mark]
