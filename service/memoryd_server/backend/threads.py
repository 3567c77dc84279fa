"""The threads that all agents share."""

from dataclasses import dataclass

from memoryd_server.backend.embed_threads import EmbedThreads
from memoryd_server.backend.shared_threads import SharedThreads
from memoryd_server.sources.shared_native import SharedNative


@dataclass(frozen=True, slots=True)
class Threads:
    """`quick` are for searches and reads, `slow` for what walks the disk, `embed` for what waits for a provider.

    `native` is the thread that hears of file events.
    """

    quick: SharedThreads
    slow: SharedThreads
    embed: EmbedThreads
    native: SharedNative
