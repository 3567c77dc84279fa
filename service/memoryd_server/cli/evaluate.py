"""`memoryd eval`: measure search quality with an agent's settings on a golden set.

For each workspace of the golden set, one after the other, a daemon in this process indexes the workspace and runs the
queries.
"""

from __future__ import annotations

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
from typing import TYPE_CHECKING, Any

import click

from memoryd_server.cli.options import (
    FAILURE,
    CommonOptions,
    agent_option,
    complain,
    json_option,
    print_json,
    reported,
    settings_options,
)
from memoryd_server.cli.progress import download_models, progress_bar
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

if TYPE_CHECKING:
    from rich.table import Table

    from memoryd import messages
    from memoryd.client import MemorydClient
    from memoryd_server.settings import ResolvedSettings

# Long enough that no query fails because the machine is busy.
_SEARCH_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class EvaluationRun:
    """The outcomes of a run. `left_out` and `degradations` are messages about what the figures do not cover."""

    outcomes: tuple[QueryOutcome, ...]
    left_out: tuple[str, ...]
    degradations: tuple[str, ...]


def run_evaluation(
    settings: ResolvedSettings,
    queries: Sequence[GoldenQuery],
    *,
    keyword: bool,
    keep: Path | None,
    on_done: Callable[[int], None],
) -> EvaluationRun:
    """Run every query against an index of its workspace. `settings` has one agent, whose workspace is replaced.

    `keep` is the folder in which the indexes are kept, or None. `on_done` is called with the number of completed
    queries.

    Raises:
        GoldenSetError: no query could be run.
        memoryd.client.MemorydError: a sync or a search failed.
    """
    outcomes: list[QueryOutcome] = []
    left_out: list[str] = []
    degradations: dict[str, None] = {}
    done = 0
    for workspace, group in _by_workspace(queries).items():
        with _memory_of(workspace, _evaluated_settings(settings, keyword=keyword), keep) as client:
            _sync(client)
            if reason := _reason_not_covered(client, group):
                left_out.append(reason)
                done += len(group)
                on_done(done)
                continue
            for query in group:
                request = _request(query, settings.default_agent, keyword=keyword)
                answer = client.search(request, timeout=_SEARCH_SECONDS)
                degradations |= dict.fromkeys(each.reason for each in answer.info.degradations)
                outcomes.append(judge(query, [_hit(result) for result in answer.results]))
                done += 1
                on_done(done)
    if not outcomes:
        raise GoldenSetError("no query could be run: " + "; ".join(left_out))
    return EvaluationRun(tuple(outcomes), tuple(left_out), tuple(degradations))


def only_agent(settings: ResolvedSettings, agent_id: str) -> ResolvedSettings:
    """Return the settings with this agent only.

    Raises:
        AgentNotFound: no agent with this id is configured.
    """
    agent = settings.agent(agent_id)
    return replace(settings, agents={agent.agent_id: agent}, default_agent=agent.agent_id)


def _by_workspace(queries: Sequence[GoldenQuery]) -> dict[Path, list[GoldenQuery]]:
    groups: dict[Path, list[GoldenQuery]] = {}
    for query in queries:
        groups.setdefault(query.workspace, []).append(query)
    return groups


def _evaluated_settings(settings: ResolvedSettings, *, keyword: bool) -> ResolvedSettings:
    """Return the settings without extra paths and, with `keyword`, without embedding providers."""
    agent = settings.agent(settings.default_agent)
    more = {"provider": "none", "fallback": "none"} if keyword else {}
    # Extra paths belong to the agent and not to the golden set.
    search = agent.memory_search.model_copy(update={"extra_paths": (), **more})
    return replace(settings, agents={agent.agent_id: replace(agent, memory_search=search)})


@contextmanager
def _memory_of(workspace: Path, settings: ResolvedSettings, keep: Path | None) -> Iterator[MemorydClient]:
    """Yield a client of a new daemon for this workspace, which has its own index and no tokens."""
    # Help does not need gRPC and the settings.
    from memoryd.client import connect  # noqa: PLC0415
    from memoryd_server.cli.connection import Connection, LocalDaemon  # noqa: PLC0415

    with tempfile.TemporaryDirectory(prefix="memoryd-") as directory:
        # The socket is always in the temporary folder, because its path must be short.
        address = f"unix:{directory}/s"
        state = _state_dir(keep, workspace) if keep is not None else Path(directory)
        agent = settings.agent(settings.default_agent)
        # Models are those of the agent, and not downloaded for each workspace.
        models = agent.memory_search.local.model_cache_dir or str(settings.state_dir / "models")
        local_model = agent.memory_search.local.model_copy(update={"model_cache_dir": models})
        search = agent.memory_search.model_copy(update={"local": local_model})
        index_path = state / "memory" / "index.sqlite"
        agent = replace(agent, workspace=workspace, memory_search=search, index_path=index_path)
        service = settings.service.model_copy(update={"listen": (address,), "token_file": None})
        swapped = replace(settings, state_dir=state, service=service, agents={agent.agent_id: agent})
        local = LocalDaemon(swapped, background=False)
        local.start()
        try:
            with connect(address) as client:
                download_models(Connection(client, local), agent.agent_id)
                yield client
        finally:
            local.stop()


def _state_dir(keep: Path, workspace: Path) -> Path:
    """Return the folder below `keep` for the index of this workspace."""
    digest = hashlib.sha256(bytes(workspace)).hexdigest()[:12]
    return keep / f"{workspace.name}-{digest}"


def _sync(client: MemorydClient) -> None:
    with client.sync() as events:
        for event in events:
            if event.WhichOneof("event") == "file_failed":
                raise GoldenSetError(f"{event.file_failed.path} cannot be indexed: {event.file_failed.error}")


def _reason_not_covered(client: MemorydClient, queries: Sequence[GoldenQuery]) -> str:
    """Return why none of the queries can be answered: none of their gold files is indexed. Empty if any file is."""
    gold_files = {gold.span.path for query in queries for gold in query.gold}
    if not gold_files or gold_files & set(_files(client)):
        return ""
    place = f"{queries[0].dataset}/{queries[0].workspace.name}"
    return f"{len(queries)} queries on {place}: none of the files with the answers is a memory file of the agent"


def _files(client: MemorydClient) -> Iterator[str]:
    token = ""
    while True:
        page = client.list_files(page_token=token)
        yield from (file.path for file in page.files)
        token = page.next_page_token
        if not token:
            return


def _request(query: GoldenQuery, agent: str, *, keyword: bool) -> messages.MemorySearchRequest:
    from memoryd import messages  # noqa: PLC0415 -- not needed for help

    mode = messages.SEARCH_MODE_KEYWORD if keyword else messages.SEARCH_MODE_UNSPECIFIED
    request = messages.MemorySearchRequest(
        query=query.text,
        max_results=RANKED,
        mode=mode,
        citations=messages.CITATION_MODE_OFF,
        session_key=direct_session(agent),
    )
    if query.asked_at is not None:
        request.now.FromDatetime(query.asked_at)
    return request


def _hit(result: messages.SearchResult) -> ShownHit:
    return ShownHit(LineSpan(result.path, result.start_line, result.end_line), result.snippet)


_FOLDER = click.Path(exists=True, file_okay=False, path_type=Path)
_SHARE = click.FloatRange(0, 1)
# Columns of a table in a pipe or a log.
_WIDTH = 120


def _labels(value: str) -> tuple[str, ...]:
    """Return the parts of the value of `--by`, in order, without duplicates."""
    parts = tuple(dict.fromkeys(part.strip() for part in value.split(",") if part.strip()))
    for part in parts:
        if unknown := sorted(set(part.split("/")) - set(LABELS)):
            raise click.UsageError(f"--by: unknown label {', '.join(unknown)}; the labels are {', '.join(LABELS)}")
    return parts


@click.command("eval")
@settings_options
@agent_option
@json_option
@click.option(
    "--data", type=_FOLDER, required=True, help="Folder with queries.jsonl, or with subfolders that contain it."
)
@click.option(
    "--limit",
    type=click.IntRange(min=1),
    help="Maximum number of queries to run from each dataset; they are spread evenly over the dataset.",
)
@click.option(
    "--by",
    default=",".join(LABELS),
    help="Comma-separated labels to group the results by, for example dataset,dataset/lang,kind. Each label gets its "
    "own table.",
)
@click.option("--keyword", is_flag=True, help="Search by keywords only; nothing is embedded.")
@click.option(
    "--keep",
    type=click.Path(file_okay=False, path_type=Path),
    help="Folder in which to keep the indexes for the next run.",
)
@click.option("--out", type=click.Path(dir_okay=False, path_type=Path), help="Also write the JSON to this file.")
@click.option("--min-recall", type=_SHARE, help="Exit with 1 if the recall over all queries is below this value.")
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
    """Measure search quality on a golden set.

    Each workspace of the golden set is indexed, separately from the agent's own index, and searched over gRPC with the
    agent's settings.

    docs/search-quality.md explains the results.
    """
    labels = _labels(by)
    with reported():
        settings = only_agent(CommonOptions(config, state_dir, workspace, None, token_file).settings(), agent)
        queries = _picked(read_golden_set(data), limit)
        began = time.monotonic()
        count = len(queries)
        with progress_bar(transient=True) as bar:
            bar.update("searching", 0, count)
            run = run_evaluation(
                settings,
                queries,
                keyword=keyword,
                keep=keep,
                on_done=lambda done: bar.update("searching", done, count),
            )
        report = make_report(run.outcomes, labels)
        results = _as_dict(settings.default_agent, keyword, run, report, time.monotonic() - began)
        if out is not None:
            _write(out, results)
    _print(report, run, results, as_json=as_json)
    _exit_below(min_recall, report.overall)


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
    return {**about, **gaps, **report.as_dict()}


def _write(out: Path, results: Mapping[str, Any]) -> None:
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        out.write_text(json.dumps(results, ensure_ascii=False, indent=2) + "\n", "utf-8")
    except OSError as error:
        raise click.ClickException(f"cannot write {out}: {error.strerror}") from error


def _print(report: EvaluationReport, run: EvaluationRun, results: Mapping[str, Any], *, as_json: bool) -> None:
    if as_json:
        print_json(results)
    else:
        from rich.console import Console  # noqa: PLC0415 -- not needed for help

        console = Console(width=None if sys.stdout.isatty() else _WIDTH)
        for labels, groups in report.by.items():
            console.print(_table(labels, groups))
        console.print(_table("", {"all": report.overall}))
    for reason in run.left_out:
        complain(f"left out: {reason}")
    for reason in run.degradations:
        complain(f"degraded: {reason}")


def _table(labels: str, groups: Mapping[str, GroupMeans]) -> Table:
    from rich.table import Table  # noqa: PLC0415 -- not needed for help

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


def _exit_below(minimum: float | None, overall: GroupMeans) -> None:
    reached = overall.scores.recall if overall.scores else 0.0
    if minimum is not None and reached < minimum:
        complain(f"{NAMES['recall']} is {reached:.4f}, below {minimum}")
        sys.exit(FAILURE)
