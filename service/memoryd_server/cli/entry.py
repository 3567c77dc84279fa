"""`memoryd entry`: short texts that are stored in addition to the Markdown files and recalled by meaning."""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import click

from memoryd_server.cli.options import (
    CommonOptions,
    agent_option,
    common_options,
    connected,
    enum_word,
    json_option,
    print_json_line,
    reported,
    show,
)
from memoryd_server.errors import FieldViolation, InvalidRequest
from memoryd_server.foreign_text import parse_json

if TYPE_CHECKING:
    from memoryd import messages
    from memoryd.client import MemorydClient

_CATEGORIES = ("preference", "fact", "decision", "entity", "other")
_PAGE = 1_000

category_option = click.option(
    "--category",
    "categories",
    multiple=True,
    type=click.Choice(_CATEGORIES),
    help="Return only entries of this category; can be repeated.",
)


@click.group()
def entry() -> None:
    """Store, recall, list and forget entries.

    Entries are disabled unless the settings enable them.
    """


@entry.command()
@common_options
@agent_option
@json_option
@click.option("--importance", type=click.FloatRange(0, 1), help="Importance of the entry. Default: 0.7.")
@click.option(
    "--category", default="other", type=click.Choice(_CATEGORIES), help="Category of the entry. Default: other."
)
@click.option("--key", default="", help="Idempotency key: a second call with this key stores nothing.")
@click.argument("text")
def remember(
    common: CommonOptions, agent: str, as_json: bool, importance: float | None, category: str, key: str, text: str
) -> None:
    """Store TEXT, unless an entry with the same meaning exists.

    If TEXT is `-`, the text is read from standard input.
    """
    content = sys.stdin.read() if text == "-" else text
    with connected(common) as daemon:
        done = daemon.client.entries.remember(
            agent_id=agent,
            text=content,
            importance=importance,
            category=_category(category),
            idempotency_key=key,
        )
        show(done, lambda: _remembered_lines(done), as_json=as_json)


def _remembered_lines(done: messages.RememberResponse) -> Iterator[str]:
    word = enum_word(done, "action")
    yield f"{word.capitalize()}: {_line(done.entry)}"
    yield from _degradation_lines(done)


@entry.command()
@common_options
@agent_option
@json_option
@click.option("--limit", type=click.IntRange(1, 50), help="Maximum number of entries. Default: 5.")
@click.option("--min-score", type=click.FloatRange(0, 1), help="Minimum score. Default: 0.1.")
@category_option
@click.argument("query")
def recall(
    common: CommonOptions,
    agent: str,
    as_json: bool,
    limit: int | None,
    min_score: float | None,
    categories: tuple[str, ...],
    query: str,
) -> None:
    """Find the entries nearest in meaning to QUERY."""
    with connected(common) as daemon:
        answer = daemon.client.entries.recall(
            agent_id=agent, query=query, limit=limit, min_score=min_score, categories=map(_category, categories)
        )
        show(answer, lambda: _recalled_lines(answer), as_json=as_json)


def _recalled_lines(answer: messages.RecallResponse) -> Iterator[str]:
    yield from (_scored_line(scored) for scored in answer.entries)
    if not answer.entries:
        yield "No entry matches."
    yield from _degradation_lines(answer)


@entry.command()
@common_options
@agent_option
@json_option
@click.option("--id", "entry_id", help="Id of the entry.")
@click.argument("query", required=False)
def forget(common: CommonOptions, agent: str, as_json: bool, entry_id: str | None, query: str | None) -> None:
    """Delete an entry.

    The entry is named by --id, or described by QUERY. If QUERY does not clearly match a single entry, nothing is
    deleted and the candidates are printed.
    """
    if (entry_id is None) == (query is None):
        raise click.UsageError("give either --id or QUERY")
    with connected(common) as daemon:
        done = daemon.client.entries.forget(agent_id=agent, entry_id=entry_id, query=query)
        show(done, lambda: _forgotten_lines(done), as_json=as_json)


def _forgotten_lines(done: messages.ForgetResponse) -> Iterator[str]:
    if done.HasField("deleted"):
        yield f"Deleted: {_line(done.deleted)}"
    elif done.candidates:
        yield "Nothing was deleted: the query could match any of these. Give one with --id:"
        yield from (_scored_line(scored) for scored in done.candidates)
    else:
        yield "Nothing was deleted: no entry matches."
    yield from _degradation_lines(done)


@entry.command("list")
@common_options
@agent_option
@json_option
@click.option("--limit", type=click.IntRange(1, 1_000), default=100, help="Maximum number of entries. Default: 100.")
@category_option
def list_(common: CommonOptions, agent: str, as_json: bool, limit: int, categories: tuple[str, ...]) -> None:
    """List entries, newest first."""
    with connected(common) as daemon:
        page = daemon.client.entries.list(agent_id=agent, page_size=limit, categories=map(_category, categories))
        show(page, lambda: _listed_lines(page), as_json=as_json)


def _listed_lines(page: messages.ListEntriesResponse) -> Iterator[str]:
    yield from map(_line, page.entries)
    yield f"{len(page.entries):,} of {page.total:,} entries"


@entry.command()
@common_options
@agent_option
def export(common: CommonOptions, agent: str) -> None:
    """Write all entries to standard output, newest first.

    Each line is a JSON object.
    """
    with connected(common) as daemon:
        for entry in _all_entries(daemon.client, agent):
            print_json_line(
                {
                    "id": entry.entry_id,
                    "text": entry.text,
                    "importance": entry.importance,
                    "category": _category_word(entry),
                    "createdAt": entry.create_time.ToMilliseconds(),
                }
            )


def _all_entries(client: MemorydClient, agent: str) -> Iterator[messages.Entry]:
    token = ""
    while True:
        page = client.entries.list(agent_id=agent, page_size=_PAGE, page_token=token)
        yield from page.entries
        token = page.next_page_token
        if not token:
            return


@entry.command("import")
@common_options
@agent_option
@click.argument("file", type=click.File(encoding="utf-8"))
def import_(common: CommonOptions, agent: str, file: Any) -> None:
    """Store the entries that `export` wrote to FILE.

    If FILE is `-`, standard input is read. Importing the same file again stores nothing. The entries get new ids and
    times. They are stored from the last line to the first, so that their order is kept.
    """
    with reported():
        # Validate every line before the first entry is stored.
        read = [_read(number, line) for number, line in enumerate(file, 1) if line.strip()]
        with connected(common) as daemon:
            stored = sum(
                enum_word(daemon.client.entries.remember(**_request(agent, entry)), "action") == "stored"
                for entry in reversed(read)
            )
        click.echo(f"{stored:,} entries stored, {len(read) - stored:,} existed already")


def _read(number: int, line: str) -> dict[str, Any]:
    """Return the fields of an exported entry.

    Raises:
        InvalidRequest: the line is not a valid entry.
    """
    try:
        entry = parse_json(line)
        category = entry.get("category", "other")
        importance = entry.get("importance", 0.7)
        if isinstance(entry["text"], str) and category in _CATEGORIES and isinstance(importance, int | float):
            return {"text": entry["text"], "category": category, "importance": importance}
    except (ValueError, KeyError, AttributeError):
        pass
    problem = 'not a valid entry; expected {"text": "…", "category": "fact", "importance": 0.7}'
    raise InvalidRequest([FieldViolation(f"line {number}", problem)])


def _request(agent: str, entry: dict[str, Any]) -> dict[str, Any]:
    contents = json.dumps(entry, sort_keys=True, ensure_ascii=False)
    return {
        "agent_id": agent,
        "text": entry["text"],
        "importance": entry["importance"],
        "category": _category(entry["category"]),
        "idempotency_key": f"import {hashlib.sha256(contents.encode()).hexdigest()}",
    }


def _category(word: str) -> str:
    return f"ENTRY_CATEGORY_{word.upper()}"


def _category_word(entry: messages.Entry) -> str:
    return enum_word(entry, "category")


def _line(entry: messages.Entry) -> str:
    return f"{entry.entry_id} [{_category_word(entry)}] {' '.join(entry.text.split())}"


def _scored_line(scored: messages.ScoredEntry) -> str:
    return f"{scored.score:.3f} {_line(scored.entry)}"


def _degradation_lines(
    answer: messages.RememberResponse | messages.RecallResponse | messages.ForgetResponse,
) -> Iterator[str]:
    yield from (f"degraded: {degradation.reason}" for degradation in answer.degradations)
