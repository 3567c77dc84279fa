"""What answers an agent's searches: the protocol of a backend in front of the builtin search, and its state."""

from dataclasses import dataclass
from typing import Protocol

from memoryd_server.backend.engine import Engine
from memoryd_server.backend.forget_job import ForgetRequest
from memoryd_server.backend.reading import FileRange
from memoryd_server.backend.sync_run import SyncRun
from memoryd_server.index.progress import SyncOutcome
from memoryd_server.model import Degradation
from memoryd_server.search.query import SearchAnswer, SearchQuery


@dataclass(frozen=True, slots=True)
class BackendState:
    """Which backend would answer now, and what is degraded in it.

    `active` is "builtin", "qmd", or empty if none would answer. `wanted` is the backend in front of the builtin one,
    empty if the settings name none; `reason` says why it does not answer, and is empty if it does.
    """

    active: str
    degradations: tuple[Degradation, ...] = ()
    wanted: str = ""
    version: str = ""
    reason: str = ""


class SearchBackend(Protocol):
    """Answers in front of an agent's builtin search, from `start` to `stop`. For the event loop's thread."""

    sync_runner: Engine | None
    """Carries out the agent's sync runs if memoryd keeps no index for the agent; None if the builtin index is kept."""

    async def start(self, *, background: bool) -> None:
        """Begin to answer; `background` allows work that no caller asked for."""

    async def stop(self) -> None:
        """Begin nothing more."""

    async def search(self, query: SearchQuery, *, session_key: str, min_revision: int | None) -> SearchAnswer:
        """Answer a query before `query.deadline`.

        Raises:
            RevisionNotReached: the deadline came before that revision.
            BackendUnavailable: the backend failed, and no other one may answer.
        """

    async def read(self, path: str, start_line: int, line_count: int) -> FileRange | None:
        """Return a line range of a file that only this backend searches; None for any other path.

        Raises:
            PathNotAllowed: the path is in the backend's files, but is not one that it searches.
            FileNotFound: the file is missing.
        """

    async def forget(self, request: ForgetRequest, deadline: float) -> tuple[int, bool]:
        """Remove what the builtin memory has just forgotten from this backend as well.

        Return the number of documents removed, and whether all of it was done before `deadline`.
        """

    async def after_sync(self, run: SyncRun, outcome: SyncOutcome) -> SyncOutcome:
        """Follow a sync run that completed, and return what it did in all.

        Raises:
            BackendUnavailable: the backend's index could not be updated, and there is no other index.
        """

    async def check(self, deadline: float) -> None:
        """Call what answers once, so that `state` is current."""

    async def state(self) -> BackendState:
        """Return who would answer, as far as is known without a call."""
