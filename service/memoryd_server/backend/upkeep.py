"""Keeps one agent's memory fresh unasked, by settings that may change while it is at work."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from concurrent.futures import Executor

from memoryd_server.backend.background import BackgroundSync
from memoryd_server.backend.board import StateBoard
from memoryd_server.backend.config import SyncConfig
from memoryd_server.backend.coordinator import SyncCoordinator
from memoryd_server.backend.engine import Engine
from memoryd_server.backend.freshness import freshness, unwatched
from memoryd_server.backend.sync_run import SyncTrigger
from memoryd_server.model import Degradation
from memoryd_server.sources import WatchedRoot, Watcher
from memoryd_server.sources.corpus import Corpus
from memoryd_server.sources.watch_state import NativeReader


class Upkeep:
    """The background syncs of a memory that is open. Where it is not `at_work`, nothing happens that nobody asked for.

    `look` may be called from any thread; everything else belongs to the event loop's.
    """

    def __init__(
        self,
        config: SyncConfig,
        corpus: Corpus,
        engine: Engine,
        coordinator: SyncCoordinator,
        board: StateBoard,
        *,
        threads: Executor,
        tidy: Callable[[], Awaitable[None]],
        open_native: Callable[[], NativeReader],
        at_work: bool,
        first_turns: asyncio.Semaphore,
        rests_at_first: bool,
    ) -> None:
        self._config = config
        self._corpus = corpus
        self._engine = engine
        self._coordinator = coordinator
        self._board = board
        self._threads = threads
        self._tidy = tidy
        self._open_native = open_native
        self._at_work = at_work
        self._first_turns = first_turns
        self._rests_at_first = rests_at_first
        self._background = self._make()

    def _make(self) -> BackgroundSync:
        return BackgroundSync(
            self._config,
            self._engine,
            self._coordinator,
            self._board,
            make_watcher=self._make_watcher,
            threads=self._threads,
            tidy=self._tidy,
            first_turns=self._first_turns,
            rests_at_first=self._rests_at_first,
        )

    def _make_watcher(self, on_change: Callable[[], None], on_transcripts: Callable[[], None]) -> Watcher:
        config = self._config
        return Watcher(
            self._corpus.roots,
            on_change,
            sessions=self._corpus.sessions,
            on_transcripts=on_transcripts,
            polling=config.poll,
            poll_seconds=config.poll_seconds,
            open_native=self._open_native,
        )

    async def start(self) -> None:
        """Starts watching and a first sync, when it is at work."""
        if self._at_work:
            await self._background.start()

    async def change(self, config: SyncConfig) -> None:
        """Goes on by other settings; a run under way goes on."""
        if config != self._config:
            await self._background.stop()
            self._config = config
            self._background = self._make()
            await self.start()

    async def stop(self) -> None:
        """Stops watching and every timer."""
        await self._background.stop()

    def sync_soon(self, trigger: SyncTrigger) -> None:
        """Starts a sync unless one is under way or has just failed, and does not wait for it."""
        self._background.sync_soon(trigger)

    def watched_roots(self) -> tuple[WatchedRoot, ...]:
        """How each root is watched, as far as is known without asking the disk."""
        return self._background.watched_roots() if self._config.watch else unwatched(self._corpus)

    def look(self) -> tuple[WatchedRoot, ...]:
        """How each root is watched, verified against the disk. Blocks."""
        return self._background.look() if self._config.watch else unwatched(self._corpus)

    def degradations(self, watched: Sequence[WatchedRoot]) -> Iterator[Degradation]:
        """What keeps the index from following the files, where the roots are watched like this."""
        return freshness(self._config, watched, self._engine.last_look.hidden, self._background.trouble)
