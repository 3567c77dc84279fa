"""What the watcher holds of each root, and the interfaces between it and the ways of watching."""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from memoryd_server.sources.watch_scope import Scope, Target


class WatcherMode(StrEnum):
    """How changes of a root are noticed; the names of the wire's enum. DEAD is also a root that is not there."""

    NATIVE = "NATIVE"
    POLLING = "POLLING"
    DEAD = "DEAD"
    OFF = "OFF"


@dataclass(frozen=True, slots=True)
class WatchedRoot:
    """How one root is doing; `reason` says why it is not NATIVE, and `present` whether there is a folder to watch."""

    root: str
    mode: WatcherMode
    reason: str = ""
    present: bool = True


class Watch(Protocol):
    """One watched scope."""

    def start(self) -> None:
        """Begins to report changes; raises OSError when it cannot."""

    def stop(self) -> None:
        """Ends, and frees what it holds."""

    def trouble(self) -> str:
        """Returns why changes are no longer seen, "" while they are."""


class NativeReader(Protocol):
    """What the native watches of one watcher share."""

    def watch(self, scope: Scope, on_change: Callable[[], None]) -> Watch:
        """Returns a watch of `scope`, not started."""

    def is_alive(self) -> bool:
        """Tells whether events still arrive."""

    def stop(self) -> None:
        """Ends all its watches."""


@dataclass(frozen=True, slots=True)
class Entry:
    """A root and what watches it; `reason` says why the mode is not NATIVE."""

    target: Target
    watch: Watch | None
    mode: WatcherMode
    reason: str = ""

    def is_healthy(self) -> bool:
        """Tells whether changes of the root are seen."""
        return self.watch is not None and not self.watch.trouble()

    def status(self) -> WatchedRoot:
        """Returns how the root is doing as far as its watch knows."""
        trouble = self.watch.trouble() if self.watch else ""
        if trouble:
            return WatchedRoot(self.target.display, WatcherMode.DEAD, trouble)
        return WatchedRoot(self.target.display, self.mode, self.reason, present=self.target.scope is not None)

    def status_at(self, now: Target) -> WatchedRoot:
        """Returns how the root is doing, given how it stands on the disk right now."""
        if now.scope is None:
            return WatchedRoot(now.display, WatcherMode.DEAD, now.reason, present=False)
        if not now.is_same_folder(self.target):
            return WatchedRoot(
                now.display, WatcherMode.DEAD, "the folder was replaced; the next reconcile pass watches the new one"
            )
        return self.status()

    def stop(self) -> None:
        """Ends what watches the root, if anything does."""
        if self.watch:
            # What cannot be taken away any more has gone already.
            with suppress(OSError):
                self.watch.stop()
