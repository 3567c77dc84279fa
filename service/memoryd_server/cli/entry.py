"""`memoryd entry`: short texts that are stored and recalled by meaning, beside the Markdown."""

import hashlib
import json
import sys
from collections.abc import Iterator
from typing import Any

import click

from memoryd import messages
from memoryd.client import MemorydClient
from memoryd_server.cli.connection import session
from memoryd_server.cli.options import (
    CommonOptions,
    agent_option,
    common_options,
    enum_word,
    json_option,
    print_json_line,
    reported,
    show,
)
from memoryd_server.errors import FieldViolation, InvalidRequest

_CATEGORIES = ("preference", "fact", "decision", "entity", "other")
_PAGE = 1_000

category_option = click.option(
    "--category",
    "categories",
    multiple=True,
    type=click.Choice(_CATEGORIES),
    help="Only these; several times for several.",
)


@click.group()
def entry() -> None:
    """Stores, recalls, lists and forgets entries; they are off unless the settings switch them on."""


@entry.command()
@common_options
@agent_option
@json_option
@click.option("--importance", type=click.FloatRange(0, 1), help="How much it matters. Default: 0.7.")
@click.option("--category", default="other", type=click.Choice(_CATEGORIES), help="What it is about. Default: other.")
@click.option("--key", default="", help="Idempotency key: a repeated call stores nothing.")
@click.argument("text")
def remember(
    common: CommonOptions, agent: str, as_json: bool, importance: float | None, category: str, key: str, text: str
) -> None:
    """Stores TEXT unless an entry says the same; `-` reads it from standard input."""
    content = sys.stdin.read() if text == "-" else text
    with reported(), session(common) as found:
        done = found.client.entries.remember(
            agent_id=agent,
            text=content,
            importance=importance,
            category=_category(category),
            idempotency_key=key,
        )
        show(done, lambda: _remembered_lines(done), as_json=as_json)


def _remembered_lines(done: messages.RememberResponse) -> Iterator[str]:
    word = enum_word(messages.RememberAction.Name(done.action), "REMEMBER_ACTION_")
    yield f"{word.capitalize()}: {_line(done.entry)}"
    yield from _degradation_lines(done)


@entry.command()
@common_options
@agent_option
@json_option
@click.option("--limit", type=click.IntRange(1, 50), help="Most entries. Default: 5.")
@click.option("--min-score", type=click.FloatRange(0, 1), help="Lowest score. Default: 0.1.")
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
    """Finds the entries nearest to QUERY."""
    with reported(), session(common) as found:
        answer = found.client.entries.recall(
            agent_id=agent, query=query, limit=limit, min_score=min_score, categories=map(_category, categories)
        )
        show(answer, lambda: _recalled_lines(answer), as_json=as_json)


def _recalled_lines(answer: messages.RecallResponse) -> Iterator[str]:
    yield from (_scored_line(scored) for scored in answer.entries)
    if not answer.entries:
        yield "No entry is near it."
    yield from _degradation_lines(answer)


@entry.command()
@common_options
@agent_option
@json_option
@click.option("--id", "entry_id", help="The entry's id.")
@click.argument("query", required=False)
def forget(common: CommonOptions, agent: str, as_json: bool, entry_id: str | None, query: str | None) -> None:
    """Deletes the entry that QUERY clearly means, or the one that --id names."""
    if (entry_id is None) == (query is None):
        raise click.UsageError("give either --id or a text")
    with reported(), session(common) as found:
        done = found.client.entries.forget(agent_id=agent, entry_id=entry_id, query=query)
        show(done, lambda: _forgotten_lines(done), as_json=as_json)


def _forgotten_lines(done: messages.ForgetResponse) -> Iterator[str]:
    if done.HasField("deleted"):
        yield f"Forgotten: {_line(done.deleted)}"
    elif done.candidates:
        yield "Nothing forgotten; it could mean one of these. Say which by --id:"
        yield from (_scored_line(scored) for scored in done.candidates)
    else:
        yield "Nothing forgotten: no entry is near it."
    yield from _degradation_lines(done)


@entry.command("list")
@common_options
@agent_option
@json_option
@click.option("--limit", type=click.IntRange(1, 1_000), default=100, help="Most entries. Default: 100.")
@category_option
def list_(common: CommonOptions, agent: str, as_json: bool, limit: int, categories: tuple[str, ...]) -> None:
    """Lists entries, newest first."""
    with reported(), session(common) as found:
        page = found.client.entries.list(agent_id=agent, page_size=limit, categories=map(_category, categories))
        show(page, lambda: _listed_lines(page), as_json=as_json)


def _listed_lines(page: messages.ListEntriesResponse) -> Iterator[str]:
    yield from map(_line, page.entries)
    yield f"{len(page.entries):,} of {page.total:,} entries"


@entry.command()
@common_options
@agent_option
def export(common: CommonOptions, agent: str) -> None:
    """Writes every entry to standard output, one JSON object a line, newest first."""
    with reported(), session(common) as found:
        for entry in _every(found.client, agent):
            print_json_line(
                {
                    "id": entry.entry_id,
                    "text": entry.text,
                    "importance": entry.importance,
                    "category": _category_word(entry),
                    "createdAt": entry.create_time.ToMilliseconds(),
                }
            )


def _every(client: MemorydClient, agent: str) -> Iterator[messages.Entry]:
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
    """Stores what `export` wrote, from FILE or from `-`; a repeated import stores nothing twice.

    Ids and times are new: entries are stored from the last line to the first, so that the newest stays the newest.
    """
    with reported():
        # Every line is looked at before the first is stored.
        read = [_read(number, line) for number, line in enumerate(file, 1) if line.strip()]
        with session(common) as found:
            stored = sum(
                found.client.entries.remember(request).action == messages.REMEMBER_ACTION_STORED
                for request in (_request(agent, entry) for entry in reversed(read))
            )
        click.echo(f"{stored:,} entries stored, {len(read) - stored:,} were there")


def _read(number: int, line: str) -> dict[str, Any]:
    """Raises: InvalidRequest: the line is no entry."""
    try:
        entry = json.loads(line)
        category = entry.get("category", "other")
        importance = entry.get("importance", 0.7)
        if isinstance(entry["text"], str) and category in _CATEGORIES and isinstance(importance, int | float):
            return {"text": entry["text"], "category": category, "importance": importance}
    except (ValueError, KeyError, AttributeError):
        pass
    words = 'is no entry such as {"text": "…", "category": "fact", "importance": 0.7}'
    raise InvalidRequest([FieldViolation(f"line {number}", words)])


def _request(agent: str, entry: dict[str, Any]) -> messages.RememberRequest:
    contents = json.dumps(entry, sort_keys=True, ensure_ascii=False)
    return messages.RememberRequest(
        agent_id=agent,
        text=entry["text"],
        importance=entry["importance"],
        category=_category(entry["category"]),
        idempotency_key=f"import {hashlib.sha256(contents.encode()).hexdigest()}",
    )


def _category(word: str) -> str:
    return f"ENTRY_CATEGORY_{word.upper()}"


def _category_word(entry: messages.Entry) -> str:
    return enum_word(messages.EntryCategory.Name(entry.category), "ENTRY_CATEGORY_")


def _line(entry: messages.Entry) -> str:
    return f"{entry.entry_id} [{_category_word(entry)}] {' '.join(entry.text.split())}"


def _scored_line(scored: messages.ScoredEntry) -> str:
    return f"{scored.score:.3f} {_line(scored.entry)}"


def _degradation_lines(
    answer: messages.RememberResponse | messages.RecallResponse | messages.ForgetResponse,
) -> Iterator[str]:
    yield from (f"degraded: {found.reason}" for found in answer.degradations)
