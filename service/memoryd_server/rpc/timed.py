"""How long a call may take: until shortly before its caller stops waiting, and never longer than the ceiling."""

import asyncio
import math
import time
from collections.abc import Awaitable
from typing import TypeVar

from memoryd_server.errors import DeadlineTooShort
from memoryd_server.rpc.grpc_types import Context

# What waits for something stops so long before the caller's deadline, or so large a share of short ones, that its own
# answer arrives instead of the bare DEADLINE_EXCEEDED of the caller's library.
REPLY_MARGIN_SECONDS = 0.2
REPLY_MARGIN_SHARE = 0.2

_T = TypeVar("_T")


class Timed:
    """`ceiling_seconds` is what a call may take whatever its deadline says, and may be set while it serves."""

    def __init__(self, ceiling_seconds: float) -> None:
        self.ceiling_seconds = ceiling_seconds

    async def in_time(self, work: Awaitable[_T], context: Context) -> _T:
        """What `work` answers before the caller stops waiting.

        Raises:
            DeadlineTooShort: it takes longer.
        """
        allowed = self.deadline(context) - time.monotonic()
        try:
            async with asyncio.timeout(allowed):
                return await work
        except TimeoutError as error:
            raise DeadlineTooShort(
                f"the answer was not there after {allowed:.2g} s; call again with a longer deadline",
                retry_after_seconds=1.0,
            ) from error

    def deadline(self, context: Context, unasked_seconds: float = math.inf) -> float:
        """Until when to work, in `time.monotonic()` seconds: short of the caller's deadline and of our ceiling.

        `unasked_seconds` limits a call without a deadline further.
        """
        remaining = context.time_remaining()
        allowed = min(unasked_seconds if remaining is None else remaining, self.ceiling_seconds)
        return time.monotonic() + allowed - min(REPLY_MARGIN_SECONDS, allowed * REPLY_MARGIN_SHARE)
