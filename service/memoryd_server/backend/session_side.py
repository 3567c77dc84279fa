"""What the sessions of one agent ask of its memory files: their context at the start, an archive at the end."""

import asyncio
from collections.abc import Callable
from concurrent.futures import Executor
from datetime import date

from memoryd_server.backend.config import AgentConfig
from memoryd_server.backend.session_context import ContextFile, load_context


class SessionSide:
    """One agent's. `config` tells its configuration of the moment; files are touched on `threads` only."""

    def __init__(self, config: Callable[[], AgentConfig], threads: Executor) -> None:
        self._config = config
        self._threads = threads

    async def context(self, *, main_session: bool, today: date, max_total_chars: int | None) -> tuple[ContextFile, ...]:
        """The files that a session loads at its start, in order, with their texts within the budget."""
        config = self._config()
        return await asyncio.get_running_loop().run_in_executor(
            self._threads,
            lambda: load_context(
                config.roots,
                main_session=main_session,
                today=today,
                max_total_chars=max_total_chars,
                max_file_bytes=config.sync.max_file_bytes,
            ),
        )
