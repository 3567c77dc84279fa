"""`memoryd index` and `memoryd watch`: bringing the index up to date, and following it."""

import sys
from collections.abc import Iterator

import click

from memoryd import messages
from memoryd.client import MemorydClient
from memoryd_server.cli.following import follow_as_json, follow_with_bar
from memoryd_server.cli.options import Common, agent_option, common_options, json_option
from memoryd_server.cli.output import FAILURE, enum_word, print_json_line, reported
from memoryd_server.cli.session import session


@click.command()
@common_options
@agent_option
@json_option
@click.option("--force", is_flag=True, help="Rebuild from empty beside the index that answers.")
@click.option("--dry-run", is_flag=True, help="Only say what would be done.")
def index(common: Common, agent: str, as_json: bool, force: bool, dry_run: bool) -> None:
    """Brings the index in line with the files; all agents unless one is named. Exits with 1 when a file failed."""
    with reported(), session(common) as found:
        agents = [agent] if agent else _enabled_agents(found.client)
        failed = sum(_index_one(found.client, each, as_json, force, dry_run) for each in agents)
    sys.exit(FAILURE if failed else 0)


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


def _index_one(client: MemorydClient, agent: str, as_json: bool, force: bool, dry_run: bool) -> int:
    """How many files failed."""
    mode = messages.SYNC_MODE_FULL if force else messages.SYNC_MODE_INCREMENTAL
    with client.sync(agent_id=agent, mode=mode, dry_run=dry_run) as events:
        if as_json:
            return follow_as_json(events).failed_files
        done = follow_with_bar(events, label=f"indexing {agent}")
    click.echo(_dry_run_line(agent, done) if dry_run else _done_line(agent, done))
    return done.failed_files


def _done_line(agent: str, done: messages.SyncCompleted) -> str:
    counts = (
        f"{done.indexed_files} indexed, {done.unchanged_files} unchanged, {done.removed_files} removed, "
        f"{done.failed_files} failed"
    )
    return f"Memory index updated ({agent}): {counts}, in {done.elapsed.ToMilliseconds() / 1000:.2f} s."


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
