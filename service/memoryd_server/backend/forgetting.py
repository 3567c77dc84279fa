"""Lets one agent forget, between two passes of a sync and before the caller's deadline. On the event loop's thread."""

import asyncio
from collections.abc import Callable
from concurrent.futures import Executor, Future
from dataclasses import replace

from memoryd_server.backend.board import StateBoard
from memoryd_server.backend.forget_job import ForgetJob, ForgetRequest, Receipt
from memoryd_server.errors import DeadlineTooShort


class Forgetting:
    """One agent's. `monotonic` is the clock of deadlines."""

    def __init__(
        self, job: ForgetJob, board: StateBoard, writer_thread: Executor, monotonic: Callable[[], float]
    ) -> None:
        self._job = job
        self._board = board
        self._writer_thread = writer_thread
        self._monotonic = monotonic

    async def forget(self, request: ForgetRequest, deadline: float) -> Receipt:
        """Removes what is named, and answers with a receipt.

        Raises:
            DeadlineTooShort: a sync is at work and did not make room in time; or the work itself takes longer.
            MemorydError: as `ForgetJob.carry_out`.
        """
        if self._board.current.syncing:
            # Lets a run that makes vectors step aside, as for any other change of the files.
            self._board.update(dirty=True)
        job = self._writer_thread.submit(self._job.carry_out, request)
        # Both at once, so that no pass of a sync comes between.
        purge = self._writer_thread.submit(self._job.purge, lambda: self._monotonic() > deadline)
        try:
            async with asyncio.timeout(max(0.0, deadline - self._monotonic())):
                receipt = await asyncio.wrap_future(job)
        except TimeoutError as error:
            raise self._too_late(nothing_done=job.cancelled()) from error
        self._board.update(revision=max(receipt.revision, self._board.current.revision))
        return replace(receipt, purge_pending=receipt.purge_pending and not await self._in_time(purge, deadline))

    async def _in_time(self, purge: Future[bool], deadline: float) -> bool:
        """Whether removed words were overwritten in time; where not, it goes on, and the tidying tries again."""
        done = asyncio.wrap_future(purge)
        await asyncio.wait((done,), timeout=max(0.0, deadline - self._monotonic()))
        return done.done() and done.exception() is None and done.result()

    def _too_late(self, *, nothing_done: bool) -> DeadlineTooShort:
        words = (
            "a sync is at work and left no time before the deadline; nothing was removed, try again after it"
            if nothing_done
            else "what is named is still being removed; call again to make sure, with a longer deadline"
        )
        return DeadlineTooShort(words, retry_after_seconds=1.0)
