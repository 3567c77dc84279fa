"""The API keys of a remote provider: which one is used, and the cooldown of a key that the server limits.

A provider with several keys uses the first available one. A key that is rate-limited, or whose quota is used up, is
unavailable until its cooldown ends.
"""

import threading
import time
from collections.abc import Mapping, Sequence

KEY_COOLDOWN_SECONDS = 60.0
"""Cooldown of a rate-limited key if the server requests no other."""
QUOTA_COOLDOWN_SECONDS = 3600.0
"""Cooldown of a key whose quota is used up."""

_MIN_COOLDOWN_SECONDS = 1.0
# A server may request a longer pause, even by mistake; then its key is tried again after this time.
_MAX_COOLDOWN_SECONDS = 3600.0

Header = Mapping[str, str]


class ApiKeyPool:
    """The headers that carry the keys, in order of preference; one empty header if there are no keys. Thread-safe."""

    def __init__(self, headers: Sequence[Header]) -> None:
        self._headers: Sequence[Header] = headers or ({},)
        self._lock = threading.Lock()
        self._cooldown_until = [0.0] * len(self._headers)

    def __len__(self) -> int:
        return len(self._headers)

    def current(self) -> int:
        """Return the number of the first available key, else of the one whose cooldown ends first."""
        now = time.monotonic()
        with self._lock:
            return min(range(len(self)), key=lambda number: max(now, self._cooldown_until[number]))

    def header(self, number: int) -> Header:
        """Return the header that carries the key of this number."""
        return self._headers[number]

    def cool_down(self, number: int, seconds: float) -> bool:
        """Start the cooldown of a key. Return whether another key is available now."""
        now = time.monotonic()
        with self._lock:
            self._cooldown_until[number] = now + min(max(seconds, _MIN_COOLDOWN_SECONDS), _MAX_COOLDOWN_SECONDS)
            return min(self._cooldown_until) <= now
