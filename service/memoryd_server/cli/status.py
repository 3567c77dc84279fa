"""`memoryd status`, `agents`, `files` and `config`: show the state of the memory, and the settings."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import click

from memoryd_server.cli.approval import approval_command, needs_approval, with_command
from memoryd_server.cli.filters import FILE_SOURCES, filter_options, source_option
from memoryd_server.cli.index import all_agents, approval_line, follow_quietly, is_complete
from memoryd_server.cli.options import (
    FAILURE,
    CommonOptions,
    agent_option,
    as_dict,
    bytes_text,
    common_options,
    complain,
    connected,
    each_agent_option,
    enum_word,
    json_option,
    print_json,
    reported,
)
from memoryd_server.cli.progress import download_models

if TYPE_CHECKING:
    from memoryd import messages
    from memoryd.client import MemorydClient
    from memoryd_server.cli.connection import Connection


@click.command()
@common_options
@each_agent_option
@json_option
@click.option("--deep", is_flag=True, help="Also call the embedding provider and qmd once, and test sqlite-vec.")
@click.option("--index", "sync_first", is_flag=True, help="Sync first; implies --deep.")
def status(common: CommonOptions, agent: str, as_json: bool, deep: bool, sync_first: bool) -> None:
    """Show index, provider and sync status.

    Exits with 1 if a status cannot be read. With --index, it also exits with 1 if a sync or a file fails, or if vectors
    are missing.
    """
    with connected(common) as daemon:
        agents = [each for each in all_agents(daemon.client) if agent in ("", each.agent_id)]
        if agent and not agents:
            daemon.client.status(agent_id=agent)
        reports = [
            _report(daemon, each, approval_command(common, each.agent_id), deep=deep, sync_first=sync_first)
            for each in agents
        ]
    if as_json:
        print_json(reports)
    else:
        for report in reports:
            click.echo("\n".join(_lines(report)) + "\n")
    sys.exit(FAILURE if any("error" in report or not report.get("complete", True) for report in reports) else 0)


def _report(
    daemon: Connection, agent: messages.Agent, approval: str, *, deep: bool, sync_first: bool
) -> dict[str, object]:
    """Return `agentId` and `status` or `error`; after a sync also `sync`, its last event, and `complete`.

    `approval` is the command that approves the agent's cost. It is printed on standard error if the sync needs it.
    """
    from memoryd.client import MemorydError  # noqa: PLC0415 -- not needed for help

    report: dict[str, object] = {"agentId": agent.agent_id, "enabled": agent.enabled}
    if not agent.enabled:
        return report
    client = daemon.client
    try:
        if sync_first:
            download_models(daemon, agent.agent_id)
            done = follow_quietly(client, agent.agent_id)
            if needs_approval(done.degradations):
                complain(f"{agent.agent_id}: {approval_line(approval)}")
            with_command(done.degradations, approval)
            report |= {"sync": as_dict(done), "complete": is_complete(done)}
        answer = client.status(agent_id=agent.agent_id, probe=deep or sync_first)
        with_command(answer.degradations, approval)
    except MemorydError as error:
        return {**report, "error": str(error)}
    return {**report, "status": as_dict(answer), "text": list(_status_lines(answer))}


def _lines(report: dict[str, object]) -> Iterator[str]:
    yield f"Agent {report['agentId']}"
    if not report["enabled"]:
        yield "  memory search is disabled"
    elif "error" in report:
        yield f"  {report['error']}"
    else:
        yield from (f"  {line}" for line in report.pop("text"))  # type: ignore[attr-defined]


def _status_lines(answer: messages.StatusResponse) -> Iterator[str]:
    index = answer.index
    state = enum_word(index, "state")
    yield f"Workspace  {answer.workspace}"
    yield f"Index      {state}, revision {index.revision}, {bytes_text(index.size_bytes)}, {index.path}"
    for source in index.sources:
        name = enum_word(source, "source")
        yield f"Indexed    {source.files_indexed}/{source.files_on_disk} files · {source.chunks} chunks ({name})"
    # A workspace that is the only root has the counts of its source.
    if len(index.roots) > 1:
        yield from map(_root_line, index.roots)
    yield f"Dirty      {f'yes, {index.pending_files} files pending' if index.dirty else 'no'}"
    if index.HasField("oldest_unindexed_age"):
        seconds = index.oldest_unindexed_age.ToMilliseconds() / 1000
        yield f"Lag        {seconds:.0f} s since the oldest pending change"
    if answer.qmd.configured:
        version = f" {answer.qmd.version}" if answer.qmd.version else ""
        yield f"Backend    qmd{version}{'' if answer.qmd.available else f' is unavailable: {answer.qmd.reason}'}"
    yield from _embedding_lines(answer.embedding)
    if answer.HasField("reranker"):
        yield _reranker_line(answer.reranker)
    yield _vector_line(answer.vector)
    yield f"FTS        {'ready' if answer.fulltext.available else answer.fulltext.error}"
    yield f"Cache      {answer.cache.entries} of {answer.cache.max_entries} embeddings"
    watchers = (
        f"Watcher    {watcher.root}: {enum_word(watcher, 'mode')}" + (f" ({watcher.reason})" if watcher.reason else "")
        for watcher in answer.watchers
    )
    # A workspace that is an extra path as well is two roots.
    yield from dict.fromkeys(watchers)
    yield from (f"Degraded   {each.reason}" for each in answer.degradations)
    yield from (f"Issue      {issue}" for issue in answer.source_issues)
    yield from (f"Failed     {failed.path}: {failed.error}" for failed in answer.failed_files)
    yield from (f"Settings   {warning}" for warning in answer.service.settings_warnings)
    yield from (f"Failing    {failure}" for failure in answer.service.background_failures)
    yield from (f"Settings   {key} needs a restart" for key in answer.service.settings_awaiting_restart)
    if answer.service.settings_error:
        yield f"Settings   the last reload failed: {answer.service.settings_error}"


def _root_line(root: messages.RootStatus) -> str:
    pending = f" · {root.pending_files} pending" if root.pending_files else ""
    failed = f" · {root.files_failed} failed" if root.files_failed else ""
    lag = ""
    if root.HasField("oldest_unindexed_age"):
        lag = f" for {root.oldest_unindexed_age.ToMilliseconds() / 1000:.0f} s"
    name = enum_word(root, "source")
    return f"Root       {root.root}: {root.files_indexed}/{root.files_on_disk} files{pending}{lag}{failed} ({name})"


def _embedding_lines(embedding: messages.EmbeddingStatus) -> Iterator[str]:
    reason = f": {embedding.reason}" if embedding.reason else ""
    yield f"Provider   {embedding.provider or 'none'} (requested: {embedding.requested_provider}){reason}"
    # Without a provider, the reason is that of the line above.
    if embedding.provider and embedding.HasField("probe"):
        probe = embedding.probe
        seconds = probe.elapsed.ToNanoseconds() / 1e9
        result = f"answered with {probe.dimensions} dimensions" if probe.ok else f"failed: {probe.error}"
        yield f"Probe      {result}, in {seconds:.3f} s"


def _reranker_line(reranker: messages.RerankerStatus) -> str:
    model = f" {reranker.model}" if reranker.model else ""
    cost = f"{reranker.candidates} candidates, about {reranker.tokens_per_search} tokens per search"
    return f"Reranker   {reranker.provider}{model}{f': {reranker.reason}' if reranker.reason else f', {cost}'}"


def _vector_line(vector: messages.VectorStatus) -> str:
    engine = " ".join(filter(None, (vector.engine, vector.version)))
    path = f", {vector.extension_path}" if vector.extension_path else ""
    resident = f", {vector.resident_form} in memory ({bytes_text(vector.resident_bytes)})"
    error = f"; sqlite-vec is not used: {vector.load_error}" if vector.load_error else ""
    return f"Vector     {engine}{path}{resident if vector.resident_form else ''}{error}"


@click.command()
@common_options
@json_option
def agents(common: CommonOptions, as_json: bool) -> None:
    """List the configured agents."""
    with connected(common) as daemon:
        listed = list(all_agents(daemon.client))
    if as_json:
        print_json([as_dict(agent) for agent in listed])
        return
    for agent in listed:
        state = enum_word(agent, "index_state")
        mark = " (default)" if agent.default else ""
        click.echo(f"{agent.agent_id}{mark}: {state if agent.enabled else 'disabled'}, {agent.workspace}")


@click.command()
@common_options
@agent_option
@json_option
@source_option(FILE_SOURCES, "Only this source. Repeated: any. Default: all configured sources.")
@filter_options
@click.option(
    "--excluded",
    is_flag=True,
    help="Also list what is not indexed because of a rule, or because it is a link, with the reason.",
)
def files(
    common: CommonOptions,
    agent: str,
    as_json: bool,
    sources: list[str],
    file_filter: dict[str, Any] | None,
    excluded: bool,
) -> None:
    """List an agent's memory files and their index state.

    A file that is not indexed yet has no known front matter, so it does not match --tag, --project, --type and --where.
    """
    with connected(common) as daemon:
        wanted = {"sources": sources, "filter": file_filter, "include_excluded": excluded}
        listed = list(_all_files(daemon.client, agent, wanted))
    if as_json:
        print_json([as_dict(file) for file in listed])
        return
    for file in listed:
        state = enum_word(file, "state")
        reason = f": {file.error or file.rule}" if file.error or file.rule else ""
        click.echo(f"{state:8} {bytes_text(file.size_bytes):>10} {file.chunks:>5} chunks  {file.path}{reason}")


def _all_files(client: MemorydClient, agent: str, wanted: dict[str, Any]) -> Iterator[messages.File]:
    token = ""
    while True:
        page = client.list_files(agent_id=agent, page_size=1000, page_token=token, **wanted)
        yield from page.files
        token = page.next_page_token
        if not token:
            return


@click.command()
@common_options
@json_option
def config(common: CommonOptions, as_json: bool) -> None:
    """Print every setting with its value and its origin.

    Secrets are masked.
    """
    with reported():
        settings = common.settings()
        described = settings.describe()
    if as_json:
        print_json({"settings": described, "warnings": list(settings.warnings)})
        return
    width = max(len(str(entry["key"])) for entry in described)
    for entry in described:
        click.echo(f"{entry['key']:<{width}}  {entry['value']}  ({_written(entry)})")
    for warning in settings.warnings:
        click.echo(f"memoryd: warning: {warning}", err=True)


def _written(entry: dict[str, object]) -> str:
    """Return the origin of a setting, with the key in the file if it has another name there, and its layout."""
    key, layout = entry.get("writtenAs"), entry.get("layout")
    name = f", {key}" if key and key != entry["key"] else ""
    return f"{entry['origin']}{name}{f', {layout} layout' if layout else ''}"
