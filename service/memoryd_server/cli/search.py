"""`memoryd search` and `memoryd get`: search the memory, and read the lines of a file."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from memoryd_server.cli.approval import approval_command, needs_approval, with_command
from memoryd_server.cli.index import all_agents, follow_quietly
from memoryd_server.cli.options import (
    CommonOptions,
    agent_option,
    common_options,
    complain,
    connected,
    enum_word,
    json_option,
    program_name,
    reported,
    show,
)
from memoryd_server.cli.progress import download_models

if TYPE_CHECKING:
    from memoryd import messages
    from memoryd.client import MemorydClient
    from memoryd_server.cli.connection import Connection

_MAIN = "main"
_MODES = ("hybrid", "keyword", "vector")


@click.command()
@common_options
@agent_option
@json_option
@click.option("--max-results", type=int, help="Maximum number of results.")
@click.option("--min-score", type=float, help="Minimum score, 0 to 1.")
@click.option(
    "--abstain-below", type=float, help="Show no results if the confidence that they answer is lower, 0 to 1."
)
@click.option("--mode", type=click.Choice(_MODES), help="Search by keywords, by vectors, or by both (hybrid).")
@click.option("--explain", is_flag=True, help="Add the details of each score to the JSON output.")
@click.option(
    "--session-key",
    help="Key of the calling session; agent:<id>:... also selects the agent. Default: "
    "agent:<agent>:cli:direct:memory-search, the key of a direct chat.",
)
@click.option("--query", "query_option", help="The query; takes precedence over the argument.")
@click.argument("query", required=False, nargs=-1)
def search(
    common: CommonOptions,
    agent: str,
    as_json: bool,
    max_results: int | None,
    min_score: float | None,
    abstain_below: float | None,
    mode: str | None,
    explain: bool,
    session_key: str | None,
    query_option: str | None,
    query: tuple[str, ...],
) -> None:
    """Search the memory for QUERY.

    If no daemon is running, the index is updated first, and a missing local model is downloaded.
    """
    text = query_option or " ".join(query)
    if not text.strip():
        raise click.UsageError("the query is empty; usage: memoryd search QUERY")
    workspace = common.workspace and _existing_workspace(common.workspace)
    common = replace(common, workspace=workspace)
    with reported(), _open(common) as daemon:
        key = session_key
        if key is None:
            searched = agent or _default_agent(daemon.client)
            key = direct_session(searched) if searched else ""
        if not daemon.remote:
            if mode != "keyword":
                download_models(daemon, agent)
            follow_quietly(daemon.client, agent or _agent_of(key))
        given: dict[str, Any] = {
            "max_results": max_results,
            "min_score": min_score,
            "abstain_below": abstain_below,
            "mode": _mode(mode),
        }
        answer = daemon.client.search(
            agent_id=agent,
            query=text,
            explain=explain,
            session_key=key,
            **{k: v for k, v in given.items() if v is not None},
        )
        if needs_approval(answer.info.degradations):
            with_command(answer.info.degradations, approval_command(common, agent or _agent_of(key)))
        show(answer, lambda: _answer_lines(answer, explain=explain), as_json=as_json)
        if not daemon.remote and common.workspace is not None:
            complain(_permanent_text(common.workspace))


@contextmanager
def _open(common: CommonOptions) -> Iterator[Connection]:
    """Yield a connection to a daemon: to one of its own for a folder of notes that is not set up as a memory."""
    from memoryd_server.cli.connection import open_connection  # noqa: PLC0415 -- not needed for help

    if common.workspace is not None:
        from memoryd_server.cli.plain_folder import is_plain_folder, open_plain_folder  # noqa: PLC0415

        if is_plain_folder(common):
            with open_plain_folder(common) as connection:
                yield connection
            return
    with open_connection(common) as connection:
        yield connection


def _existing_workspace(workspace: Path) -> Path:
    """Return a folder, with the home directory in place of `~`.

    Raises:
        click.UsageError: it is not a folder.
    """
    with suppress(OSError, RuntimeError):
        # Shells do not replace the `~` in `--workspace=~/notes`.
        folder = workspace.expanduser()
        if folder.is_dir():
            return folder
    raise click.UsageError(f"--workspace: {workspace} is not a folder; give the folder of your notes")


def _permanent_text(workspace: Path) -> str:
    """Return how to keep a memory that was indexed by a single command."""
    from memoryd.discovery import Environment  # noqa: PLC0415 -- not needed for help
    from memoryd_server.cli.daemon_registry import has_memory  # noqa: PLC0415

    folder, environment = workspace.expanduser().absolute(), Environment.of_process()
    command = f"{program_name()} init {shlex.quote(str(workspace))}"
    if has_memory(environment.state_dir):
        # The settings there belong to another memory.
        command += f" --state-dir {shlex.quote(str(environment.home / '.memoryd' / folder.name))}"
    return f"no daemon serves {workspace}, so this command indexed it. To set up a memory for it: {command}"


def direct_session(agent: str) -> str:
    """Return the session key of a search at the command line: like a direct chat with the owner of the memory."""
    return f"agent:{agent}:cli:direct:memory-search"


def _default_agent(client: MemorydClient) -> str:
    """Return the id of the agent that an empty id means: `main`, or the default agent if there is no `main`.

    Empty if no agent is the default.
    """
    defaults = {agent.agent_id: agent.default for agent in all_agents(client)}
    default = next((agent_id for agent_id, default in defaults.items() if default), "")
    return _MAIN if default and _MAIN in defaults else default


def _agent_of(session_key: str) -> str:
    from memoryd_server.agent import agent_of_session  # noqa: PLC0415 -- help and remote calls do not need it

    return agent_of_session(session_key)


def _mode(name: str | None) -> str | None:
    return None if name is None else f"SEARCH_MODE_{name.upper()}"


def _reranking_text(info: messages.RerankInfo) -> str:
    model = f"{info.provider} {info.model}".strip()
    milliseconds = info.elapsed.ToMilliseconds()
    return f"{info.candidates} results reranked by {model} in {milliseconds} ms, {info.cached} of them from the cache"


def _answer_lines(answer: messages.MemorySearchResponse, *, explain: bool) -> Iterator[str]:
    for result in answer.results:
        yield f"{result.score:.3f} {result.path}:{result.start_line}-{result.end_line}"
        yield from (f"    {line}" for line in result.snippet.split("\n"))
        yield ""
    if not answer.results and enum_word(answer.info, "empty_reason") == "empty index":
        yield f"No matches: no memory file is indexed. To set up a memory: {program_name()} init FOLDER"
    elif not answer.results:
        yield f"No matches: {answer.info.empty_explanation}."
    elif answer.info.matched_any_word:
        click.echo("memoryd: no file contains all words of the query; the results contain some of them", err=True)
    for degradation in answer.info.degradations:
        click.echo(f"memoryd: degraded: {degradation.reason}", err=True)
    if explain and answer.info.HasField("reranking"):
        click.echo(f"memoryd: {_reranking_text(answer.info.reranking)}", err=True)
    if answer.info.stale:
        click.echo("memoryd: the index is stale: files have changed since the last sync", err=True)


@click.command()
@common_options
@agent_option
@json_option
@click.option("--start-line", type=int, help="First line to print, counted from 1.")
@click.option("--line-count", type=int, help="Number of lines to print.")
@click.argument("path")
def get(
    common: CommonOptions, agent: str, as_json: bool, start_line: int | None, line_count: int | None, path: str
) -> None:
    """Print lines of a memory file.

    PATH is a path as shown in search results.
    """
    with connected(common) as daemon:
        answer = _read(daemon.client, agent, path, start_line, line_count)
        if as_json:
            show(answer, lambda: iter(()), as_json=True)
            return
        sys.stdout.write(answer.text if answer.text.endswith("\n") or not answer.text else answer.text + "\n")
        if answer.next_start_line:
            lines = f"lines {answer.start_line}-{answer.end_line} of {answer.total_lines}"
            click.echo(f"memoryd: {lines}; continue with --start-line {answer.next_start_line}", err=True)


def _read(
    client: MemorydClient, agent: str, path: str, start_line: int | None, line_count: int | None
) -> messages.MemoryGetResponse:
    given = {"start_line": start_line, "line_count": line_count}
    return client.get(agent_id=agent, path=path, **{k: v for k, v in given.items() if v is not None})
