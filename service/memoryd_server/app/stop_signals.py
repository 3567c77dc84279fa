"""SIGTERM and SIGINT: the daemon stops within its grace period, whatever hangs."""

import os
import signal
import threading
from collections.abc import Callable
from contextlib import suppress
from types import FrameType

from memoryd_server.observe import Log

BEYOND_GRACE_SECONDS = 1.5
"""The time that a stop has after the grace period to close everything. Then the process exits, even if a part hangs."""

_LOG_SECONDS = 0.2


class StopSignals:
    """Handles SIGTERM and SIGINT: the first starts a stop with a time limit, the second ends the process immediately.

    The handler is Python's rather than the event loop's, and the time limit has its own thread. Both therefore work
    while the event loop, or a thread that the interpreter joins at its exit, hangs in a system call.
    """

    def __init__(self, stop: Callable[[], object], grace_seconds: Callable[[], float], log: Log) -> None:
        self._stop = stop
        self._grace_seconds = grace_seconds
        self._log = log
        self._is_stopping = False

    def on_signal(self, number: int, _frame: FrameType | None) -> None:
        """Handle SIGTERM or SIGINT, on the main thread."""
        if self._is_stopping:
            signal.signal(number, signal.SIG_DFL)
            signal.raise_signal(number)
            # The first process of a container ignores a signal with the default handler.
            os._exit(128 + number)
        self._is_stopping = True
        self._stop()
        limit = threading.Timer(self._grace_seconds() + BEYOND_GRACE_SECONDS, self._give_up)
        limit.daemon = True
        # If the system has no thread left, the stop has no limit.
        with suppress(RuntimeError):
            limit.start()

    def _give_up(self) -> None:
        # A log whose reader hangs must not keep the process from exiting.
        logging = threading.Thread(target=self._log_threads, daemon=True)
        logging.start()
        logging.join(_LOG_SECONDS)
        os._exit(1)

    def _log_threads(self) -> None:
        names = sorted(thread.name for thread in threading.enumerate() if not thread.daemon)
        self._log.error("abandon-stop", waiting_for=names)
