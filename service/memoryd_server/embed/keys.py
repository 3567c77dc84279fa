"""The keys of one provider. The next one is taken when the server limits the one in use."""

import threading
import time
from collections.abc import Mapping, Sequence

REST_SECONDS = 60.0
"""How long a key rests when the server does not say."""
QUOTA_REST_SECONDS = 3600.0
"""How long a key rests whose quota is used up."""

_SHORTEST_REST_SECONDS = 1.0

Header = Mapping[str, str]


class KeyRing:
    """The headers that carry the keys, in order of preference; without a key, one without headers. Thread-safe."""

    def __init__(self, headers: Sequence[Header]) -> None:
        self._headers: Sequence[Header] = headers or ({},)
        self._lock = threading.Lock()
        self._rests_until = [0.0] * len(self._headers)

    def __len__(self) -> int:
        return len(self._headers)

    def current(self) -> int:
        """The number of the first key that does not rest, else of the one that rests no longer than the others."""
        now = time.monotonic()
        with self._lock:
            return min(range(len(self)), key=lambda number: max(now, self._rests_until[number]))

    def header(self, number: int) -> Header:
        """What carries the key of this number."""
        return self._headers[number]

    def rest(self, number: int, seconds: float) -> bool:
        """Lets a key rest. Whether another one can be used now."""
        now = time.monotonic()
        with self._lock:
            self._rests_until[number] = now + max(seconds, _SHORTEST_REST_SECONDS)
            return min(self._rests_until) <= now
