"""Sends what callers ask to an agent's search backend, or to its builtin memory."""

from dataclasses import replace

from memoryd_server.agent.agent import Agent
from memoryd_server.agent.files import FileRange
from memoryd_server.agent.forget import ForgetReceipt, ForgetRequest
from memoryd_server.agent.search import BackendStatus, SearchBackend
from memoryd_server.search import BUILTIN, SearchAnswer, SearchQuery


class BackendRouter:
    """One agent's memory with the search backend in front of it, if it has one."""

    def __init__(self, memory: Agent, backend: SearchBackend | None) -> None:
        self._memory = memory
        self._backend = backend

    async def search(self, query: SearchQuery, *, session_key: str, min_revision: int | None) -> SearchAnswer:
        """Answer a query before `query.deadline`.

        Raises:
            RevisionNotReached: the deadline came before that revision.
            BackendUnavailable: the backend failed, and no other one may answer.
        """
        answers = self._memory if self._backend is None else self._backend
        return await answers.search(query, session_key=session_key, min_revision=min_revision)

    async def read(self, path: str, start_line: int, line_count: int) -> FileRange:
        """Return a line range of a file that a search may name.

        Raises:
            PathNotAllowed: it is not a file of the agent.
            FileNotFound: the file is missing.
        """
        lines = None if self._backend is None else await self._backend.read(path, start_line, line_count)
        return lines if lines is not None else await self._memory.read(path, start_line, line_count)

    async def forget(self, request: ForgetRequest, deadline: float) -> ForgetReceipt:
        """Remove what is named from all that was derived from it.

        The backend is not called if its files have not changed. A memory file that is kept stays in the backend's
        index and gives no hit.

        Raises:
            PathNotAllowed: the path is no memory file, or its source may not be deleted.
            FileNotFound: what is named is neither on disk nor in the index.
            DeadlineTooShort: the deadline came first.
        """
        receipt = await self._memory.forget(request, deadline)
        if self._backend is None or not (request.session_id or receipt.source_files):
            return receipt
        documents, in_time = await self._backend.forget(request, deadline)
        return replace(receipt, qmd_documents=documents, purge_pending=receipt.purge_pending or not in_time)

    async def check(self, deadline: float) -> None:
        """Call the backend once, so that `state` is current. No-op without one: the builtin search always answers."""
        if self._backend is not None:
            await self._backend.check(deadline)

    async def state(self) -> BackendStatus:
        """Return who would answer, as far as is known without a call."""
        return BackendStatus(BUILTIN) if self._backend is None else await self._backend.state()
