"""What all agents share: threads, turns, and the words that the analyzer remembers."""

import asyncio
from dataclasses import dataclass, field

from memoryd_server.backend.embed_threads import EmbedThreads
from memoryd_server.backend.freed_memory import FreedMemory
from memoryd_server.backend.shared_threads import SharedThreads
from memoryd_server.sources.shared_native import SharedNative
from memoryd_server.text import Analyzer

# More would not be faster, and memory and threads would go to agents that nobody asks.
FIRST_SYNCS_AT_ONCE = 4


@dataclass(frozen=True, slots=True)
class Threads:
    """`quick` are for searches and reads, `slow` for what walks the disk, `embed` for what waits for a provider.

    `native` is the thread that hears of file events, `freed` what returns memory to the system. `first_syncs` are the
    turns of the syncs that nobody asked for but the daemon, at its start. There is one `analyzer`, as the words that it
    has met take some megabytes.
    """

    quick: SharedThreads
    slow: SharedThreads
    embed: EmbedThreads
    native: SharedNative
    analyzer: Analyzer = field(default_factory=Analyzer)
    freed: FreedMemory = field(default_factory=FreedMemory)
    first_syncs: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(FIRST_SYNCS_AT_ONCE))
