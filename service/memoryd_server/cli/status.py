"""Status, agents, files, config.

`memoryd status`: how each agent's memory is doing.

`memoryd agents`, `files` and `config`: what there is, and why.
"""

import sys
from collections.abc import Iterator

import click

from memoryd import messages
from memoryd.client import MemorydClient, MemorydError
from memoryd_server.cli.connection import session
from memoryd_server.cli.index import all_agents, follow_with_bar, is_complete
from memoryd_server.cli.options import (
    FAILURE,
    CommonOptions,
    agent_option,
    bytes_text,
    common_options,
    enum_word,
    json_option,
    print_json,
    reported,
)


@click.command()
@common_options
@agent_option
@json_option
@click.option("--deep", is_flag=True, help="Also call the embedding provider and QMD once.")
@click.option("--index", "sync_first", is_flag=True, help="Sync first; implies --deep.")
def status(common: CommonOptions, agent: str, as_json: bool, deep: bool, sync_first: bool) -> None:
    """Show how the memory is doing; all agents unless one is named.

    Exits with 1 when a sync or a status failed, and with --index when a file failed or vectors are wanted and missing.
    """
    with reported(), session(common) as found:
        agents = [each for each in all_agents(found.client) if agent in ("", each.agent_id)]
        if agent and not agents:
            found.client.status(agent_id=agent)
        reports = [_report(found.client, each, deep=deep or sync_first, sync_first=sync_first) for each in agents]
    if as_json:
        print_json(reports)
    else:
        for report in reports:
            click.echo("\n".join(_lines(report)) + "\n")
    sys.exit(FAILURE if any("error" in report or not report.get("complete", True) for report in reports) else 0)


def _report(client: MemorydClient, agent: messages.Agent, *, deep: bool, sync_first: bool) -> dict[str, object]:
    """Return `agentId` with `status` or `error`, and after a sync with `sync`, its last event, and `complete`."""
    found: dict[str, object] = {"agentId": agent.agent_id, "enabled": agent.enabled}
    if not agent.enabled:
        return found
    try:
        if sync_first:
            with client.sync(agent_id=agent.agent_id) as events:
                done = follow_with_bar(events, label=f"indexing {agent.agent_id}", transient=True)
            found |= {"sync": messages.to_dict(done), "complete": is_complete(done)}
        answer = client.status(agent_id=agent.agent_id, probe=deep)
    except MemorydError as error:
        return {**found, "error": str(error)}
    return {**found, "status": messages.to_dict(answer), "text": list(_status_lines(answer))}


def _lines(report: dict[str, object]) -> Iterator[str]:
    yield f"Agent {report['agentId']}"
    if not report["enabled"]:
        yield "  memory is disabled"
    elif "error" in report:
        yield f"  {report['error']}"
    else:
        yield from (f"  {line}" for line in report.pop("text"))  # type: ignore[attr-defined]


def _status_lines(answer: messages.StatusResponse) -> Iterator[str]:
    index = answer.index
    state = enum_word(messages.IndexState.Name(index.state), "INDEX_STATE_")
    yield f"Workspace  {answer.workspace}"
    yield f"Index      {state}, revision {index.revision}, {bytes_text(index.size_bytes)}, {index.path}"
    for source in index.sources:
        name = enum_word(messages.Source.Name(source.source), "SOURCE_")
        yield f"Indexed    {source.files_indexed}/{source.files_on_disk} files · {source.chunks} chunks ({name})"
    yield f"Dirty      {f'yes, {index.pending_files} files pending' if index.dirty else 'no'}"
    if index.HasField("oldest_unindexed_age"):
        yield f"Oldest     waiting for {index.oldest_unindexed_age.ToMilliseconds() / 1000:.0f} s"
    if answer.qmd.configured:
        version = f" {answer.qmd.version}" if answer.qmd.version else ""
        yield f"Backend    {'qmd' + version if answer.qmd.available else f'not qmd{version}: {answer.qmd.reason}'}"
    yield f"Provider   {answer.embedding.provider or 'none'} (requested: {answer.embedding.requested_provider})"
    held = f", {answer.vector.resident_form} in memory ({bytes_text(answer.vector.resident_bytes)})"
    yield f"Vector     {answer.vector.engine}{held if answer.vector.resident_form else ''}"
    yield f"FTS        {'ready' if answer.fulltext.available else answer.fulltext.error}"
    yield f"Cache      {answer.cache.entries} of {answer.cache.max_entries} embeddings"
    for watcher in answer.watchers:
        mode = enum_word(messages.WatcherMode.Name(watcher.mode), "WATCHER_MODE_")
        yield f"Watcher    {watcher.root}: {mode}" + (f" ({watcher.reason})" if watcher.reason else "")
    yield from (f"Degraded   {each.reason}" for each in answer.degradations)
    yield from (f"Issue      {issue}" for issue in answer.source_issues)
    yield from (f"Failed     {failed.path}: {failed.error}" for failed in answer.failed_files)
    yield from (f"Settings   {warning}" for warning in answer.service.settings_warnings)
    yield from (f"Settings   {key} waits for a restart" for key in answer.service.settings_awaiting_restart)
    if answer.service.settings_error:
        yield f"Settings   the last reload failed: {answer.service.settings_error}"


@click.command()
@common_options
@json_option
def agents(common: CommonOptions, as_json: bool) -> None:
    """Lists the configured agents."""
    with reported(), session(common) as found:
        listed = list(all_agents(found.client))
    if as_json:
        print_json([messages.to_dict(agent) for agent in listed])
        return
    for agent in listed:
        state = enum_word(messages.IndexState.Name(agent.index_state), "INDEX_STATE_")
        mark = " (default)" if agent.default else ""
        click.echo(f"{agent.agent_id}{mark}: {state if agent.enabled else 'disabled'}, {agent.workspace}")


@click.command()
@common_options
@agent_option
@json_option
def files(common: CommonOptions, agent: str, as_json: bool) -> None:
    """Lists an agent's memory files, each with whether it can be found, or why not."""
    with reported(), session(common) as found:
        listed = list(_all_files(found.client, agent))
    if as_json:
        print_json([messages.to_dict(file) for file in listed])
        return
    for file in listed:
        state = enum_word(messages.FileState.Name(file.state), "FILE_STATE_")
        why = f": {file.error}" if file.error else ""
        click.echo(f"{state:8} {bytes_text(file.size_bytes):>10} {file.chunks:>5} chunks  {file.path}{why}")


def _all_files(client: MemorydClient, agent: str) -> Iterator[messages.File]:
    token = ""
    while True:
        page = client.list_files(agent_id=agent, page_size=1000, page_token=token)
        yield from page.files
        token = page.next_page_token
        if not token:
            return


@click.command()
@common_options
@json_option
def config(common: CommonOptions, as_json: bool) -> None:
    """Prints every setting, its value and where it came from; secrets are masked."""
    with reported():
        settings = common.settings()
        described = settings.describe()
    if as_json:
        print_json({"settings": described, "warnings": list(settings.warnings)})
        return
    width = max(len(str(entry["key"])) for entry in described)
    for entry in described:
        click.echo(f"{entry['key']:<{width}}  {entry['value']}  ({entry['origin']})")
    for warning in settings.warnings:
        click.echo(f"memoryd: warning: {warning}", err=True)
