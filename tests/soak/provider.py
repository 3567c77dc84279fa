"""An embedding provider on loopback that fails in every known way, one fault after the other."""

import threading
import time
from contextlib import contextmanager
from email.utils import formatdate

from fake_providers import Fault, embedding_server

HUGE_REPLY_BYTES = 40 << 20
DEPTH = 100_000
HANG_SECONDS = 12.0
FAULT_SECONDS = (0.6, 2.0)
PATIENCE_SECONDS = 3.0
HEALTHY_SECONDS = (0.5, 2.5)


def _usage(tokens):
    def change(reply):
        return (
            {**reply, "usage": {"prompt_tokens": tokens, "total_tokens": tokens}} if isinstance(reply, dict) else reply
        )

    return change


def _each(value):
    return Fault(vectors=lambda vectors: [[value] * len(vector) for vector in vectors])


def faults(server):
    """Return the faults by name; each value makes a new one."""

    def status(number, **headers):
        return lambda: Fault(number, server.error(number, "The soak test requested this failure."), headers)

    return {
        "429 with Retry-After": lambda: server.limited(1),
        "429 with Retry-After: 1e300": status(429, **{"retry-after": "1e300"}),
        "429 without Retry-After": status(429),
        "429 quota": server.quota,
        "401": status(401),
        "400": status(400),
        "404": status(404),
        "500": server.failing,
        "503 with a date": status(503, **{"retry-after": formatdate(usegmt=True)}),
        "302": status(302, location="http://127.0.0.1:9/"),
        "time-out": lambda: Fault(delay_seconds=HANG_SECONDS),
        "slow": lambda: server.slow(1.5),
        "slow bytes": lambda: Fault(seconds_per_byte=0.01),
        "reset": server.reset,
        "truncated": server.truncated,
        "garbage": lambda: Fault(body=b"\x00\xff<html>garbage"),
        "no JSON object": lambda: Fault(body=b"[]"),
        "deep JSON": lambda: Fault(body=b"[" * DEPTH),
        "huge reply": lambda: Fault(body=b" " * HUGE_REPLY_BYTES),
        "one vector too few": server.short,
        "one vector too short": server.narrow,
        "wrong dimensions": lambda: Fault(vectors=lambda vectors: [[*vector, *vector] for vector in vectors]),
        "NaN": lambda: _each(float("nan")),
        "infinity": lambda: _each(float("inf")),
        "zeros": lambda: _each(0.0),
        "overflow": lambda: _each(1e308),
        "null": lambda: _each(None),
        "strings": lambda: _each("0.5"),
        "huge usage": lambda: Fault(change=_usage(10**400)),
        "negative usage": lambda: Fault(change=_usage(-1)),
    }


class FailingProvider:
    """Run a server whose faults follow each other in an order of chance while `failing` is set."""

    def __init__(self, server, chance):
        self.server = server
        self.url = server.url
        self.failing = threading.Event()
        self.seen = {}
        self._chance = chance
        self._faults = faults(server)
        self._current = None
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._rotate, daemon=True)
        server.refuse = self._refuse
        self._thread.start()

    def counts(self):
        """Return how often a request met each fault."""
        return {name: self.seen.get(name, 0) for name in sorted(self._faults)}

    def _refuse(self, _texts):
        name = self._current if self.failing.is_set() else None
        if name is None:
            return None
        self.seen[name] = self.seen.get(name, 0) + 1
        return self._faults[name]()

    def _rotate(self):
        while True:
            for name in self._chance.sample(list(self._faults), len(self._faults)):
                while not self.failing.wait(0.1):
                    if self._over.is_set():
                        return
                self._current = name
                seen = self.seen.get(name, 0)
                if self._over.wait(self._chance.uniform(*FAULT_SECONDS)):
                    return
                # While no daemon runs, or its provider has a cooldown, no request meets the fault.
                until = time.monotonic() + PATIENCE_SECONDS
                while self.seen.get(name, 0) == seen and time.monotonic() < until and not self._over.wait(0.1):
                    pass
                self._current = None
                # The record of all requests is for tests that last seconds.
                self.server.requests.clear()
                self.server.asked.clear()
                if self._over.wait(self._chance.uniform(*HEALTHY_SECONDS)):
                    return

    def close(self):
        """Stop the rotation of the faults."""
        self._over.set()
        self._thread.join()


@contextmanager
def failing_provider(chance):
    """Yield a `FailingProvider` until the block ends."""
    with embedding_server() as server:
        provider = FailingProvider(server, chance)
        try:
            yield provider
        finally:
            provider.close()
