"""What was observed: the status of each call, and every violation with its context."""

import sys
import time
from collections import Counter
from dataclasses import dataclass, field

import grpc

# A failed call with one of these statuses says that it can be repeated.
TRANSIENT = {"UNAVAILABLE", "DEADLINE_EXCEEDED"}
# While no daemon was stopped, UNAVAILABLE needs one of these reasons.
UNAVAILABLE_REASONS = {"SHUTTING_DOWN", "EMBEDDING_UNAVAILABLE", "INDEX_BUSY"}
# Statuses that the mix of calls causes in a daemon that works.
EXPECTED = {
    "ABORTED": {"SYNC_CONFLICT", "SYNC_CANCELLED"},
    "RESOURCE_EXHAUSTED": {"TOO_MANY_REQUESTS", "EMBEDDING_QUOTA_EXCEEDED"},
    "OUT_OF_RANGE": {"CURSOR_EXPIRED"},
    "FAILED_PRECONDITION": {"EMBEDDING_NOT_CONFIGURED"},
    "DEADLINE_EXCEEDED": None,
}
# Before and after the index begins to be closed.
CLOSED_INDEX = ("the index is not open", "the index is closed")
RELOAD_SECONDS = 10.0
MOST_PRINTED = 40


@dataclass
class Evidence:
    """Count statuses and collect violations.

    `down_until` is the time until which a daemon may not answer after its start; `reloaded_at` that of the last reload.
    """

    statuses: Counter = field(default_factory=Counter)
    failures: list = field(default_factory=list)
    checks: Counter = field(default_factory=Counter)
    seconds: Counter = field(default_factory=Counter)
    down_until: float = 0.0
    down: bool = False
    reloaded_at: float = 0.0
    began: float = field(default_factory=time.monotonic)

    def fail(self, what, **context):
        """Record a violation with the state that shows it."""
        seconds = round(time.monotonic() - self.began, 2)
        self.failures.append({"at_seconds": seconds, "what": what, **context})
        if len(self.failures) <= MOST_PRINTED:
            shown = ", ".join(f"{key}={str(value)[-1_500:]!r}" for key, value in context.items())
            print(f"FAILED at {seconds} s: {what}: {shown}", file=sys.stderr, flush=True)

    def check(self, kind, holds, what, **context):
        """Count a check, and record a violation if it does not hold."""
        self.checks[kind] += 1
        if not holds:
            self.fail(f"{kind}: {what}", **context)
        return holds

    def ok(self, method, began):
        """Count a call that succeeded, and its duration."""
        self.statuses[method, "OK", ""] += 1
        self.seconds[method] += time.monotonic() - began

    def failed(self, method, error, began, allowed=()):
        """Count a call that failed; record a violation if its status is not one that the mix of calls causes."""
        code, reason = error.code.name, error.reason
        self.statuses[method, code, reason] += 1
        if reason in allowed or code in allowed or self._is_expected(error, began):
            return
        self.fail("unexpected status", method=method, code=code, reason=reason, message=error.message)

    def _is_expected(self, error, began):
        code, reason = error.code.name, error.reason
        was_down = self.down or began < self.down_until
        if code == grpc.StatusCode.UNAVAILABLE.name:
            # A reload waits only for the grace period before it closes an index that a call still uses.
            closed = error.message in CLOSED_INDEX and began < self.reloaded_at + RELOAD_SECONDS
            return reason in UNAVAILABLE_REASONS or was_down or closed
        if code == grpc.StatusCode.CANCELLED.name:
            # gRPC's own status for a call that the end of the grace period interrupts.
            return was_down
        reasons = EXPECTED.get(code, ())
        return reasons is None or reason in reasons

    def totals(self):
        """Return the number of calls by status."""
        found = Counter()
        for (_, code, _), count in self.statuses.items():
            found[code] += count
        return found
