"""Watcher: native events, else polling.

Tells when the Markdown of an agent may have changed. It says no more than that: the sync looks for itself.

Each root is watched natively where the system can, by polling where it cannot. What breaks meanwhile (a dead thread, a
folder deleted and made again, a root that appears late) is repaired by `check`, and a root whose events never come is
found out by `missed`; the reconcile pass calls both.

Watching by comparing, for mounts and systems that tell nothing and for when inotify watches run out.
"""

import errno
import os
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

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

from memoryd_server.model import SourceFile
from memoryd_server.sources.roots import Roots
from memoryd_server.sources.transcripts import SESSIONS_FOLDER
from memoryd_server.sources.watch_scope import (
    NativeReader,
    RootWatch,
    ScopeWatch,
    WatchedRoot,
    WatcherMode,
    WatchScope,
    WatchTarget,
    sessions_target,
    silent_mount,
    targets,
)

__all__ = ["WatchedRoot", "Watcher", "WatcherMode"]

# An event may come so much later than the change it tells of.
LATE_NS = 5_000_000_000

# File systems round times, and their clock may run a little ahead of ours.
SKEW_NS = 2_000_000_000


def open_inotify() -> NativeReader:
    """Returns the kernel's own way of telling of changes.

    Raises:
        OSError: this system has none that we speak, or has no more descriptors for it.
    """
    if sys.platform != "linux":
        raise OSError(errno.ENOSYS, "there is no inotify on this system")
    # Imported here because importing it fails where there is no inotify.
    from memoryd_server.sources.inotify import InotifyReader  # noqa: PLC0415

    return InotifyReader()


class Watcher:
    """Calls `on_change`, from threads of its own and often, whenever a memory file may have changed.

    `on_change` must be quick, must not raise and must not call `stop`; so must `on_transcripts`, which is called for
    transcripts in the folder `sessions`, where there is one. `polling` avoids inotify altogether;
    `poll_seconds` is the pause between two comparisons where polling is used.
    """

    def __init__(
        self,
        roots: Roots,
        on_change: Callable[[], None],
        *,
        sessions: str = "",
        on_transcripts: Callable[[], None] = lambda: None,
        polling: bool = False,
        poll_seconds: float = 5.0,
        open_native: Callable[[], NativeReader] = open_inotify,
        now_ns: Callable[[], int] = time.time_ns,
    ) -> None:
        self._roots = roots
        self._sessions = sessions
        self._on_change = on_change
        self._on_transcripts = on_transcripts
        self._poll_seconds = poll_seconds
        self._open_native = open_native
        self._now_ns = now_ns
        self._told_ns: dict[WatchTarget, int] = {}
        self._silent: dict[WatchTarget, str] = {}
        self._why_not_native = "polling is configured" if polling else ""
        self._polling = polling
        self._lock = threading.Lock()
        self._running = False
        self._reader: NativeReader | None = None
        self._entries: tuple[RootWatch, ...] = ()

    def start(self) -> None:
        """Begins to watch; changes from before are not reported. A root that cannot be watched is in `status`."""
        with self._lock:
            if not self._running:
                self._running = True
                self._entries = self._arrange()

    def stop(self) -> None:
        """Ends the watching and waits for its threads; after this `on_change` is not called."""
        with self._lock:
            self._running = False
            for entry in self._entries:
                entry.stop()
            self._entries = ()
            if self._reader:
                self._reader.stop()
            self._reader = None

    def status(self) -> tuple[WatchedRoot, ...]:
        """Returns how each root is doing, the workspace first, then the extra paths. Does not touch the disk."""
        entries = self._entries
        return tuple(entry.status() for entry in entries) if entries else self._off()

    def look(self) -> tuple[WatchedRoot, ...]:
        """Returns the same, verified against the disk: what watches a folder that has gone is no watch."""
        entries = self._entries
        if not entries:
            return self._off()
        return tuple(entry.status_at(now) for entry, now in zip(entries, self._targets(), strict=True))

    def _targets(self) -> Iterator[WatchTarget]:
        yield from targets(self._roots)
        if self._sessions:
            yield sessions_target(self._sessions)

    def _off(self) -> tuple[WatchedRoot, ...]:
        displays = [self._roots.display(folder) for folder in (self._roots.base(), *self._roots.extras())]
        displays += [SESSIONS_FOLDER] if self._sessions else []
        return tuple(WatchedRoot(display, WatcherMode.OFF, "the watcher is not running") for display in displays)

    def check(self) -> None:
        """Repairs what broke and takes up roots that appeared; reports a change when it had to, as some were missed."""
        with self._lock:
            if not self._running:
                return
            before = self._entries
            self._entries = self._arrange()
            repaired = [entry.watch for entry in before] != [entry.watch for entry in self._entries]
        if repaired:
            self._on_change()
            self._on_transcripts()

    def missed(self, files: Iterable[SourceFile]) -> None:
        """Takes note of changed files that a look has found: a root that was silent about them is polled from now on.

        Only files written well after the root last told of anything, and well before now, count against it.
        """
        with self._lock:
            untold = {
                entry.target: sum(self._is_untold(file, entry.target) for file in files)
                for entry in self._entries
                if entry.mode is WatcherMode.NATIVE
            }
            for target, count in untold.items():
                if count:
                    self._silent[target] = f"file events do not arrive here: {count} changes came without one"
            if any(untold.values()):
                self._entries = self._arrange()

    def _is_untold(self, file: SourceFile, target: WatchTarget) -> bool:
        told = self._told_ns[target] + SKEW_NS
        if target.scope is None or not told < file.stat.mtime_ns < self._now_ns() - LATE_NS:
            return False
        return target.scope.covers(str(Path(os.path.realpath(file.root), *file.parts)))

    def _arrange(self) -> tuple[RootWatch, ...]:
        wanted = tuple(self._targets())
        kept = {entry.target: entry for entry in self._entries if entry.target in wanted and self._is_good(entry)}
        for entry in self._entries:
            if entry.target not in kept:
                entry.stop()
        for target in [target for target in self._told_ns if target not in wanted]:
            self._told_ns.pop(target)
            self._silent.pop(target, None)
        self._renew_reader()
        return tuple(kept.get(target) or self._begin(target) for target in wanted)

    def _is_good(self, entry: RootWatch) -> bool:
        return entry.is_healthy() and not (entry.mode is WatcherMode.NATIVE and entry.target in self._silent)

    def _renew_reader(self) -> None:
        if self._polling or (self._reader and self._reader.is_alive()):
            return
        if self._reader:
            self._reader.stop()
        self._reader = None
        try:
            self._reader = self._open_native()
            self._why_not_native = ""
        except OSError as error:
            self._why_not_native = _because(error)

    def _begin(self, target: WatchTarget) -> RootWatch:
        if target.scope is None:
            return RootWatch(target, None, WatcherMode.DEAD, target.reason)
        native, reason = self._begin_native(target, target.scope)
        if native:
            return RootWatch(target, native, WatcherMode.NATIVE)
        watch = PollingWatch(target.scope, self._teller(target.scope), self._poll_seconds)
        try:
            watch.start()
        except (OSError, RuntimeError) as error:
            return RootWatch(target, None, WatcherMode.DEAD, f"cannot be watched: {error}")
        return RootWatch(target, watch, WatcherMode.POLLING, reason)

    def _begin_native(self, target: WatchTarget, scope: WatchScope) -> tuple[ScopeWatch | None, str]:
        mount = silent_mount(scope)
        if self._reader is None or mount:
            return None, self._why_not_native or f"a {mount} mount does not tell of changes made elsewhere"
        if target in self._silent:
            return None, self._silent[target]
        watch = self._reader.watch(scope, lambda: self._told(target))
        try:
            watch.start()
        except OSError as error:
            return None, _because(error)
        self._told_ns[target] = self._now_ns()
        return watch, ""

    def _told(self, target: WatchTarget) -> None:
        self._told_ns[target] = self._now_ns()
        if target.scope is not None:
            self._teller(target.scope)()

    def _teller(self, scope: WatchScope) -> Callable[[], None]:
        return self._on_transcripts if scope.transcripts else self._on_change


def _because(error: OSError) -> str:
    shortages = {
        errno.ENOSPC: "inotify watches ran out (fs.inotify.max_user_watches)",
        errno.EMFILE: "inotify instances or descriptors ran out (fs.inotify.max_user_instances)",
    }
    return shortages.get(error.errno or 0, f"inotify cannot be used: {error.strerror}")


# watchdog's snapshot recurses, a few frames a level; deeper folders are left to the reconcile pass.
MAX_DEPTH = 150


class PollingWatch(FileSystemEventHandler):
    """Compares one scope's folders and Markdown files every `poll_seconds`. Links are neither seen nor followed."""

    def __init__(self, scope: WatchScope, on_change: Callable[[], None], poll_seconds: float) -> None:
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
