"""When to leave a backend alone that has failed, and when to try it again."""

import math
from collections.abc import Callable

FIRST_PAUSE_SECONDS = 5.0


class Breaker:
    """Closed while the backend answers. A failure opens it, and a trial that succeeds closes it again.

    The pause between two trials doubles, up to what the failure is worth: the caller says how much. `monotonic` is a
    clock in seconds.
    """

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._pause = 0.0
        self._failed_at = -math.inf
        self.reason = ""

    @property
    def open(self) -> bool:
        """Whether the backend is left alone; `reason` says why."""
        return bool(self.reason)

    def failed(self, reason: str, most_pause_seconds: float) -> None:
        """Opens it, or keeps it open for twice as long."""
        self.reason = reason
        self._failed_at = self._monotonic()
        self._pause = min(most_pause_seconds, self._pause * 2 or FIRST_PAUSE_SECONDS)

    def succeeded(self) -> None:
        """Closes it."""
        self.reason, self._pause = "", 0.0

    @property
    def next_trial_seconds(self) -> float:
        """Time until the next trial."""
        return max(0.0, self._failed_at + self._pause - self._monotonic())
