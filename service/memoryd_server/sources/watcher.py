"""Detection of changes in an agent's files: by native events where possible, otherwise by polling.

A `Watcher` only reports that something may have changed; the sync compares the files itself.

The reconcile pass calls `check`, which repairs broken watches (a dead thread, a re-created folder, a root that appears
late), and `record_missed`, which detects a root whose events never arrive.

Polling compares folder listings. It is used for mounts and systems without file events, and when inotify watches run
out.
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
    mount_without_events,
    sessions_target,
    targets,
)

__all__ = ["WatchedRoot", "Watcher", "WatcherMode"]

# The longest expected delay between a change and its event.
LATE_NS = 5_000_000_000

# File systems round times, and their clock may be slightly ahead of ours.
SKEW_NS = 2_000_000_000


def open_inotify() -> NativeReader:
    """Return the native reader of this system.

    Raises:
        OSError: this system has no inotify, or no more inotify instances.
    """
    if sys.platform != "linux":
        raise OSError(errno.ENOSYS, "this system has no inotify")
    # Imported here because the import fails on systems without inotify.
    from memoryd_server.sources.inotify import InotifyReader  # noqa: PLC0415

    return InotifyReader()


class Watcher:
    """Call `on_change`, from its own threads and possibly often, when a memory file may have changed.

    `on_change` must be quick, must not raise and must not call `stop`. The same holds for `on_transcripts`, which is
    called for transcripts in the folder `sessions`, if it is not empty. `polling` disables inotify; `poll_seconds` is
    the interval between two comparisons.
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
        self._last_event_ns: dict[WatchTarget, int] = {}
        self._eventless: dict[WatchTarget, str] = {}
        self._polling_reason = "polling is configured" if polling else ""
        self._polling = polling
        self._lock = threading.Lock()
        self._running = False
        self._reader: NativeReader | None = None
        self._watches: tuple[RootWatch, ...] = ()

    def start(self) -> None:
        """Start to watch. Earlier changes are not reported. A root that cannot be watched is listed in `status`."""
        with self._lock:
            if not self._running:
                self._running = True
                self._watches = self._update_watches()

    def stop(self) -> None:
        """Stop watching and wait for the threads. `on_change` is not called afterwards."""
        with self._lock:
            self._running = False
            for entry in self._watches:
                entry.stop()
            self._watches = ()
            if self._reader:
                self._reader.stop()
            self._reader = None

    def status(self) -> tuple[WatchedRoot, ...]:
        """Return the state of each root, the workspace first, then the extra paths. Does not touch the disk."""
        entries = self._watches
        return tuple(entry.status() for entry in entries) if entries else self._off()

    def verified_status(self) -> tuple[WatchedRoot, ...]:
        """Return `status` verified against the disk: the watch of a folder that was removed or replaced is DEAD."""
        entries = self._watches
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
        """Repair broken watches and watch new roots.

        Report a change if one was repaired, as events may have been missed.
        """
        with self._lock:
            if not self._running:
                return
            before = self._watches
            self._watches = self._update_watches()
            repaired = [entry.watch for entry in before] != [entry.watch for entry in self._watches]
        if repaired:
            self._on_change()
            self._on_transcripts()

    def record_missed(self, files: Iterable[SourceFile]) -> None:
        """Record changed files that a sync has found. A root that sent no event for them is polled from now on.

        Only files that were written well after the root's last event, and well before now, count.
        """
        with self._lock:
            missed = {
                entry.target: sum(self._was_missed(file, entry.target) for file in files)
                for entry in self._watches
                if entry.mode is WatcherMode.NATIVE
            }
            for target, count in missed.items():
                if count:
                    self._eventless[target] = f"file events do not arrive here: {count} changes came without one"
            if any(missed.values()):
                self._watches = self._update_watches()

    def _was_missed(self, file: SourceFile, target: WatchTarget) -> bool:
        last = self._last_event_ns[target] + SKEW_NS
        if target.scope is None or not last < file.stat.mtime_ns < self._now_ns() - LATE_NS:
            return False
        return target.scope.covers(str(Path(os.path.realpath(file.root), *file.parts)))

    def _update_watches(self) -> tuple[RootWatch, ...]:
        wanted = tuple(self._targets())
        kept = {entry.target: entry for entry in self._watches if entry.target in wanted and self._is_usable(entry)}
        for entry in self._watches:
            if entry.target not in kept:
                entry.stop()
        for target in [target for target in self._last_event_ns if target not in wanted]:
            self._last_event_ns.pop(target)
            self._eventless.pop(target, None)
        self._renew_reader()
        return tuple(kept.get(target) or self._watch_root(target) for target in wanted)

    def _is_usable(self, entry: RootWatch) -> bool:
        return entry.is_healthy() and not (entry.mode is WatcherMode.NATIVE and entry.target in self._eventless)

    def _renew_reader(self) -> None:
        if self._polling or (self._reader and self._reader.is_alive()):
            return
        if self._reader:
            self._reader.stop()
        self._reader = None
        try:
            self._reader = self._open_native()
            self._polling_reason = ""
        except OSError as error:
            self._polling_reason = _error_reason(error)

    def _watch_root(self, target: WatchTarget) -> RootWatch:
        if target.scope is None:
            return RootWatch(target, None, WatcherMode.DEAD, target.reason)
        native, reason = self._watch_natively(target, target.scope)
        if native:
            return RootWatch(target, native, WatcherMode.NATIVE)
        watch = PollingWatch(target.scope, self._callback(target.scope), self._poll_seconds)
        try:
            watch.start()
        except (OSError, RuntimeError) as error:
            return RootWatch(target, None, WatcherMode.DEAD, f"cannot be watched: {error}")
        return RootWatch(target, watch, WatcherMode.POLLING, reason)

    def _watch_natively(self, target: WatchTarget, scope: WatchScope) -> tuple[ScopeWatch | None, str]:
        mount = mount_without_events(scope)
        if self._reader is None or mount:
            return None, self._polling_reason or f"a {mount} mount does not report changes made on other machines"
        if target in self._eventless:
            return None, self._eventless[target]
        watch = self._reader.watch(scope, lambda: self._handle_event(target))
        try:
            watch.start()
        except OSError as error:
            return None, _error_reason(error)
        self._last_event_ns[target] = self._now_ns()
        return watch, ""

    def _handle_event(self, target: WatchTarget) -> None:
        self._last_event_ns[target] = self._now_ns()
        if target.scope is not None:
            self._callback(target.scope)()

    def _callback(self, scope: WatchScope) -> Callable[[], None]:
        return self._on_transcripts if scope.transcripts else self._on_change


def _error_reason(error: OSError) -> str:
    shortages = {
        errno.ENOSPC: "inotify watches ran out (fs.inotify.max_user_watches)",
        errno.EMFILE: "inotify instances or descriptors ran out (fs.inotify.max_user_instances)",
    }
    return shortages.get(error.errno or 0, f"inotify cannot be used: {error.strerror}")


class PollingWatch(FileSystemEventHandler):
    """Compare the folders and Markdown files of one scope every `poll_seconds`. Links are neither seen nor followed."""

    def __init__(self, scope: WatchScope, on_change: Callable[[], None], poll_seconds: float) -> None:
        self._scope = scope
        self._on_change = on_change
        self._observer = PollingObserverVFS(os.lstat, self._list, polling_interval=poll_seconds)

    def start(self) -> None:
        """Take the first snapshot, with which later ones are compared.

        Raises:
            OSError: the top folder cannot be read.
        """
        # Modifications of folders are ignored, because every temporary file of an editor modifies its folder.
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
        """Stop the threads and wait for them."""
        if self._observer.is_alive():
            self._observer.stop()
            self._observer.join()

    def problem(self) -> str:
        """Return why changes are no longer seen, or "" while they are."""
        threads = [self._observer, *self._observer.emitters]
        return "" if len(threads) > 1 and all(thread.is_alive() for thread in threads) else "the polling thread ended"

    def on_any_event(self, event: FileSystemEvent) -> None:  # noqa: ARG002 -- every event counts
        """Report a change. `_list` has already excluded irrelevant files."""
        self._on_change()

    def _list(self, path: str | None) -> "Iterator[os.DirEntry[str]]":
        folder = path or self._scope.top
        below = tuple(part for part in folder[len(self._scope.top) :].split("/") if part)
        with os.scandir(folder) as entries:
            return iter([entry for entry in entries if self._is_wanted(entry, (*below, entry.name))])

    def _is_wanted(self, entry: "os.DirEntry[str]", parts: tuple[str, ...]) -> bool:
        if entry.is_dir(follow_symlinks=False):
            return self._scope.enters(parts)
        return entry.is_file(follow_symlinks=False) and self._scope.counts(parts)


class SharedInotify:
    """One inotify instance for the watchers of all agents, because many systems limit a user to 128 instances.

    Open a reader for the first watcher and stop it with the last one. Thread-safe.

    If the reader has died, the next `open` starts a new one. Watchers of the old reader find it dead and call `open`
    again.
    """

    def __init__(self, open_native: Callable[[], NativeReader]) -> None:
        self._open_native = open_native
        self._lock = threading.Lock()
        self._reader: NativeReader | None = None
        self._users: dict[NativeReader, int] = {}

    def open(self) -> NativeReader:
        """Return a reader for one watcher, which stops the reader when it no longer needs it.

        Raises:
            OSError: no inotify instance is available.
        """
        with self._lock:
            if self._reader is None or not self._reader.is_alive():
                self._reader = self._open_native()
            self._users[self._reader] = self._users.get(self._reader, 0) + 1
            return _Lease(self._reader, self._release)

    def _release(self, reader: NativeReader) -> None:
        with self._lock:
            self._users[reader] -= 1
            if self._users[reader]:
                return
            del self._users[reader]
            if self._reader is reader:
                self._reader = None
        # Outside the lock, because it waits for the reader's thread, which may be calling a callback.
        reader.stop()


class _Lease:
    """The share of one watcher in the reader. Callbacks of other watchers are not affected by its `stop`."""

    def __init__(self, reader: NativeReader, release: Callable[[NativeReader], None]) -> None:
        self._reader = reader
        self._release_reader = release
        self._lock = threading.Lock()
        self._stopped = False

    def watch(self, scope: WatchScope, on_change: Callable[[], None]) -> ScopeWatch:
        """Return a watch of `scope`, not started. The caller also stops it: `stop` of the lease does not."""
        return self._reader.watch(scope, lambda: self._notify(on_change))

    def _notify(self, on_change: Callable[[], None]) -> None:
        # The reader's thread continues for other watchers, so only this check prevents a late call of `on_change`.
        with self._lock:
            if not self._stopped:
                on_change()

    def is_alive(self) -> bool:
        """Return whether events still arrive."""
        return not self._stopped and self._reader.is_alive()

    def stop(self) -> None:
        """Return the reader, once. `on_change` is not called afterwards."""
        with self._lock:
            if self._stopped:
                return
            self._stopped = True
        self._release_reader(self._reader)
