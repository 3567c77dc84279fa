"""The sessions of the inspector's page, by cookie, and the throttle of failed sign-ins.

A session keeps the token of a sign-in, in memory only. The cookie has a random id, and the sessions are stored by the
hash of the id. Each call checks the token of its session, so a session never allows more than its token does at that
moment.
"""

import hashlib
import ipaddress
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass, field

SESSION_SECONDS = 12 * 3600
MOST_SESSIONS = 256
_ID_BYTES = 32

_IPV6_NETWORK_BITS = 64
# Above this number, the addresses whose failures are too old to count are removed.
_MOST_ADDRESSES = 256


@dataclass(frozen=True, slots=True)
class InspectorSession:
    """A sign-in of a page. Requests of other origins than `origin` do not belong to the session."""

    token: bytes = field(repr=False)
    origin: str
    share: str
    expires_at: float


class InspectorSessions:
    """At most `most` sessions, at most half of them with one token; beyond that, the one that was idle longest ends.

    A session ends after `seconds`, even if it is in use. Use this class on the event loop's thread only.
    """

    def __init__(
        self, now: Callable[[], float] = time.monotonic, *, most: int = MOST_SESSIONS, seconds: float = SESSION_SECONDS
    ) -> None:
        self._now = now
        self._most = most
        self._seconds = seconds
        # The session that was idle longest is first.
        self._sessions: dict[bytes, InspectorSession] = {}

    def __len__(self) -> int:
        """Return the number of sessions, including those that have expired since the last one was opened."""
        return len(self._sessions)

    def open(self, token: bytes, origin: str, share: str) -> str:
        """Return the id of a new session. `share` is the name under which the limits count the token."""
        now = self._now()
        self._sessions = {key: each for key, each in self._sessions.items() if each.expires_at > now}
        same_token = [key for key, each in self._sessions.items() if each.share == share]
        if len(same_token) >= max(1, self._most // 2):
            del self._sessions[same_token[0]]
        elif len(self._sessions) >= self._most:
            del self._sessions[next(iter(self._sessions))]
        session_id = secrets.token_urlsafe(_ID_BYTES)
        self._sessions[_key(session_id)] = InspectorSession(token, origin, share, now + self._seconds)
        return session_id

    def use(self, session_id: str) -> InspectorSession | None:
        """Return a session and mark it as used now; None if there is none with this id, or it has expired."""
        session = self._sessions.pop(_key(session_id), None)
        if session is None or session.expires_at <= self._now():
            return None
        self._sessions[_key(session_id)] = session
        return session

    def close(self, session_id: str) -> None:
        """Remove a session, if it exists."""
        self._sessions.pop(_key(session_id), None)


def _key(session_id: str) -> bytes:
    return hashlib.sha256(session_id.encode("utf-8", "replace")).digest()


@dataclass(frozen=True, slots=True)
class AttemptLimit:
    """A burst of `attempts`, and then one attempt each `seconds`."""

    attempts: int
    seconds: float


ADDRESS_LIMIT = AttemptLimit(5, 12.0)
TOTAL_LIMIT = AttemptLimit(30, 1.0)


class SignInThrottle:
    """Limits failed sign-ins for each client address and in total, by token buckets.

    An attempt is counted before the token is checked, so that concurrent attempts do not exceed the limit, and is given
    back if the token was valid. The addresses of one IPv6 network of 64 bits count as one. Use this class on the event
    loop's thread only.
    """

    def __init__(
        self,
        now: Callable[[], float] = time.monotonic,
        *,
        of_address: AttemptLimit = ADDRESS_LIMIT,
        of_all: AttemptLimit = TOTAL_LIMIT,
    ) -> None:
        self._now = now
        self._of_address = of_address
        self._all = _Bucket(of_all, now())
        self._addresses: dict[str, _Bucket] = {}

    def __len__(self) -> int:
        """Return the number of addresses that are stored."""
        return len(self._addresses)

    def take(self, address: str) -> float:
        """Count an attempt and return 0, or return the seconds until one is allowed."""
        now, network = self._now(), _network(address)
        bucket = self._addresses.get(network) or _Bucket(self._of_address, now)
        wait = max(bucket.wait(now), self._all.wait(now))
        if not wait:
            bucket.left -= 1
            self._all.left -= 1
            self._store(network, bucket, now)
        return wait

    def give_back(self, address: str) -> None:
        """Uncount an attempt that succeeded."""
        self._all.give_back()
        bucket = self._addresses.get(_network(address))
        if bucket is not None:
            bucket.give_back()

    def _store(self, network: str, bucket: "_Bucket", now: float) -> None:
        # The total limit bounds the number of addresses whose buckets are not full, and so the size of the map.
        if len(self._addresses) >= _MOST_ADDRESSES:
            self._addresses = {name: each for name, each in self._addresses.items() if not each.is_full(now)}
        self._addresses[network] = bucket


class _Bucket:
    """The attempts that are left, which grow with time up to the limit."""

    __slots__ = ("_filled_at", "_limit", "left")

    def __init__(self, limit: AttemptLimit, now: float) -> None:
        self._limit = limit
        self.left = float(limit.attempts)
        self._filled_at = now

    def wait(self, now: float) -> float:
        """Return the seconds until an attempt is left; 0 if there is one."""
        self.left = min(float(self._limit.attempts), self.left + (now - self._filled_at) / self._limit.seconds)
        self._filled_at = now
        # The tolerance allows a client that waits exactly as long as `wait` returned.
        return 0.0 if self.left > 1 - 1e-6 else (1 - self.left) * self._limit.seconds

    def give_back(self) -> None:
        self.left = min(float(self._limit.attempts), self.left + 1)

    def is_full(self, now: float) -> bool:
        self.wait(now)
        return self.left >= self._limit.attempts


def _network(address: str) -> str:
    """Return the address, or its network for IPv6."""
    try:
        found = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if found.version == 4:  # noqa: PLR2004 -- IPv4
        return address
    return str(ipaddress.ip_network((found, _IPV6_NETWORK_BITS), strict=False))
