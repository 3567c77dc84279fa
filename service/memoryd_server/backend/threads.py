"""The threads that all agents share, and their turns."""

import asyncio
from dataclasses import dataclass, field

from memoryd_server.backend.embed_threads import EmbedThreads
from memoryd_server.backend.freed_memory import FreedMemory
from memoryd_server.backend.shared_threads import SharedThreads
from memoryd_server.sources.shared_native import SharedNative

# More would not be faster, and memory and threads would go to agents that nobody asks.
FIRST_SYNCS_AT_ONCE = 4


@dataclass(frozen=True, slots=True)
class Threads:
    """`quick` are for searches and reads, `slow` for what walks the disk, `embed` for what waits for a provider.

    `native` is the thread that hears of file events, `freed` what returns memory to the system. `first_syncs` are the
    turns of the syncs that nobody asked for but the daemon, at its start.
    """

    quick: SharedThreads
    slow: SharedThreads
    embed: EmbedThreads
    native: SharedNative
    freed: FreedMemory = field(default_factory=FreedMemory)
    first_syncs: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(FIRST_SYNCS_AT_ONCE))
