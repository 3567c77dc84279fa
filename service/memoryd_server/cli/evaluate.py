"""Eval: runs golden sets.

`memoryd eval`: how well an agent's settings find what they should.

Asks the questions of a golden set, one daemon in this process after the other: one for each workspace.
"""

import hashlib
import json
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table

from memoryd import messages
from memoryd.client import MemorydClient, connect
from memoryd_server.cli.local_daemon import LocalDaemon
from memoryd_server.cli.options import (
    FAILURE,
    CommonOptions,
    agent_option,
    json_option,
    print_json,
    reported,
    settings_options,
)
from memoryd_server.cli.search import direct_session
from memoryd_server.evaluation import (
    LABELS,
    NAMES,
    RANKED,
    EvaluationReport,
    GoldenQuery,
    GoldenSetError,
    GroupMeans,
    LineSpan,
    QueryOutcome,
    ShownHit,
    judge,
    make_report,
    read_golden_set,
)
from memoryd_server.settings import ResolvedSettings

# A busy machine is no reason to count a question as missed.
_PATIENCE_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class EvaluationRun:
    """What came of a run. `left_out` and `degradations` say in words what the figures do not cover."""

    outcomes: tuple[QueryOutcome, ...]
    left_out: tuple[str, ...]
    degradations: tuple[str, ...]


def run_trial(
    settings: ResolvedSettings,
    queries: Sequence[GoldenQuery],
    *,
    keyword: bool,
    keep: Path | None,
    on_done: Callable[[int], None],
) -> EvaluationRun:
    """Asks every question of an index of its workspace. `settings` have one agent, whose workspace is replaced.

    `keep` is where indexes stay for another run, None for nowhere; `on_done` gets the number of questions done.

    Raises:
        GoldenSetError: nothing could be asked.
        memoryd.client.MemorydError: a sync or a search failed.
    """
    outcomes: list[QueryOutcome] = []
    left_out: list[str] = []
    degradations: dict[str, None] = {}
    for workspace, asked in _by_workspace(queries).items():
        with _memory_of(workspace, _searched_so(settings, keyword=keyword), keep) as client:
            _sync(client)
            if reason := _not_covered(client, asked):
                left_out.append(reason)
                on_done(len(asked))
                continue
            for query in asked:
                answer = client.search(_request(query, keyword=keyword), timeout=_PATIENCE_SECONDS)
                degradations |= dict.fromkeys(each.reason for each in answer.info.degradations)
                outcomes.append(judge(query, [_hit(result) for result in answer.results]))
                on_done(1)
    if not outcomes:
        raise GoldenSetError("no question could be asked: " + "; ".join(left_out))
    return EvaluationRun(tuple(outcomes), tuple(left_out), tuple(degradations))


def only_agent(settings: ResolvedSettings, agent_id: str) -> ResolvedSettings:
    """Settings without any agent but the named one.

    Raises:
        AgentNotFound: none of that id is configured.
    """
    agent = settings.agent(agent_id)
    return replace(settings, agents={agent.agent_id: agent}, default_agent=agent.agent_id)


def _by_workspace(queries: Sequence[GoldenQuery]) -> dict[Path, list[GoldenQuery]]:
    found: dict[Path, list[GoldenQuery]] = {}
    for query in queries:
        found.setdefault(query.workspace, []).append(query)
    return found


def _searched_so(settings: ResolvedSettings, *, keyword: bool) -> ResolvedSettings:
    """The settings as they are, or without any provider of embeddings."""
    agent = settings.agent(settings.default_agent)
    more = {"provider": "none", "fallback": "none"} if keyword else {}
    # What lies outside the workspace belongs to the agent and not to the golden set.
    search = agent.memory_search.model_copy(update={"extra_paths": (), **more})
    return replace(settings, agents={agent.agent_id: replace(agent, memory_search=search)})


@contextmanager
def _memory_of(workspace: Path, settings: ResolvedSettings, keep: Path | None) -> Iterator[MemorydClient]:
    """A client of a daemon that has this workspace, and neither the agent's index nor its tokens."""
    with tempfile.TemporaryDirectory(prefix="memoryd-") as directory:
        # The socket stays in the temporary folder whatever `keep` is: its path must be short.
        address = f"unix:{directory}/s"
        state = _kept(keep, workspace) if keep is not None else Path(directory)
        agent = settings.agent(settings.default_agent)
        agent = replace(agent, workspace=workspace, index_path=state / "memory" / "index.sqlite")
        service = settings.service.model_copy(update={"listen": (address,), "token_file": None})
        swapped = replace(settings, state_dir=state, service=service, agents={agent.agent_id: agent})
        local = LocalDaemon(swapped, background=False)
        local.start()
        try:
            with connect(address) as client:
                yield client
        finally:
            local.stop()


def _kept(keep: Path, workspace: Path) -> Path:
    """A folder for the indexes of a workspace, that no other workspace has."""
    digest = hashlib.sha256(bytes(workspace)).hexdigest()[:12]
    return keep / f"{workspace.name}-{digest}"


def _sync(client: MemorydClient) -> None:
    with client.sync() as events:
        for event in events:
            if event.WhichOneof("event") == "file_failed":
                raise GoldenSetError(f"{event.file_failed.path} cannot be indexed: {event.file_failed.error}")


def _not_covered(client: MemorydClient, queries: Sequence[GoldenQuery]) -> str:
    """Why none of the questions can be answered: no file of their gold is memory. Empty when any is."""
    wanted = {gold.span.path for query in queries for gold in query.gold}
    if not wanted or wanted & set(_files(client)):
        return ""
    where = f"{queries[0].dataset}/{queries[0].workspace.name}"
    return f"{len(queries)} questions on {where}: none of the files that answer them is memory of the agent"


def _files(client: MemorydClient) -> Iterator[str]:
    token = ""
    while True:
        page = client.list_files(page_token=token)
        yield from (file.path for file in page.files)
        token = page.next_page_token
        if not token:
            return


def _request(query: GoldenQuery, *, keyword: bool) -> messages.MemorySearchRequest:
    mode = messages.SEARCH_MODE_KEYWORD if keyword else messages.SEARCH_MODE_UNSPECIFIED
    request = messages.MemorySearchRequest(
        query=query.text,
        max_results=RANKED,
        mode=mode,
        citations=messages.CITATION_MODE_OFF,
        session_key=direct_session(""),
    )
    if query.asked_at is not None:
        request.now.FromDatetime(query.asked_at)
    return request


def _hit(result: messages.SearchResult) -> ShownHit:
    return ShownHit(LineSpan(result.path, result.start_line, result.end_line), result.snippet)


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
        settings = only_agent(CommonOptions(config, state_dir, workspace, None, token_file).settings(), agent)
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


def _picked(queries: Sequence[GoldenQuery], limit: int | None) -> list[GoldenQuery]:
    """At most `limit` questions of each dataset, at equal distances."""
    if limit is None:
        return list(queries)
    picked: list[GoldenQuery] = []
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


def _as_dict(
    agent: str, keyword: bool, trial: EvaluationRun, report: EvaluationReport, seconds: float
) -> dict[str, Any]:
    about = {"agent": agent, "mode": "keyword" if keyword else "as configured", "seconds": round(seconds, 1)}
    doubts = {"left_out": list(trial.left_out), "degradations": list(trial.degradations)}
    return {**about, **doubts, **report.as_dict()}


def _write(out: Path, found: Mapping[str, Any]) -> None:
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        out.write_text(json.dumps(found, ensure_ascii=False, indent=2) + "\n", "utf-8")
    except OSError as error:
        raise click.ClickException(f"{out} cannot be written: {error.strerror}") from error


def _print(report: EvaluationReport, trial: EvaluationRun, found: Mapping[str, Any], *, as_json: bool) -> None:
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


def _table(labels: str, groups: Mapping[str, GroupMeans]) -> Table:
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


def _exit_below(least: float | None, overall: GroupMeans) -> None:
    reached = overall.scores.recall if overall.scores else 0.0
    if least is not None and reached < least:
        click.echo(f"memoryd: {NAMES['recall']} is {reached:.4f}, below {least}", err=True)
        sys.exit(FAILURE)
