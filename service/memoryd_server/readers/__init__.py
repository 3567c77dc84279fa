"""Reader processes: processes that search the SQLite indexes for the daemon, so that searches use several cores.

`memoryd.readers` is their number. The daemon passes the query of a builtin search, with its vector, to one of them over
a socket pair, and gets the answer back; it does everything else itself. If a reader process fails in any way, the
daemon runs the search.

`messages` has what the two ends send each other, and `process` is the program of a reader process. It imports this
package too, so nothing is exported here that only the daemon needs: the daemon's end is in `agent.reader_processes`.
"""

from memoryd_server.readers.messages import (
    INTERNAL,
    Answer,
    CloseIndex,
    FileIds,
    FrameDecoder,
    FrameError,
    IndexClosed,
    IndexOptions,
    Message,
    OpenIndex,
    Ready,
    ReleaseMemory,
    ResetVectors,
    Search,
    SearchFailure,
    VectorChanges,
    encode,
)

__all__ = [
    "INTERNAL",
    "Answer",
    "CloseIndex",
    "FileIds",
    "FrameDecoder",
    "FrameError",
    "IndexClosed",
    "IndexOptions",
    "Message",
    "OpenIndex",
    "Ready",
    "ReleaseMemory",
    "ResetVectors",
    "Search",
    "SearchFailure",
    "VectorChanges",
    "encode",
]
