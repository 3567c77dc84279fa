"""Index, watch.

`memoryd index` and `memoryd watch`: bringing the index up to date, and following it.

Follows a sync run, with a progress bar for people.
"""

import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import click
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from memoryd import messages
from memoryd.client import MemorydClient, MemorydError
from memoryd_server.cli.connection import session
from memoryd_server.cli.options import (
    FAILURE,
    CommonOptions,
    agent_option,
    common_options,
    complain,
    enum_word,
    json_option,
    print_json_line,
    reported,
)


@click.command()
@common_options
@agent_option
@json_option
@click.option("--force", is_flag=True, help="Rebuild from empty beside the index that answers.")
@click.option("--dry-run", is_flag=True, help="Only say what would be done.")
def index(common: CommonOptions, agent: str, as_json: bool, force: bool, dry_run: bool) -> None:
    """Bring the index in line with the files; all agents unless one is named.

    Exits with 1 when a file failed, or when vectors are wanted and missing.
    """
    with reported(), session(common) as found:
        agents = [agent] if agent else _enabled_agents(found.client)
        complete = [_index_one(found.client, each, as_json, force, dry_run, alone=len(agents) == 1) for each in agents]
    sys.exit(0 if all(complete) else FAILURE)


def _enabled_agents(client: MemorydClient) -> list[str]:
    return [agent.agent_id for agent in all_agents(client) if agent.enabled]


def all_agents(client: MemorydClient) -> Iterator[messages.Agent]:
    """Every agent, page after page."""
    token = ""
    while True:
        page = client.list_agents(page_token=token)
        yield from page.agents
        token = page.next_page_token
        if not token:
            return


def _index_one(client: MemorydClient, agent: str, as_json: bool, force: bool, dry_run: bool, *, alone: bool) -> bool:
    """Return whether the index is complete. The failure of one agent of several is reported, and the next one follows.

    Raises:
        MemorydError: the run failed, and the agent is `alone`, or the connection broke.
    """
    mode = messages.SYNC_MODE_FULL if force else messages.SYNC_MODE_INCREMENTAL
    try:
        with client.sync(agent_id=agent, mode=mode, dry_run=dry_run) as events:
            done = follow_as_json(events, agent) if as_json else follow_with_bar(events, label=f"indexing {agent}")
    except MemorydError as error:
        # A status without a reason comes from the connection, which the next agent would need as well.
        if alone or not error.reason:
            raise
        complain(f"{agent}: {error.message}", error.reason)
        return False
    if not as_json:
        click.echo(_dry_run_line(agent, done) if dry_run else _done_line(agent, done))
        for line in _vector_lines(done, dry_run=dry_run):
            complain(f"{agent}: {line}")
    return dry_run or is_complete(done)


def _done_line(agent: str, done: messages.SyncCompleted) -> str:
    counts = (
        f"{done.indexed_files} indexed, {done.unchanged_files} unchanged, {done.removed_files} removed, "
        f"{done.failed_files} failed"
    )
    if done.pending_embeddings:
        counts += f", {_chunks(done.pending_embeddings)} without a vector"
    state = "incomplete" if done.vectors_missing else "updated"
    return f"Memory index {state} ({agent}): {counts}, in {done.elapsed.ToMilliseconds() / 1000:.2f} s."


def _vector_lines(done: messages.SyncCompleted, *, dry_run: bool) -> Iterator[str]:
    """Yield why the vectors are less than what was configured, and what to do when some are missing."""
    reasons = [degradation.reason for degradation in done.degradations]
    yield from (each for n, each in enumerate(reasons) if not any(each in other for other in reasons[:n]))
    if dry_run or not done.pending_embeddings:
        return
    if done.pending_embeddings == done.refused_embeddings:
        yield "keyword search finds these chunks; to get vectors, change the refused texts or the provider"
    else:
        yield "keyword search finds these chunks; run memoryd index again when the cause is removed"


def _chunks(count: int) -> str:
    return "1 chunk" if count == 1 else f"{count} chunks"


def _dry_run_line(agent: str, done: messages.SyncCompleted) -> str:
    cost = done.estimate
    return (
        f"{agent}: {cost.files} files to read, {cost.removed_files} to remove, {cost.chunks} chunks, "
        f"{cost.cache_misses} to embed, about {cost.estimated_tokens} tokens."
    )


@click.command()
@common_options
@agent_option
@json_option
def watch(common: CommonOptions, agent: str, as_json: bool) -> None:
    """Follows an agent's index until Ctrl-C: its state now, and each change."""
    with reported(), session(common, background=True) as found, found.client.watch(agent_id=agent) as states:
        for state in states:
            if as_json:
                print_json_line(messages.to_dict(state))
            elif not state.heartbeat:
                click.echo(_state_line(state))


def _state_line(state: messages.WatchIndexResponse) -> str:
    word = enum_word(messages.IndexState.Name(state.state), "INDEX_STATE_")
    line = f"{state.time.ToDatetime():%H:%M:%S} {state.agent_id} {word}, revision {state.index_revision}"
    if state.pending_files:
        line += f", {state.pending_files} files pending"
    if state.HasField("active_sync"):
        progress = state.active_sync.progress
        line += f", syncing {progress.completed_files}/{progress.total_files}"
    return line


def follow_quietly(client: MemorydClient, agent: str) -> messages.SyncCompleted:
    """Syncs with a bar on standard error that goes away; files that fail are told there."""
    with client.sync(agent_id=agent) as events:
        return follow_with_bar(events, label="indexing", transient=True)


def follow_with_bar(
    events: Iterable[messages.SyncResponse], *, label: str, transient: bool = False
) -> messages.SyncCompleted:
    """Follows a run to its end with a bar on standard error where that is a terminal."""
    completed = messages.SyncCompleted()
    with _bar(label, transient=transient) as (bar, task):
        for event in events:
            kind = event.WhichOneof("event")
            if kind == "progress":
                bar.update(task, total=event.progress.total_files or None, completed=event.progress.completed_files)
            elif kind == "file_failed":
                click.echo(f"memoryd: {event.file_failed.path}: {event.file_failed.error}", err=True)
            elif kind == "completed":
                completed = event.completed
    return completed


def follow_as_json(events: Iterable[messages.SyncResponse], agent: str) -> messages.SyncCompleted:
    """Follow a run to its end; print one line of JSON an event, with the agent's id as `agentId`."""
    completed = messages.SyncCompleted()
    for event in events:
        print_json_line({"agentId": agent, **messages.to_dict(event)})
        if event.WhichOneof("event") == "completed":
            completed = event.completed
    return completed


def is_complete(done: messages.SyncCompleted) -> bool:
    """Return whether every file is indexed and no vector that is wanted is missing."""
    return not (done.failed_files or done.vectors_missing)


@contextmanager
def _bar(label: str, *, transient: bool) -> Iterator[tuple[Progress, TaskID]]:
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    console = Console(stderr=True)
    disable = not sys.stderr.isatty()
    with Progress(*columns, console=console, transient=transient, disable=disable) as progress:
        yield progress, progress.add_task(label, total=None)
