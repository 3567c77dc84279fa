"""AgentWorkspace: the calls of an agent that need no index, but only its memory files and its sessions.

That is appends, edits and their history, archives of sessions, and the files that a session loads. `Agent` adds the
index to them. An agent whose memory search is disabled has nothing else; `Workspaces` has these agents.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Executor
from datetime import UTC, datetime
from functools import partial
from typing import TypeVar

from memoryd_server.agent.config import AgentConfig
from memoryd_server.agent.edit_requests import EditRequest, HistoryRequest
from memoryd_server.agent.files import SessionContext, load_session_context
from memoryd_server.agent.history import HistoryPage, load_page
from memoryd_server.agent.index import run_on
from memoryd_server.agent.lifecycle import LOCK_SECONDS, Deadline, RequestResolver
from memoryd_server.agent.requests import AppendRequest
from memoryd_server.agent.session_requests import (
    SessionAppendRequest,
    SessionArchiveRequest,
    SessionContextRequest,
)
from memoryd_server.agent.threads import AgentDocuments, SharedResources
from memoryd_server.errors import EditsDisabled, NotImplementedYet
from memoryd_server.model import Clock
from memoryd_server.sources import SESSIONS_FOLDER
from memoryd_server.threads import SerialExecutor
from memoryd_server.writing import (
    AppendReceipt,
    Archiver,
    ArchiveReceipt,
    EditJob,
    TranscriptReceipt,
    WriteQueue,
    WriteReceipt,
)

_T = TypeVar("_T")


class AgentWorkspace:
    """The files of one agent until `stop`, and the history of their writes.

    `documents` are those of the agent; new ones by default. `quick` are the threads that read files, and `slow` those
    that read the history; shares of their own by default.
    """

    def __init__(
        self,
        config: AgentConfig,
        resources: SharedResources,
        clock: Clock,
        *,
        documents: AgentDocuments | None = None,
        quick: Executor | None = None,
        slow: Executor | None = None,
    ) -> None:
        self.config = config
        self._quick = quick or resources.quick.share()
        self._slow = slow or resources.slow.share()
        self._clock = clock
        self._resolver = RequestResolver(self.now)
        self.documents = documents or resources.make_documents(config, clock)
        self.writes = WriteQueue(SerialExecutor(f"append-{config.agent_id}"), self._clock.monotonic)
        # A separate thread, because a disk that hangs during a write can block it for ever.
        self._archive_thread = SerialExecutor(f"archive-{config.agent_id}")
        self._archiver = Archiver(self.documents.writer)

    def recover(self) -> None:
        """Settle the appends and edits that a crash interrupted. Blocks."""
        self.documents.writer.recover()

    def issues(self) -> tuple[str, ...]:
        """Return messages for the operator about appends, edits and their history."""
        return self.documents.writer.issues()

    def now(self) -> datetime:
        """Return the time in UTC."""
        return datetime.fromtimestamp(self._clock.now_ns() / 1e9, UTC)

    async def append(self, request: AppendRequest, deadline: Deadline) -> AppendReceipt:
        """Append text to a memory file, once per idempotency key. The receipt has no revision.

        Raises:
            FileReplaced: another program replaces the file again and again. More attempts would rarely help.
            MemorydError: as `WriteQueue.write`; nothing or all of the text was written.
        """
        job = await self._resolver.resolve(request, self.config)
        return await self._write(job.path, partial(self.documents.writer.append, job), deadline)

    async def edit(self, request: EditRequest, deadline: Deadline) -> WriteReceipt:
        """Change, move, delete or restore a memory file, and keep what that replaces. The receipt has no revision.

        Raises:
            EditsDisabled: the settings do not allow edits.
            ContentChanged: the file has another content than the caller has seen.
            VersionNotFound: the history does not have the content to restore.
            MemorydError: as `MemoryWriter.edit` and `WriteQueue.write`.
        """
        if not self.config.edits_enabled:
            raise EditsDisabled(
                'edits of memory files are disabled (memoryd.writes is "append"); to enable them, set memoryd.writes '
                'to "edit" in the settings of the daemon, and run `memoryd reload`'
            )
        job: EditJob = await deadline.limit(asyncio.to_thread(request.resolve))
        return await self._write(job.path, partial(self.documents.writer.edit, job), deadline)

    async def read_history(self, request: HistoryRequest, deadline: Deadline) -> HistoryPage:
        """Return a page of the writes to a memory file, or to all of them. Also answers if edits are disabled.

        Raises:
            PathNotAllowed: the path is not a memory file of the workspace.
            VersionNotFound: there is no write with the requested ID.
            HistoryUnavailable: the history cannot be read.
        """
        query = request.resolve(self.config.roots)
        load = run_on(self._slow, load_page, self.documents.history, query, deadline.has_passed, self._clock.monotonic)
        return await deadline.limit(load)

    async def _write(self, path: str, work: Callable[[], _T], deadline: Deadline) -> _T:
        until = deadline.within(LOCK_SECONDS)
        return await self.writes.write(path, work, lock_deadline=until, deadline=deadline.at)

    async def archive(self, request: SessionArchiveRequest, deadline: Deadline) -> ArchiveReceipt:
        """Write the last messages of a transcript to a memory file. The receipt has no revision.

        Raises:
            PathNotAllowed: the transcript's name is not allowed, or the memory folder is a link.
            FileNotFound: there is no such transcript.
            WorkspaceReadOnly: the file system or its permissions refuse the write.
            DiskFull: no space is left; nothing was written.
        """
        archive = await self._resolver.resolve(request, self.config)
        write = run_on(self._archive_thread, self._archiver.archive, self.documents.corpus, archive)
        return await deadline.limit(write)

    async def append_records(self, request: SessionAppendRequest, deadline: Deadline) -> TranscriptReceipt:
        """Append records to the transcript of a session, which is in the database with the other documents.

        Raises:
            NotImplementedYet: the transcripts are files, or the gateway's.
            TranscriptChanged: the transcript does not have the expected number of records; nothing was appended.
            MemorydError: as `TranscriptWriter.append` and `WriteQueue.write`.
        """
        records = await deadline.limit(asyncio.to_thread(request.resolve, self.config.agent_id))
        if self.documents.transcripts is None:
            raise NotImplementedYet(
                "the transcripts of this agent are files or in OpenClaw's database, which the gateway writes; "
                "SessionAppend needs memory files in PostgreSQL: set memoryd.store.url, and memoryd.store.documents to "
                '"database"'
            )
        work = partial(self.documents.transcripts.append, request.session_id, records, request.expected_records)
        return await self._write(f"{SESSIONS_FOLDER}/{request.session_id}.jsonl", work, deadline)

    async def session_context(self, request: SessionContextRequest, deadline: Deadline) -> SessionContext:
        """Return the files that a session loads at its start, and its recall prompt and tools if requested."""
        config = self.config
        key, local_time = await self._resolver.resolve(request, config)
        session = config, self.documents.corpus, key, local_time.date()
        return await deadline.limit(run_on(self._quick, load_session_context, request, *session))

    def stop_writes(self) -> None:
        """Start no further append or edit; those that wait for a lock fail with `ShuttingDown`."""
        self.writes.stop()

    async def stop(self) -> None:
        """Start no further write and no further archive, and close the history."""
        self.stop_writes()
        self._archive_thread.shutdown(wait=False)
        # What refers to a closed agent can stay until the next full collection of garbage.
        self.documents.writer.release_memory()
        await asyncio.to_thread(self.documents.history.close)


class Workspaces:
    """The workspaces of the agents whose memory search is disabled, by id."""

    def __init__(self, make: Callable[[AgentConfig], AgentWorkspace]) -> None:
        self._make = make
        self._workspaces: dict[str, AgentWorkspace] = {}

    def __getitem__(self, agent_id: str) -> AgentWorkspace:
        return self._workspaces[agent_id]

    async def add(self, configs: Iterable[AgentConfig]) -> None:
        """Add the agents without memory search among `configs`, and settle the writes that a crash interrupted."""
        added = [self._make(config) for config in configs if _is_without_search(config)]
        await asyncio.to_thread(self._recover, added)
        self._workspaces |= {workspace.config.agent_id: workspace for workspace in added}

    @staticmethod
    def _recover(added: Iterable[AgentWorkspace]) -> None:
        for workspace in added:
            workspace.recover()

    async def add_missing(self, wanted: Mapping[str, AgentConfig]) -> None:
        """Add those of the wanted agents that are not here."""
        await self.add(config for config in wanted.values() if config.agent_id not in self._workspaces)

    def outdated(self, wanted: Mapping[str, AgentConfig]) -> list[str]:
        """Return the ids of the agents whose configuration is not the wanted one."""
        return [
            agent_id for agent_id, workspace in self._workspaces.items() if wanted.get(agent_id) != workspace.config
        ]

    async def remove(self, agent_id: str) -> None:
        """Stop an agent's workspace."""
        await self._workspaces.pop(agent_id).stop()

    def stop_writes(self) -> None:
        """Start no further append or edit."""
        for workspace in self._workspaces.values():
            workspace.stop_writes()

    async def stop(self) -> None:
        """Stop every workspace."""
        await asyncio.gather(*(workspace.stop() for workspace in self._workspaces.values()))


def _is_without_search(config: AgentConfig) -> bool:
    return not config.enabled and config.memory_enabled
