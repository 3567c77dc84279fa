"""`memoryd search` and `memoryd get`: finding and reading."""

import sys
from collections.abc import Iterator
from typing import Any

import click

from memoryd import messages
from memoryd.client import MemorydClient
from memoryd_server.cli.connection import session
from memoryd_server.cli.index import follow_quietly
from memoryd_server.cli.options import CommonOptions, agent_option, common_options, json_option, reported, show

_MODES = ("hybrid", "keyword", "vector")


@click.command()
@common_options
@agent_option
@json_option
@click.option("--max-results", type=int, help="Most results.")
@click.option("--min-score", type=float, help="Lowest score, 0 to 1.")
@click.option("--mode", type=click.Choice(_MODES), help="Legs to run.")
@click.option("--explain", is_flag=True, help="Show how scores came about.")
@click.option("--session-key", help="Session that asks; by default a direct chat at the command line.")
@click.option("--query", "query_option", help="The question; wins over the argument.")
@click.argument("query", required=False, nargs=-1)
def search(
    common: CommonOptions,
    agent: str,
    as_json: bool,
    max_results: int | None,
    min_score: float | None,
    mode: str | None,
    explain: bool,
    session_key: str | None,
    query_option: str | None,
    query: tuple[str, ...],
) -> None:
    """Finds the parts of the memory that answer QUERY.

    Without a running daemon the index is brought up to date first.
    """
    text = query_option or " ".join(query)
    if not text.strip():
        raise click.UsageError("say what to search for: memoryd search QUERY")
    with reported(), session(common) as found:
        if not found.remote:
            follow_quietly(found.client, agent)
        given: dict[str, Any] = {"max_results": max_results, "min_score": min_score, "mode": _mode(mode)}
        answer = found.client.search(
            agent_id=agent,
            query=text,
            explain=explain,
            session_key=direct_session(agent) if session_key is None else session_key,
            **{k: v for k, v in given.items() if v is not None},
        )
        show(answer, lambda: _answer_lines(answer), as_json=as_json)


def direct_session(agent: str) -> str:
    """The session key of whoever asks at the command line: the memory's owner, as in a direct chat."""
    return f"agent:{agent or 'main'}:cli:direct:memory-search"


def _mode(name: str | None) -> str | None:
    return None if name is None else f"SEARCH_MODE_{name.upper()}"


def _answer_lines(answer: messages.MemorySearchResponse) -> Iterator[str]:
    for result in answer.results:
        yield f"{result.score:.3f} {result.path}:{result.start_line}-{result.end_line}"
        yield from (f"    {line}" for line in result.snippet.split("\n"))
        yield ""
    if not answer.results:
        yield f"No matches: {answer.info.empty_explanation}."
    for degradation in answer.info.degradations:
        click.echo(f"memoryd: degraded: {degradation.reason}", err=True)
    if answer.info.stale:
        click.echo("memoryd: files have changed since the index was built; a sync is due", err=True)


@click.command()
@common_options
@agent_option
@json_option
@click.option("--start-line", type=int, help="First line, from 1.")
@click.option("--line-count", type=int, help="Number of lines.")
@click.argument("path")
def get(
    common: CommonOptions, agent: str, as_json: bool, start_line: int | None, line_count: int | None, path: str
) -> None:
    """Prints lines of the memory file PATH, as search results name it."""
    with reported(), session(common) as found:
        read = _read(found.client, agent, path, start_line, line_count)
        if as_json:
            show(read, lambda: iter(()), as_json=True)
            return
        sys.stdout.write(read.text if read.text.endswith("\n") or not read.text else read.text + "\n")
        if read.next_start_line:
            more = f"lines {read.start_line}-{read.end_line} of {read.total_lines}; go on with"
            click.echo(f"memoryd: {more} --start-line {read.next_start_line}", err=True)


def _read(
    client: MemorydClient, agent: str, path: str, start_line: int | None, line_count: int | None
) -> messages.MemoryGetResponse:
    given = {"start_line": start_line, "line_count": line_count}
    return client.get(agent_id=agent, path=path, **{k: v for k, v in given.items() if v is not None})
