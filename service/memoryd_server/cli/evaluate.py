"""`memoryd eval`: how well an agent's settings find what they should."""

import json
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import groupby
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table

from memoryd_server.cli.options import Common, agent_option, json_option, settings_options
from memoryd_server.cli.output import FAILURE, print_json, reported
from memoryd_server.cli.trial import Trial, only_agent, run_trial
from memoryd_server.evaluation import LABELS, NAMES, Figures, Query, Report, make_report, read_golden_set

_FOLDER = click.Path(exists=True, file_okay=False, path_type=Path)
_SHARE = click.FloatRange(0, 1)
# Wide enough for a table in a pipe or a log.
_WIDTH = 120


def _labels(value: str) -> tuple[str, ...]:
    """What `--by` asks for: each once, in order."""
    found = tuple(dict.fromkeys(part.strip() for part in value.split(",") if part.strip()))
    for each in found:
        if unknown := sorted(set(each.split("/")) - set(LABELS)):
            raise click.UsageError(f"--by: {', '.join(unknown)}: the labels are {', '.join(LABELS)}")
    return found


@click.command("eval")
@settings_options
@agent_option
@json_option
@click.option("--data", type=_FOLDER, required=True, help="Folder with queries.jsonl, or with folders that have it.")
@click.option("--limit", type=click.IntRange(min=1), help="Most questions of each dataset, evenly picked.")
@click.option("--by", default=",".join(LABELS), help="Tables, for example dataset,dataset/lang,kind.")
@click.option("--keyword", is_flag=True, help="Run the keyword leg alone; nothing is embedded.")
@click.option("--keep", type=click.Path(file_okay=False, path_type=Path), help="Keep indexes here for the next run.")
@click.option("--out", type=click.Path(dir_okay=False, path_type=Path), help="Also write the JSON to this file.")
@click.option("--min-recall", type=_SHARE, help="Exit with 1 when recall over all questions is below this.")
def evaluate(
    config: Path | None,
    state_dir: Path | None,
    workspace: Path | None,
    token_file: Path | None,
    agent: str,
    as_json: bool,
    data: Path,
    limit: int | None,
    by: str,
    keyword: bool,
    keep: Path | None,
    out: Path | None,
    min_recall: float | None,
) -> None:
    """Measures how well the agent's settings find the gold lines of a golden set.

    Each workspace of the set is indexed anew, apart from the agent's own index, and searched over gRPC.
    docs/search-quality.md says what the figures mean.
    """
    labels = _labels(by)
    with reported():
        settings = only_agent(Common(config, state_dir, workspace, None, token_file).settings(), agent)
        queries = _picked(read_golden_set(data), limit)
        began = time.monotonic()
        with _bar(len(queries)) as (bar, task):
            trial = run_trial(
                settings, queries, keyword=keyword, keep=keep, on_done=lambda count: bar.advance(task, count)
            )
        report = make_report(trial.outcomes, labels)
        found = _as_dict(settings.default_agent, keyword, trial, report, time.monotonic() - began)
        if out is not None:
            _write(out, found)
    _print(report, trial, found, as_json=as_json)
    _exit_below(min_recall, report.overall)


def _picked(queries: Sequence[Query], limit: int | None) -> list[Query]:
    """At most `limit` questions of each dataset, at equal distances."""
    if limit is None:
        return list(queries)
    picked: list[Query] = []
    for _, group in groupby(queries, key=lambda query: query.dataset):
        rows = list(group)
        count = min(limit, len(rows))
        picked += [rows[number * len(rows) // count] for number in range(count)]
    return picked


@contextmanager
def _bar(total: int) -> Iterator[tuple[Progress, TaskID]]:
    columns = ("{task.description}", BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TimeRemainingColumn())
    console = Console(stderr=True)
    with Progress(*columns, console=console, transient=True, disable=not sys.stderr.isatty()) as progress:
        yield progress, progress.add_task("asking", total=total)


def _as_dict(agent: str, keyword: bool, trial: Trial, report: Report, seconds: float) -> dict[str, Any]:
    about = {"agent": agent, "mode": "keyword" if keyword else "as configured", "seconds": round(seconds, 1)}
    doubts = {"left_out": list(trial.left_out), "degradations": list(trial.degradations)}
    return {**about, **doubts, **report.as_dict()}


def _write(out: Path, found: Mapping[str, Any]) -> None:
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        out.write_text(json.dumps(found, ensure_ascii=False, indent=2) + "\n", "utf-8")
    except OSError as error:
        raise click.ClickException(f"{out} cannot be written: {error.strerror}") from error


def _print(report: Report, trial: Trial, found: Mapping[str, Any], *, as_json: bool) -> None:
    if as_json:
        print_json(found)
    else:
        console = Console(width=None if sys.stdout.isatty() else _WIDTH)
        for labels, groups in report.by.items():
            console.print(_table(labels, groups))
        console.print(_table("", {"all": report.overall}))
    for reason in trial.left_out:
        click.echo(f"memoryd: left out: {reason}", err=True)
    for reason in trial.degradations:
        click.echo(f"memoryd: degraded: {reason}", err=True)


def _table(labels: str, groups: Mapping[str, Figures]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column(labels, min_width=24)
    with_silence = any(each.silent is not None for each in groups.values())
    for name in ("queries", *NAMES.values(), *(("unanswerable", "silent") if with_silence else ())):
        table.add_column(name, justify="right", no_wrap=True)
    for name, each in groups.items():
        scores = [f"{getattr(each.scores, field):.3f}" if each.scores else "" for field in NAMES]
        silence = ["", ""] if each.silent is None else [str(each.unanswerable), f"{each.silent:.3f}"]
        table.add_row(name, str(each.queries), *scores, *(silence if with_silence else []))
    return table


def _exit_below(least: float | None, overall: Figures) -> None:
    reached = overall.scores.recall if overall.scores else 0.0
    if least is not None and reached < least:
        click.echo(f"memoryd: {NAMES['recall']} is {reached:.4f}, below {least}", err=True)
        sys.exit(FAILURE)
