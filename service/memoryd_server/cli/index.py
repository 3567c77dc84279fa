"""`memoryd index` and `memoryd watch`: update the index, and follow its state.

The `follow` functions read the events of a sync to its end, for every verb that syncs.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

from memoryd_server.cli.approval import approval_command, needs_approval, with_command
from memoryd_server.cli.options import (
    FAILURE,
    CommonOptions,
    agent_option,
    as_dict,
    common_options,
    complain,
    connected,
    each_agent_option,
    enum_word,
    json_option,
    print_json_line,
)
from memoryd_server.cli.progress import ProgressBar, download_models, progress_bar

if TYPE_CHECKING:
    from memoryd import messages
    from memoryd.client import MemorydClient
    from memoryd.stream import Stream

_MAIN = "main"


@click.command()
@common_options
@each_agent_option
@json_option
@click.option(
    "--force",
    is_flag=True,
    help="Rebuild the index, and approve the cost of the rebuild. Searches use the old index until the new one is "
    "complete.",
)
@click.option("--dry-run", is_flag=True, help="Only show what would be done.")
def index(common: CommonOptions, agent: str, as_json: bool, force: bool, dry_run: bool) -> None:
    """Update the index from the memory files.

    With --force, waits for the end of a sync that is in progress. Exits with 1 if a file failed, or if vectors that
    should exist are missing.
    """
    with connected(common) as daemon:
        agents = [agent] if agent else _enabled_agents(daemon.client)
        complete = []
        for each in agents:
            if not dry_run:
                download_models(daemon, each)
            run = _IndexRun(each, approval_command(common, each), as_json, force, dry_run, alone=len(agents) == 1)
            complete.append(_index_one(daemon.client, run))
    sys.exit(0 if all(complete) else FAILURE)


def _enabled_agents(client: MemorydClient) -> list[str]:
    return [agent.agent_id for agent in all_agents(client) if agent.enabled]


def all_agents(client: MemorydClient) -> Iterator[messages.Agent]:
    """Yield every agent that the caller may use, page by page."""
    token = ""
    while True:
        page = client.list_agents(page_token=token)
        yield from page.agents
        token = page.next_page_token
        if not token:
            return


def used_agent(client: MemorydClient, agent_id: str) -> messages.Agent | None:
    """Return the agent that a request with this ID uses: if the ID is empty, `main`, or else the default agent.

    None if the caller may use no such agent.
    """
    agents = {agent.agent_id: agent for agent in all_agents(client)}
    if agent_id:
        return agents.get(agent_id.strip().lower())
    default = next((agent for agent in agents.values() if agent.default), None)
    return agents.get(_MAIN, default) if default is not None else None


@dataclass(frozen=True, slots=True)
class _IndexRun:
    """The sync of one agent, by the options of the command. It is `alone` if no other agent is synced.

    `approval` is the command that approves its cost.
    """

    agent: str
    approval: str
    as_json: bool
    force: bool
    dry_run: bool
    alone: bool


def _index_one(client: MemorydClient, run: _IndexRun) -> bool:
    """Sync one agent and return whether its index is complete. Unless it is alone, print a failure and return False.

    Raises:
        MemorydError: the run failed and the agent is alone, or the connection broke.
    """
    from memoryd.client import MemorydError  # noqa: PLC0415 -- not needed for help

    agent = run.agent
    try:
        with sync_events(client, agent, force=run.force, dry_run=run.dry_run) as events:
            done = follow_as_json(events, agent, run.approval) if run.as_json else follow_with_bar(events, agent)
    except MemorydError as error:
        # A status without a reason comes from gRPC: the connection broke, so the next agent would fail too.
        if run.alone or not error.reason:
            raise
        complain(f"{agent}: {error.message}", error.reason)
        return False
    if not run.as_json:
        click.echo(_dry_run_line(agent, done) if run.dry_run else _done_line(agent, done))
        for line in _vector_lines(done, run):
            complain(f"{agent}: {line}")
    return run.dry_run or is_complete(done)


def sync_events(
    client: MemorydClient, agent: str, *, force: bool = False, dry_run: bool = False
) -> Stream[messages.SyncResponse]:
    """Return the events of a sync. With `force`, it rebuilds the index, after the end of a sync in progress."""
    mode = "SYNC_MODE_FULL" if force else "SYNC_MODE_INCREMENTAL"
    return client.sync(agent_id=agent, mode=mode, dry_run=dry_run, on_conflict="ON_CONFLICT_WAIT")


def _done_line(agent: str, done: messages.SyncCompleted) -> str:
    counts = (
        f"{done.indexed_files} indexed, {done.unchanged_files} unchanged, {done.removed_files} removed, "
        f"{done.failed_files} failed"
    )
    if done.pending_embeddings:
        counts += f", {_chunks(done.pending_embeddings)} without a vector"
    state = "incomplete" if done.vectors_missing else "updated"
    return f"Memory index {state} ({agent}): {counts}, in {done.elapsed.ToMilliseconds() / 1000:.2f} s."


def _vector_lines(done: messages.SyncCompleted, run: _IndexRun) -> Iterator[str]:
    """Yield the reasons for degraded vectors, and if some are missing, what to do."""
    reasons = [degradation.reason for degradation in done.degradations]
    yield from (each for n, each in enumerate(reasons) if not any(each in other for other in reasons[:n]))
    if needs_approval(done.degradations):
        yield approval_line(run.approval)
    elif run.dry_run or not done.pending_embeddings:
        return
    elif done.pending_embeddings == done.refused_embeddings:
        yield "keyword search finds these chunks; to get vectors, change the refused texts or the provider"
    else:
        yield "keyword search finds these chunks; fix the cause and run memoryd index again"


def approval_line(command: str) -> str:
    """Return what to do if the cost of an agent needs approval."""
    return f"to approve the cost, run: {command}"


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
    """Print the state of an agent's index, now and after each change.

    Runs until Ctrl-C is pressed.
    """
    with connected(common, background=True) as daemon, daemon.client.watch(agent_id=agent) as states:
        for state in states:
            if as_json:
                print_json_line(as_dict(state))
            elif not state.heartbeat:
                click.echo(_state_line(state))


def _state_line(state: messages.WatchIndexResponse) -> str:
    word = enum_word(state, "state")
    line = f"{state.time.ToDatetime():%H:%M:%S} {state.agent_id} {word}, revision {state.index_revision}"
    if state.pending_files:
        line += f", {state.pending_files} files pending"
    if state.HasField("active_sync"):
        progress = state.active_sync.progress
        line += f", syncing {progress.completed_files}/{progress.total_files}"
    return line


def follow_quietly(client: MemorydClient, agent: str) -> messages.SyncCompleted:
    """Sync with a progress bar that is removed at the end, and print failed files on standard error."""
    with sync_events(client, agent) as events:
        return follow_with_bar(events, agent, transient=True)


def follow_with_bar(
    events: Iterable[messages.SyncResponse], agent: str, *, transient: bool = False
) -> messages.SyncCompleted:
    """Follow a run to its end, with a progress bar on standard error if it is a terminal; return its last event.

    The bar counts files while they are read, then the chunks to embed. Failed files are printed on standard error. A
    `transient` bar is removed at the end.
    """
    from memoryd import messages  # noqa: PLC0415 -- not needed for help

    completed = messages.SyncCompleted()
    with progress_bar(transient=transient) as bar:
        for event in events:
            kind = event.WhichOneof("event")
            if kind == "progress":
                _show_progress(bar, event.progress, agent)
            elif kind == "file_failed":
                complain(f"{event.file_failed.path}: {event.file_failed.error}")
            elif kind == "completed":
                completed = event.completed
    return completed


def _show_progress(bar: ProgressBar, progress: messages.SyncProgress, agent: str) -> None:
    phase = enum_word(progress, "phase")
    if phase == "waiting":
        bar.update(f"waiting for the end of another sync {agent}".strip(), 0, None)
    elif phase == "embedding":
        sent, tokens = progress.completed_tokens, progress.total_tokens
        unit = f"chunks, about {sent:,} of {tokens:,} tokens" if tokens else "chunks"
        unit += f", waiting for {progress.batch_jobs} batch jobs" if progress.batch_jobs else ""
        bar.update(f"embedding {agent}".strip(), progress.completed_chunks, progress.total_chunks, unit)
    elif phase in {"planning", "indexing"}:
        bar.update(f"indexing {agent}".strip(), progress.completed_files, progress.total_files or None, "files")


def follow_as_json(events: Iterable[messages.SyncResponse], agent: str, approval: str) -> messages.SyncCompleted:
    """Follow a run to its end; print each event as one line of JSON with `agentId`, and return the last one.

    `approval` is the command that approves the agent's cost, for the reasons of degradations.
    """
    from memoryd import messages  # noqa: PLC0415 -- not needed for help

    completed = messages.SyncCompleted()
    for event in events:
        with_command(event.completed.degradations, approval)
        print_json_line({"agentId": agent, **as_dict(event)})
        if event.WhichOneof("event") == "completed":
            completed = event.completed
    return completed


def is_complete(done: messages.SyncCompleted) -> bool:
    """Return whether every file is indexed, and every vector exists that should."""
    return not (done.failed_files or done.vectors_missing)
