"""`memoryd index` and `memoryd watch`: bringing the index up to date, and following it."""

import sys
from collections.abc import Iterator

import click

from memoryd import messages
from memoryd.client import MemorydClient, MemorydError
from memoryd_server.cli.following import follow_as_json, follow_with_bar, is_complete
from memoryd_server.cli.options import Common, agent_option, common_options, json_option
from memoryd_server.cli.output import FAILURE, complain, enum_word, print_json_line, reported
from memoryd_server.cli.session import session


@click.command()
@common_options
@agent_option
@json_option
@click.option("--force", is_flag=True, help="Rebuild from empty beside the index that answers.")
@click.option("--dry-run", is_flag=True, help="Only say what would be done.")
def index(common: Common, agent: str, as_json: bool, force: bool, dry_run: bool) -> None:
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
def watch(common: Common, agent: str, as_json: bool) -> None:
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
