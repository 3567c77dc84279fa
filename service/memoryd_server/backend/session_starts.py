"""Which sessions have been seen, so that each one's start counts once. On the event loop's thread."""

from collections import OrderedDict

# The oldest are forgotten first, which costs one sync more.
REMEMBERED_SESSIONS = 10_000


class SessionStarts:
    """One agent's sessions since the daemon's start."""

    def __init__(self) -> None:
        self._seen: OrderedDict[str, None] = OrderedDict()

    def is_first(self, session_key: str) -> bool:
        """Whether a session is seen for the first time; an empty key is none."""
        if not session_key or session_key in self._seen:
            return False
        self._seen[session_key] = None
        if len(self._seen) > REMEMBERED_SESSIONS:
            self._seen.popitem(last=False)
        return True
