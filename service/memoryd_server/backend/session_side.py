"""What the sessions of one agent ask of its memory files: their context at the start, an archive at the end."""

import asyncio
from collections.abc import Callable
from concurrent.futures import Executor
from datetime import date

from memoryd_server.backend.config import AgentConfig
from memoryd_server.backend.session_context import ContextFile, load_context
from memoryd_server.writing.archive import Archived, Archiver, ArchiveRequest


class SessionSide:
    """One agent's. `config` tells its configuration of the moment.

    Files are touched on threads only: `quick` are for what a session's start waits for, `archive_thread` is the agent's
    own, because a disk that hangs while it is written can hold it for ever.
    """

    def __init__(self, config: Callable[[], AgentConfig], quick: Executor, archive_thread: Executor) -> None:
        self._config = config
        self._quick = quick
        self._archive_thread = archive_thread
        self._archiver = Archiver(config().agent_id)

    async def context(self, *, main_session: bool, today: date, max_total_chars: int | None) -> tuple[ContextFile, ...]:
        """The files that a session loads at its start, in order, with their texts within the budget."""
        config = self._config()
        return await asyncio.get_running_loop().run_in_executor(
            self._quick,
            lambda: load_context(
                config.roots,
                main_session=main_session,
                today=today,
                max_total_chars=max_total_chars,
                max_file_bytes=config.sync.max_file_bytes,
            ),
        )

    async def archive(self, request: ArchiveRequest) -> Archived:
        """Turns the last messages of a transcript into a memory file.

        Raises:
            PathNotAllowed: the transcript's name is none, or the memory folder is a link.
            FileNotFound: there is no such transcript.
            WorkspaceReadOnly: the file system or its permissions refuse the write.
            DiskFull: no space is left; nothing was written.
        """
        config = self._config()
        return await asyncio.get_running_loop().run_in_executor(
            self._archive_thread, lambda: self._archiver.archive(config.roots, config.sessions_folder, request)
        )
