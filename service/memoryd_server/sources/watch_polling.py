"""Watching by comparing, for mounts and systems that tell nothing and for when inotify watches run out."""

import os
from collections.abc import Callable, Iterator

from watchdog.events import (
    DirCreatedEvent,
    DirDeletedEvent,
    DirMovedEvent,
    FileCreatedEvent,
    FileDeletedEvent,
    FileModifiedEvent,
    FileMovedEvent,
    FileSystemEvent,
    FileSystemEventHandler,
)
from watchdog.observers.polling import PollingObserverVFS

from memoryd_server.sources.watch_scope import Scope

# watchdog's snapshot recurses, a few frames a level; deeper folders are left to the reconcile pass.
MAX_DEPTH = 150


class PollingWatch(FileSystemEventHandler):
    """Compares one scope's folders and Markdown files every `poll_seconds`. Links are neither seen nor followed."""

    def __init__(self, scope: Scope, on_change: Callable[[], None], poll_seconds: float) -> None:
        self._scope = scope
        self._on_change = on_change
        self._observer = PollingObserverVFS(os.lstat, self._list, polling_interval=poll_seconds)

    def start(self) -> None:
        """Takes the first picture, against which later ones are compared.

        Raises:
            OSError: the top cannot be read.
        """
        # A folder's own modification is left out: it changes with each temporary file of an editor.
        kinds: list[type[FileSystemEvent]] = [
            FileCreatedEvent,
            FileModifiedEvent,
            FileMovedEvent,
            FileDeletedEvent,
            DirCreatedEvent,
            DirMovedEvent,
            DirDeletedEvent,
        ]
        self._observer.schedule(self, self._scope.top, recursive=True, event_filter=kinds)
        self._observer.start()

    def stop(self) -> None:
        """Ends the threads and waits for them."""
        if self._observer.is_alive():
            self._observer.stop()
            self._observer.join()

    def trouble(self) -> str:
        """Returns why changes are no longer seen, "" while they are."""
        threads = [self._observer, *self._observer.emitters]
        return "" if len(threads) > 1 and all(thread.is_alive() for thread in threads) else "the polling thread ended"

    def on_any_event(self, event: FileSystemEvent) -> None:  # noqa: ARG002 -- whatever it is, it counts
        """Reports a change; the listing has left out all that do not count."""
        self._on_change()

    def _list(self, path: str | None) -> "Iterator[os.DirEntry[str]]":
        folder = path or self._scope.top
        below = tuple(part for part in folder[len(self._scope.top) :].split("/") if part)
        if len(below) >= MAX_DEPTH:
            return iter(())
        with os.scandir(folder) as entries:
            return iter([entry for entry in entries if self._is_wanted(entry, (*below, entry.name))])

    def _is_wanted(self, entry: "os.DirEntry[str]", parts: tuple[str, ...]) -> bool:
        if entry.is_dir(follow_symlinks=False):
            return self._scope.enters(parts)
        return entry.is_file(follow_symlinks=False) and self._scope.counts(parts)
