"""FileReader: the lines of an agent's files, as MemoryGet returns them."""

from collections.abc import Awaitable, Callable
from contextlib import nullcontext, suppress

from memoryd_server.agent.config import AgentConfig
from memoryd_server.agent.files import FileRange, read_range, with_chunks
from memoryd_server.agent.index import AgentIndex, run_on
from memoryd_server.agent.lifecycle import Deadline
from memoryd_server.agent.requests import ReadRequest
from memoryd_server.sources import Corpus, ReadStopped
from memoryd_server.store import ReadBound, Snapshots, StandbyUnusable, StandbyView

ReadElsewhere = Callable[[str, int, int], Awaitable[FileRange | None]]
"""Returns lines of a file that only a search backend has; None for any other path. See `SearchBackend.read`."""


class FileReader:
    """Reads the files of `corpus`, and the chunks that `index` has of them. On the event loop's thread."""

    def __init__(self, index: AgentIndex, corpus: Corpus) -> None:
        self._index = index
        self._corpus = corpus

    async def read(
        self, request: ReadRequest, config: AgentConfig, deadline: Deadline, elsewhere: ReadElsewhere | None = None
    ) -> FileRange:
        """Return a line range: of `elsewhere` if it has the file, or else of a standby if the request allows it.

        Raises:
            PathNotAllowed: the path is not a file of the agent.
            FileNotFound: the file is missing.
            TimeoutError: the deadline has passed.
        """
        lines = request.resolve()
        elsewhere_found = None if elsewhere is None else await elsewhere(*lines)

        def read(view: StandbyView | None) -> FileRange:
            store: Snapshots = self._index.store if view is None else view
            corpus = self._corpus if view is None else view.corpus(self._corpus)
            with nullcontext() if view is None else view.snapshot():
                found, most = elsewhere_found, config.sync.max_file_bytes
                if found is None:
                    found = read_range(corpus, *lines, most, should_stop=deadline.has_passed)
                if config.read_chars is not None:
                    found = found.within_chars(config.read_chars)
                return with_chunks(found, store) if request.include_chunks else found

        try:
            view = self._view(request, deadline) if elsewhere_found is None else None
            if view is not None:
                with suppress(StandbyUnusable):
                    return await run_on(self._index.standby_threads, read, view)
            return await run_on(self._index.quick, read, None)
        except ReadStopped as error:
            raise TimeoutError from error

    def _view(self, request: ReadRequest, deadline: Deadline) -> StandbyView | None:
        standby = self._index.standby
        if standby is None or request.max_staleness is None:
            return None
        view = standby.view(ReadBound(request.max_staleness, deadline.at))
        # Files in folders are always current.
        return None if view.corpus(self._corpus) is self._corpus else view
