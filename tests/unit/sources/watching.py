"""What the tests of the watcher share."""

import errno
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from memoryd_server.sources.inotify import InotifyReader, InotifyWatch
from memoryd_server.sources.roots import Roots
from memoryd_server.sources.watch_scope import WatcherMode
from memoryd_server.sources.watcher import Watcher

SOON = 10.0
# How long silence must last to count as silence; events take about a millisecond.
QUIET = 0.3
WAYS = [{"polling": False}, {"polling": True, "poll_seconds": 0.05}]


class Changes:
    """Counts calls and lets a test wait for the next one."""

    def __init__(self) -> None:
        self._condition = threading.Condition()
        self._unseen = 0
        self.total = 0

    def __call__(self) -> None:
        with self._condition:
            self._unseen += 1
            self.total += 1
            self._condition.notify_all()

    def arrive(self, seconds: float = SOON) -> bool:
        with self._condition:
            return self._condition.wait_for(lambda: self._unseen, seconds) > 0

    def settle(self) -> None:
        while self.arrive(QUIET):
            with self._condition:
                self._unseen = 0


class ShortReader(InotifyReader):
    """An inotify whose watches run out after `allowance`, as fs.inotify.max_user_watches makes them."""

    def __init__(self, allowance: int) -> None:
        super().__init__()
        self.allowance = allowance

    def add(self, path: str, callback: InotifyWatch):
        if self.allowance <= 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        self.allowance -= 1
        return super().add(path, callback)


@contextmanager
def watching(roots: Roots, **options) -> Iterator[tuple[Watcher, Changes]]:
    changes = Changes()
    watcher = Watcher(roots, changes, **options)
    watcher.start()
    try:
        yield watcher, changes
    finally:
        watcher.stop()


def reader_thread(watcher: Watcher):
    """Return the thread that reads the events of inotify."""
    return watcher._reader._reader


def watches(watcher: Watcher) -> list:
    return [entry.watch for entry in watcher._watches]


def polling_threads(watcher: Watcher) -> set:
    return watches(watcher)[0]._observer.emitters


def age_reports(watcher: Watcher, age_ns: int) -> None:
    """Move the time of each root's last event back by `age_ns`."""
    watcher._last_event_ns = {target: told - age_ns for target, told in watcher._last_event_ns.items()}


def modes(watcher: Watcher) -> dict[str, WatcherMode]:
    return {root.root: root.mode for root in watcher.status()}
