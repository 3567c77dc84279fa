"""ReaderIndex: one SQLite index for the reader processes. The store reports to it what it does with the file."""

from collections.abc import Collection, Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from memoryd_server.agent.reader_processes import OwnSearch, ReaderProcesses
from memoryd_server.readers import FileIds, IndexOptions, ReleaseMemory, ResetVectors, Search, VectorChanges
from memoryd_server.search import RankingConfig, SearchAnswer, SearchQuery
from memoryd_server.store import VectorIdentity

MOST_CHANGED_VECTORS = 10_000
"""More changed vectors than this are loaded again by the next search."""


class ReaderIndex:
    """The index `key` for `processes`, which search it while the store has it open for writing.

    `options` are complete except for the files, which `opened` sets. `search` and `is_available` are for the event
    loop's thread; the other methods are for the writer thread of the store.
    """

    def __init__(self, processes: ReaderProcesses, key: str, options: IndexOptions) -> None:
        self._processes, self._key, self._options = processes, key, options
        self._files: tuple[Path, FileIds] | None = None
        self._is_idle = True

    @property
    def is_available(self) -> bool:
        """Whether a process is expected to answer a search."""
        return self._files is not None and self._processes.is_available

    @property
    def is_idle(self) -> bool:
        """Whether no process has used the index since its memory was released or it was closed."""
        return self._is_idle

    async def search(
        self,
        query: SearchQuery,
        vector: NDArray[np.float32] | None,
        no_vector: str,
        *,
        identity: VectorIdentity | None,
        ranking: RankingConfig,
        own: OwnSearch,
    ) -> SearchAnswer:
        """Return the answer of a process as `SearchEngine.search` does, or that of `own`, the daemon's own search."""
        # No `await` before the search is passed: a later `close` is then sent after it.
        files = self._files
        if files is None:
            return await own()
        options = self._options
        if (options.path, options.file_ids) != files or options.ranking is not ranking:
            path, ids = files
            options = self._options = replace(options, path=path, file_ids=ids, ranking=ranking)
        vector_bytes = None if vector is None else vector.tobytes()
        message = Search(self._processes.new_number(), self._key, query, vector_bytes, no_vector, identity)
        try:
            return await self._processes.search(options, message, own)
        finally:
            # Set after the search: `release_memory` may be called while it waits.
            self._is_idle = False

    def opened(self, path: Path, ids: FileIds) -> None:
        """Let the processes search this index."""
        self._files = path, ids

    def close(self) -> None:
        """Wait until no process has the file or its log open. No process opens it again until `opened` is called."""
        if self._files is not None:
            self._files = None
            self._processes.close_index(self._key)
            self._is_idle = True

    def apply(self, added: Mapping[int, bytes], removed: Collection[int]) -> None:
        """Pass on which vectors a commit has changed."""
        if len(added) + len(removed) > MOST_CHANGED_VECTORS:
            self.reset()
        else:
            self._processes.notify(VectorChanges(self._key, tuple(added), tuple(removed)))

    def reset(self) -> None:
        """Pass on that a commit has replaced the vectors."""
        self._processes.notify(ResetVectors(self._key))

    def release_memory(self) -> None:
        """Release the memory of the index in the processes, and close its files there."""
        if not self._is_idle:
            self._is_idle = True
            self._processes.notify(ReleaseMemory(self._key))
