"""Shares the places of an answer between sources, so that neither crowds the other out. Pure."""

from collections.abc import Mapping, Sequence
from typing import TypeVar

from memoryd_server.model import Source

_T = TypeVar("_T")


def reserved(most: int) -> int:
    """How many of `most` places each source has for itself: a third, and one at least of two or more."""
    return max(1, most // 3) if most > 1 else 0


def shared(by_source: Mapping[Source, Sequence[tuple[int, _T]]], most: int) -> list[_T]:
    """The `most` best of all, but of each source as many as are reserved for it, where it has them.

    Each source's hits come with their rank among all, best first; so does the answer.
    """
    own = reserved(most)
    certain = sorted(hit for hits in by_source.values() for hit in _ranks(hits[:own]))[:most]
    others = sorted(hit for hits in by_source.values() for hit in _ranks(hits[own:]))
    chosen = {*certain, *others[: most - len(certain)]}
    ranked = {rank: hit for hits in by_source.values() for rank, hit in hits if rank in chosen}
    return [ranked[rank] for rank in sorted(ranked)]


def _ranks(hits: Sequence[tuple[int, _T]]) -> list[int]:
    return [rank for rank, _ in hits]
