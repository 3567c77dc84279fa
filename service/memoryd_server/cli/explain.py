"""`memoryd explain`: show why a search does not find a file or a line."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import click

from memoryd_server.cli.filters import needs_models, search_options
from memoryd_server.cli.options import CommonOptions, agent_option, common_options, enum_word, json_option, show
from memoryd_server.cli.searched_memory import complain_about, searched_memory, session_key_option

if TYPE_CHECKING:
    from memoryd import messages

_LINE = re.compile(r"(.+):([0-9]{1,9})", re.DOTALL | re.ASCII)

# The parts of a score in the order in which they are computed; the last ones are ranks.
_PARTS = (
    *("text", "window", "vector", "annotations", "decay", "date", "adjacent", "rerank", "coverage"),
    *("keyword_rank", "vector_rank"),
)


@click.command()
@common_options
@agent_option
@json_option
@search_options
@session_key_option
@click.option("--query", required=True, help="The query of the search.")
@click.argument("place", metavar="PATH[:LINE]")
def explain(
    common: CommonOptions,
    agent: str,
    as_json: bool,
    given: dict[str, Any],
    session_key: str | None,
    query: str,
    place: str,
) -> None:
    """Show why a search does not find a memory file, or a line of it.

    PATH is a path as shown in search results. The other options are those of the search. If the search finds the file,
    its rank is shown.
    """
    if not query.strip():
        raise click.UsageError("the query is empty; usage: memoryd explain PATH --query QUERY")
    found = _LINE.fullmatch(place)
    fields: dict[str, Any] = {"path": place} if found is None else {"path": found[1], "line": int(found[2])}
    with searched_memory(common, agent, session_key, needs_models=needs_models(given)) as memory:
        search = {"query": query, "session_key": memory.session_key, **given}
        answer = memory.client.explain_miss(agent_id=agent, search=search, **fields)
        memory.name_approval(answer.info.degradations)
        show(answer, lambda: _lines(answer), as_json=as_json)
        complain_about(answer.info)


def _lines(answer: messages.ExplainMissResponse) -> Iterator[str]:
    yield f"{answer.path}: {enum_word(answer, 'reason')}: {answer.explanation}"
    if not answer.HasField("chunk"):
        return
    chunk = answer.chunk
    yield ""
    yield f"{chunk.score:.3f} {chunk.path}:{chunk.start_line}-{chunk.end_line}"
    yield from (f"    {line}" for line in chunk.snippet.split("\n"))
    parts = [f"{name} {_number(chunk.score_detail, name)}" for name in _PARTS if chunk.score_detail.HasField(name)]
    if parts:
        yield f"    score: {', '.join(parts)}"


def _number(detail: messages.ScoreDetail, name: str) -> str:
    value = getattr(detail, name)
    return str(value) if isinstance(value, int) else f"{value:.3f}"
