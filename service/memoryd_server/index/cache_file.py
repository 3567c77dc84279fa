"""The file of the embedding cache. What it holds can be made again, so no trouble with it stops an agent."""

import threading
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import apsw

from memoryd_server.errors import IndexUnavailable
from memoryd_server.index import swap
from memoryd_server.index.condition import FileMark, impaired
from memoryd_server.index.connection import Journal, damage_words, is_damage, open_writer, translated
from memoryd_server.model import Degradation

# A file that could not be opened is tried again after so long.
RETRY_MS = 60_000

_T = TypeVar("_T")


class CacheFile:
    """One connection for one caller at a time; `tables` are made where they are missing.

    A damaged file is set aside, a removed one begun anew, and memory stands in for one that cannot be opened, as it
    does for a `path` of None. `trouble` says so. The file is opened when it is first used, and again after a rest.
    `now_ms` is the wall clock in Unix milliseconds.
    """

    def __init__(self, path: Path | None, tables: tuple[str, ...], journal: Journal, now_ms: Callable[[], int]) -> None:
        self._path = path
        self._tables = tables
        self._journal = journal
        self._now_ms = now_ms
        self._guard = threading.Lock()
        self._mark: FileMark | None = None
        self._tried_at_ms = 0
        self._closed = False
        self._connection: apsw.Connection | None = None
        self.trouble: Degradation | None = None

    def use(self, work: Callable[[apsw.Connection], _T]) -> _T:
        """What `work` answers, on an empty file where it met damage.

        Raises:
            DiskFull, IndexBusy, IndexUnavailable: the file cannot be used; nothing of `work` is kept.
        """
        with self._guard, translated():
            if self._closed:
                raise IndexUnavailable("the embedding cache is closed")
            self._look()
            connection = self._opened()
            try:
                return work(connection)
            except apsw.Error as error:
                if not is_damage(error):
                    raise
                self._let_go()
                self._set_aside(error)
            try:
                return work(self._opened())
            except apsw.Error as error:
                raise IndexUnavailable(f"the embedding cache cannot be used: {error}") from error

    def _look(self) -> None:
        """Lets the file go where it was removed, or could not be opened a while ago, for it to be opened again."""
        if self._path is None or self._connection is None:
            return
        is_gone = self._mark is not None and self._mark.has_changed(self._path)
        if is_gone or (self._mark is None and self._now_ms() - self._tried_at_ms > RETRY_MS):
            self._let_go()
            if not self._path.exists():
                swap.remove_journals(self._path)

    def _let_go(self) -> None:
        self._mark = None
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def _opened(self) -> apsw.Connection:
        if self._connection is None:
            self._connection = self._anew()
        return self._connection

    def _anew(self) -> apsw.Connection:
        if self._path is None:
            return self._made(apsw.Connection(":memory:"))
        try:
            return self._from_disk(self._path)
        except (apsw.Error, OSError) as error:
            self._tried_at_ms = self._now_ms()
            self.trouble = self._told("memory", f"the embedding cache cannot be opened ({error})")
            return self._made(apsw.Connection(":memory:"))

    def _from_disk(self, path: Path) -> apsw.Connection:
        try:
            connection = self._made(open_writer(path, self._journal))
        except apsw.Error as error:
            if not is_damage(error):
                raise
            self._set_aside(error)
            connection = self._made(open_writer(path, self._journal))
        # What is read from here is read once: pages that are kept would be kept for nothing, in every agent.
        connection.execute("PRAGMA cache_size=-2000").fetchall()
        self._mark = FileMark.of(path, is_local=self._journal is Journal.LOG)
        if self.trouble is not None and self.trouble.used == "memory":
            self.trouble = None
        return connection

    def _made(self, connection: apsw.Connection) -> apsw.Connection:
        try:
            for statement in self._tables:
                connection.execute(statement)
        except BaseException:
            connection.close()
            raise
        return connection

    def _set_aside(self, error: apsw.Error) -> None:
        if self._path is None:
            raise error
        aside = swap.set_aside(self._path, self._now_ms() / 1000)
        words = f"the embedding cache was damaged ({damage_words(error)}) and set aside as {aside}"
        self.trouble = self._told(str(aside), words)

    def _told(self, used: str, words: str) -> Degradation:
        reason = f"{words}; vectors that it held are made again where they are needed"
        return impaired(self._path, used, reason)

    def rest(self) -> None:
        """Lets the file go until it is used again; what stands in for one that cannot be opened stays."""
        with self._guard:
            if self._mark is not None:
                self._let_go()

    def close(self) -> None:
        """Closes the file. Closing twice is fine."""
        with self._guard:
            self._closed = True
            self._let_go()
