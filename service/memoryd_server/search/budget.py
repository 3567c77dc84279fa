"""The injection budget: how much text all snippets together may hold. Pure."""

from collections.abc import Sequence
from dataclasses import replace

from memoryd_server.search.query import Hit
from memoryd_server.search.snippet import cut


def within_budget(hits: Sequence[Hit], max_total_chars: int | None) -> tuple[Hit, ...]:
    """Whole snippets while they fit; the first that does not is cut and ends the list."""
    if max_total_chars is None:
        return tuple(hits)
    kept: list[Hit] = []
    room = max_total_chars
    for hit in hits:
        if len(hit.snippet) > room:
            if room > 0:
                kept.append(_shortened(hit, room))
            break
        kept.append(hit)
        room -= len(hit.snippet)
    return tuple(kept)


def _shortened(hit: Hit, room: int) -> Hit:
    text = cut(hit.snippet, room)
    last = min(hit.snippet_end_line, hit.snippet_start_line + text.count("\n"))
    return replace(hit, snippet=text, snippet_end_line=last)
