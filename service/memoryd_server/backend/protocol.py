"""What the edge asks of whoever answers for an agent, whichever engine that is."""

from dataclasses import dataclass
from typing import Protocol

from memoryd_server.backend.forget_job import ForgetRequest, Receipt
from memoryd_server.backend.reading import FileRange
from memoryd_server.model import Degradation
from memoryd_server.search.query import SearchAnswer, SearchQuery


@dataclass(frozen=True, slots=True)
class QmdState:
    """How qmd is doing. `reason` says why it does not answer, or not well; empty otherwise."""

    available: bool = False
    version: str = ""
    reason: str = ""


@dataclass(frozen=True, slots=True)
class BackendState:
    """Who would answer now: "builtin", "qmd", or nobody where it is empty; and in which ways that is less than wanted.

    `qmd` is None where the settings do not ask for it.
    """

    active: str
    degradations: tuple[Degradation, ...] = ()
    qmd: QmdState | None = None


class MemoryBackend(Protocol):
    """Answers questions about one agent's memory."""

    async def search(self, query: SearchQuery, *, session_key: str, min_revision: int | None) -> SearchAnswer:
        """Answers a question before `query.deadline`.

        Raises:
            RevisionNotReached: the deadline came before that revision.
            BackendUnavailable: the backend failed, and no other one may answer.
        """

    async def read(self, path: str, start_line: int, line_count: int) -> FileRange:
        """A line range of a file that a search may name.

        Raises:
            PathNotAllowed: it is none of the agent's.
            FileNotFound: it is not there.
        """

    async def forget(self, request: ForgetRequest, deadline: float) -> Receipt:
        """Removes what is named from whatever this backend derived from it.

        Raises:
            PathNotAllowed: the path is no memory file, or its source may not be deleted.
            FileNotFound: what is named is neither on disk nor in the index.
            DeadlineTooShort: the deadline came first.
        """

    async def check(self, deadline: float) -> None:
        """Calls what answers once, so that `state` tells of now."""

    async def state(self) -> BackendState:
        """Who would answer, as far as is known without a look."""
