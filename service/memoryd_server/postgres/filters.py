"""Filters as SQL conditions. Every value is a parameter."""

from collections.abc import Mapping
from datetime import date

from memoryd_server.postgres.errors import storable
from memoryd_server.postgres.scope import OWN
from memoryd_server.store import ALL_CHUNKS, ChunkFilter

_MOST_NS = 2**63 - 1
_DAY_NS = 86_400 * 10**9
_EPOCH = date(1970, 1, 1)

Condition = tuple[str, Mapping[str, object]]
"""An SQL condition, and the values of its parameters in addition to those of the scope."""


def chunk_condition(among: ChunkFilter, column: str) -> Condition:
    """Return a condition on a column of chunk ids, which begins with AND; empty if the filter has no condition."""
    if among == ALL_CHUNKS:
        return "", {}
    # IS TRUE keeps the planner from joining the chunks: they are read once, into a hash table.
    term, values = file_condition(among)
    files = f" AND (file_id IN (SELECT id FROM files WHERE {OWN}{term})) IS TRUE" if term else ""  # noqa: S608 -- constants
    origins = " AND origin = ANY(%(origins)s)" if among.origins else ""
    query = f" AND ({column} IN (SELECT id FROM chunks WHERE {OWN}{files}{origins})) IS TRUE"  # noqa: S608 -- constants
    return query, {**values, "origins": list(among.origins)}


def listed_condition(among: ChunkFilter, column: str) -> Condition:
    """Return the condition of `chunk_condition` in a form that looks up each chunk of the filter by its key.

    It is faster if the filter leaves a small part of the chunks.
    """
    if among == ALL_CHUNKS:
        return "", {}
    # The planner does not join arrays.
    term, values = file_condition(among)
    files = f" AND file_id = ANY(ARRAY(SELECT id FROM files WHERE {OWN}{term}))" if term else ""  # noqa: S608 -- constants
    origins = " AND origin = ANY(%(origins)s)" if among.origins else ""
    query = f" AND {column} = ANY(ARRAY(SELECT id FROM chunks WHERE {OWN}{files}{origins}))"  # noqa: S608 -- constants
    return query, {**values, "origins": list(among.origins)}


def row_condition(among: ChunkFilter, column: str) -> Condition:
    """Return the condition of `chunk_condition` in a form that is looked up for each row, for statements with a LIMIT.

    The statement's other tables have no columns `id` and `file_id`.
    """
    if among == ALL_CHUNKS:
        return "", {}
    # Only a subquery for one value is never read as a whole.
    term, values = file_condition(among)
    file = f"(SELECT true FROM files WHERE {OWN} AND id = file_id{term})" if term else "true"  # noqa: S608 -- constants
    origins = " AND origin = ANY(%(origins)s)" if among.origins else ""
    query = f" AND (SELECT {file} FROM chunks WHERE {OWN} AND id = {column}{origins}) IS TRUE"  # noqa: S608 -- constants
    return query, {**values, "origins": list(among.origins)}


def file_condition(among: ChunkFilter) -> Condition:
    """Return the conditions of a filter on files and sources, each of which begins with AND."""
    terms: list[str] = []
    values: dict[str, object] = {}
    files = among.files
    if among.sources:
        terms.append("source = ANY(%(sources)s)")
        values["sources"] = list(among.sources)
    if files.path_prefixes:
        terms.append("EXISTS(SELECT 1 FROM unnest(%(prefixes)s::text[]) AS prefix WHERE starts_with(path, prefix))")
        values["prefixes"] = [storable(prefix) for prefix in files.path_prefixes]
    if files.since is not None or files.until is not None:
        first, last = files.since or date.min, files.until or date.max
        terms.append(
            "CASE WHEN date IS NULL THEN mtime_ns BETWEEN %(first_ns)s AND %(last_ns)s"
            " ELSE date BETWEEN %(first_day)s AND %(last_day)s END"
        )
        values |= {"first_day": first.isoformat(), "last_day": last.isoformat()}
        values["first_ns"], values["last_ns"] = _nanoseconds(first, last)
    for number, condition in enumerate(files.front_matter):
        terms.append(
            f"id IN (SELECT file_id FROM front_matter WHERE {OWN}"  # noqa: S608 -- constants
            f" AND key = %(key{number})s AND value = ANY(%(values{number})s))"
        )
        values[f"key{number}"] = storable(condition.key)
        values[f"values{number}"] = [storable(value) for value in condition.values]
    return "".join(f" AND {term}" for term in terms), values


def _nanoseconds(first: date, last: date) -> tuple[int, int]:
    """Return the first and the last Unix nanosecond of a range of days in UTC, as the index stores them."""
    start, end = (first - _EPOCH).days * _DAY_NS, ((last - _EPOCH).days + 1) * _DAY_NS - 1
    return min(max(start, -_MOST_NS), _MOST_NS), min(max(end, -_MOST_NS), _MOST_NS)
