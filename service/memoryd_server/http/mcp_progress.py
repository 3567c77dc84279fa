"""A search with a progress token waits while the first index is built, and sends progress notifications."""

import asyncio
from collections.abc import Mapping
from contextlib import aclosing
from typing import Any, Protocol

from memoryd_server.background_tasks import BackgroundTasks
from memoryd_server.errors import MemorydError
from memoryd_server.http.mcp_calls import SessionOwner
from memoryd_server.http.mcp_results import BUILDING
from memoryd_server.rpc import LocalCalls

BUILD_SECONDS = 20.0
"""The longest time that a search waits for the first index."""

_REPLACEMENT = "SYNC_MODE_FULL"
_VECTORS = "SYNC_PHASE_EMBEDDING"


class ProgressReport(Protocol):
    """Sends a progress notification to the client."""

    async def __call__(self, progress: float, total: float | None = None, message: str | None = None) -> None:
        """Send it; `progress` must increase."""


def is_incomplete(response: Mapping[str, Any]) -> bool:
    """Return whether a search ran while its index was built."""
    return bool(response.get("info", {}).get("indexState") == BUILDING)


class BuildFollower:
    """Follows the building of an index for at most `seconds`."""

    def __init__(self, calls: LocalCalls, tasks: BackgroundTasks, seconds: float = BUILD_SECONDS) -> None:
        self._calls = calls
        self._tasks = tasks
        self._seconds = seconds

    async def follow(self, report: ProgressReport, owner: SessionOwner) -> None:
        """Report the progress until all text is indexed, or the time has passed. Vectors are not awaited."""
        work = self._report(report, owner)
        task = self._tasks.spawn("MCP index progress", work, expected=(MemorydError,))
        try:
            await asyncio.wait([task], timeout=self._seconds)
        finally:
            task.cancel()

    async def _report(self, report: ProgressReport, owner: SessionOwner) -> None:
        last = -1.0
        updates = self._calls.stream("WatchIndex", {"agentId": owner.agent_id}, owner.caller)
        async with aclosing(updates):
            async for update in updates:
                run = update.get("activeSync", {})
                progress = run.get("progress", {})
                # A search uses the old index until a complete new one replaces it.
                replaced = run.get("mode") == _REPLACEMENT and update.get("indexRevision", "0") != "0"
                if update.get("state") != BUILDING or progress.get("phase") == _VECTORS or replaced:
                    return
                done, total = progress.get("completedFiles", 0), progress.get("totalFiles", 0)
                if done > last:
                    last = float(done)
                    await report(last, float(total) or None, f"indexing memory: {done} of {total} files")
