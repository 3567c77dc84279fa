"""The way back to qmd, over a scripted qmd."""

import asyncio
import math
import time
from types import SimpleNamespace

from memoryd_server.qmd.client import QmdFailure, QmdFailureReason
from memoryd_server.qmd.fallback import CircuitBreaker, FallbackBackend


class ScriptedQmd:
    """`failures` are raised one a probe."""

    def __init__(self, failures):
        self.failures = failures
        self.config = SimpleNamespace(fallback=True)
        self.updates = SimpleNamespace(resume=lambda: None)

    async def probe(self):
        if self.failures:
            raise self.failures.pop(0)


async def test_trials_go_on_after_an_unexpected_exception_and_report_it():
    reported, changes, returned = [], [], asyncio.Event()
    asyncio.get_running_loop().set_exception_handler(lambda _, context: reported.append(str(context["exception"])))

    def on_change(answers, _reason):
        changes.append(answers)
        if answers:
            returned.set()

    qmd = ScriptedQmd([QmdFailure(QmdFailureReason.EXIT_CODE, "broken"), ValueError("a fault"), ValueError("again")])
    backend = FallbackBackend(qmd, None, on_change, breaker=CircuitBreaker(time.monotonic, first_pause_seconds=0.001))
    await backend.check(math.inf)
    async with asyncio.timeout(10):
        await returned.wait()
    assert changes == [False, True]
    assert reported == ["a fault"]
