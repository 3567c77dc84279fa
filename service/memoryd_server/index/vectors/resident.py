"""What can propose candidates from memory."""

from typing import Protocol

from memoryd_server.vectors import Ids, Vectors

# Candidates beyond the number asked for, because a snapshot may lack some of them.
SPARE_CANDIDATES = 16


class Resident(Protocol):
    """Vectors held in memory, in whatever form. Several threads may ask at once; changes are made alone."""

    def candidates(self, query: Vectors, limit: int, allowed: Ids | None) -> Ids:
        """Return chunks among which the nearest `limit` to a unit query are, as far as this form can tell.

        `allowed` holds, sorted, the chunks that may be named; None means all.
        """

    def put(self, ids: Ids, vectors: Vectors) -> None:
        """Takes in chunks that are not there yet."""

    def discard(self, ids: Ids) -> None:
        """Drops chunks, those that are there."""

    @property
    def form(self) -> str:
        """What it holds of each vector: `whole`, or its sign `bits`."""

    @property
    def memory_bytes(self) -> int:
        """What it takes in memory."""

    @property
    def worn(self) -> bool:
        """Whether one loaded anew would serve better."""
