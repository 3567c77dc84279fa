"""The options of a search: those that select files and sources (`--since`, `--path`, `--source`), and all others.

Every module of a verb may import this one: it imports no gRPC.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterable, Mapping
from datetime import date
from typing import Any, TypeVar

import click

_F = TypeVar("_F", bound=Callable[..., Any])

FILE_SOURCES = ("memory", "sessions")
"""The sources whose texts are files."""
_MODES = ("hybrid", "keyword", "vector")
ALL_SOURCES = (*FILE_SOURCES, "entries")

_DATE = re.compile(r"[0-9]{4}(?:-[0-9]{2}){0,2}", re.ASCII)
_FIRST_DAY = "0000-01-01"


def filter_options(command: _F) -> _F:
    """Add the options that select files. The verb receives the fields of a `MemoryFilter` as `file_filter: dict`.

    `file_filter` is None if no option is given.
    """

    @functools.wraps(command)
    def with_filter(
        *args: Any,
        since: str | None,
        until: str | None,
        path_prefixes: tuple[str, ...],
        tags: tuple[str, ...],
        projects: tuple[str, ...],
        types: tuple[str, ...],
        where: tuple[tuple[str, str], ...],
        **kwargs: Any,
    ) -> Any:
        named = {"tags": tags, "project": projects, "type": types}
        pairs = [(key, value) for key, values in named.items() for value in values]
        given = {
            "since": since,
            "until": until,
            "path_prefixes": list(path_prefixes),
            "front_matter": _conditions([*pairs, *where]),
        }
        chosen = {name: value for name, value in given.items() if value}
        return command(*args, file_filter=chosen or None, **kwargs)

    decorated: Any = with_filter
    for option in (
        click.option(
            "--where",
            multiple=True,
            metavar="KEY=VALUE",
            callback=_key_and_value,
            help="Only files with this value of another front matter key. Repeated for a key: any of the values.",
        ),
        click.option("--type", "types", multiple=True, help="Only files of this front matter type. Repeated: any."),
        click.option(
            "--project", "projects", multiple=True, help="Only files of this front matter project. Repeated: any."
        ),
        click.option("--tag", "tags", multiple=True, help="Only files with this front matter tag. Repeated: any."),
        click.option(
            "--path",
            "path_prefixes",
            multiple=True,
            help="Only files whose path begins with this text, for example projects/. Repeated: any.",
        ),
        click.option(
            "--until", callback=_date, metavar="DATE", help="Only files dated on or before this day, month or year."
        ),
        click.option(
            "--since",
            callback=_date,
            metavar="DATE",
            help="Only files dated on or after this day, month or year: YYYY-MM-DD, YYYY-MM or YYYY. The date is that "
            "of the file's name, else of its front matter, else of its last change.",
        ),
    ):
        decorated = option(decorated)
    return decorated  # type: ignore[no-any-return]


def source_option(names: tuple[str, ...], text: str) -> Callable[[_F], _F]:
    """Return a decorator that adds `--source`. The verb receives the names of the enum as `sources: list[str]`."""
    return click.option("--source", "sources", multiple=True, type=click.Choice(names), callback=_enum_names, help=text)


def search_options(command: _F) -> _F:
    """Add the options of a search. The verb receives the fields of a `MemorySearchRequest` that are set as `given`."""

    @functools.wraps(command)
    def with_fields(
        *args: Any,
        max_results: int | None,
        min_score: float | None,
        abstain_below: float | None,
        mode: str | None,
        sources: list[str],
        file_filter: dict[str, Any] | None,
        **kwargs: Any,
    ) -> Any:
        fields = {
            "max_results": max_results,
            "min_score": min_score,
            "abstain_below": abstain_below,
            "mode": None if mode is None else f"SEARCH_MODE_{mode.upper()}",
            "sources": sources or None,
            "filter": file_filter,
        }
        given = {name: value for name, value in fields.items() if value is not None}
        return command(*args, given=given, **kwargs)

    decorated: Any = with_fields
    for option in (
        filter_options,
        source_option(ALL_SOURCES, "Only this source. Repeated: any. Default: all configured sources except entries."),
        click.option("--mode", type=click.Choice(_MODES), help="Search by keywords, by vectors, or by both (hybrid)."),
        click.option(
            "--abstain-below", type=float, help="Show no results if the confidence that they answer is lower, 0 to 1."
        ),
        click.option("--min-score", type=float, help="Minimum score, 0 to 1."),
        click.option("--max-results", type=int, help="Maximum number of results."),
    ):
        decorated = option(decorated)
    return decorated  # type: ignore[no-any-return]


def needs_models(given: Mapping[str, Any]) -> bool:
    """Return whether a search with the fields of `search_options` may need the embedding model."""
    return given.get("mode") != "SEARCH_MODE_KEYWORD"


def _enum_names(_: click.Context, __: click.Parameter, values: Iterable[str]) -> list[str]:
    return [f"SOURCE_{value.upper()}" for value in values]


def _date(_: click.Context, __: click.Parameter, value: str | None) -> str | None:
    """Return a date that the daemon accepts, so that a wrong one is reported before files are indexed."""
    if value is None:
        return None
    if _DATE.fullmatch(value):
        try:
            date.fromisoformat(value + _FIRST_DAY[len(value) :])
        except ValueError:
            pass
        else:
            return value
    raise click.BadParameter(f"{value!r} is not a date; write YYYY-MM-DD, YYYY-MM or YYYY")


def _key_and_value(_: click.Context, __: click.Parameter, values: Iterable[str]) -> list[tuple[str, str]]:
    pairs = []
    for text in values:
        key, separator, value = text.partition("=")
        if not (separator and key.strip() and value):
            raise click.BadParameter(f"{text!r} is not KEY=VALUE; write for example status=open")
        pairs.append((key.strip(), value))
    return pairs


def _conditions(pairs: Iterable[tuple[str, str]]) -> list[dict[str, Any]]:
    """Return one condition per key: several values of a key are alternatives."""
    values: dict[str, list[str]] = {}
    for key, value in pairs:
        values.setdefault(key, []).append(value)
    return [{"key": key, "values": of_key} for key, of_key in values.items()]
