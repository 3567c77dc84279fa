"""`memoryd search` and `memoryd get`: search the memory, and read the lines of a file."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import click

from memoryd_server.cli.filters import needs_models, search_options
from memoryd_server.cli.options import (
    CommonOptions,
    agent_option,
    common_options,
    complain,
    connected,
    enum_word,
    json_option,
    show,
)
from memoryd_server.cli.searched_memory import (
    complain_about,
    max_staleness_option,
    nothing_indexed,
    searched_memory,
    session_key_option,
)

if TYPE_CHECKING:
    from memoryd import messages


@click.command()
@common_options
@agent_option
@json_option
@search_options
@click.option(
    "--explain", is_flag=True, help="Show what each score is made of, and the candidates that are not results."
)
@max_staleness_option
@session_key_option
@click.option("--query", "query_option", help="The query; takes precedence over the argument.")
@click.argument("query", required=False, nargs=-1)
def search(
    common: CommonOptions,
    agent: str,
    as_json: bool,
    given: dict[str, Any],
    explain: bool,
    max_staleness: dict[str, int] | None,
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
    with searched_memory(common, agent, session_key, needs_models=needs_models(given)) as memory:
        answer = memory.client.search(
            agent_id=agent,
            query=text,
            explain=explain,
            max_staleness=max_staleness,
            session_key=memory.session_key,
            **given,
        )
        memory.name_approval(answer.info.degradations)
        show(answer, lambda: _answer_lines(answer, explain=explain), as_json=as_json)


def _place(result: messages.SearchResult) -> str:
    """Return the path of a result and its lines; an entry has none."""
    return f"{result.path}:{result.start_line}-{result.end_line}" if result.start_line else result.path


def _answer_lines(answer: messages.MemorySearchResponse, *, explain: bool) -> Iterator[str]:
    for result in answer.results:
        yield f"{result.score:.3f} {_place(result)}"
        yield from (f"    {line}" for line in result.snippet.split("\n"))
        if result.score_detail.parts:
            parts = (f"{enum_word(part, 'kind')} {part.amount:.3f}" for part in result.score_detail.parts)
            yield f"    score: {', '.join(parts)}"
        yield ""
    if not answer.results and enum_word(answer.info, "empty_reason") == "empty index":
        yield f"No matches: {nothing_indexed()}"
    elif not answer.results:
        yield f"No matches: {answer.info.empty_explanation}."
    elif answer.info.matched_any_word:
        complain("no file contains all words of the query; the results contain some of them")
    if answer.dropped:
        yield "Dropped:"
    for candidate in answer.dropped:
        place = f"{candidate.path}:{candidate.start_line}-{candidate.end_line}"
        yield f"{candidate.score:.3f} {place}: {enum_word(candidate, 'reason')}: {candidate.explanation}"
    complain_about(answer.info, explain=explain)


@click.command()
@common_options
@agent_option
@json_option
@click.option("--start-line", type=int, help="First line to print, counted from 1.")
@click.option("--line-count", type=int, help="Number of lines to print.")
@max_staleness_option
@click.argument("path")
def get(common: CommonOptions, agent: str, as_json: bool, path: str, **given: Any) -> None:
    """Print lines of a memory file.

    PATH is a path as shown in search results.
    """
    with connected(common) as daemon:
        fields = {name: value for name, value in given.items() if value is not None}
        answer = daemon.client.get(agent_id=agent, path=path, **fields)
        if as_json:
            show(answer, lambda: iter(()), as_json=True)
            return
        sys.stdout.write(answer.text if answer.text.endswith("\n") or not answer.text else answer.text + "\n")
        if answer.next_start_line:
            lines = f"lines {answer.start_line}-{answer.end_line} of {answer.total_lines}"
            click.echo(f"memoryd: {lines}; continue with --start-line {answer.next_start_line}", err=True)
