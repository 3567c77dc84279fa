"""The way back to qmd, over a qmd that does as it is told."""

import asyncio
import math
from types import SimpleNamespace

import pytest

from memoryd_server.qmd.client import QmdFailure, QmdFailureReason
from memoryd_server.qmd.fallback import FallbackBackend


class ScriptedQmd:
    """`failures` are raised one a probe."""

    def __init__(self, failures):
        self.failures = failures
        self.config = SimpleNamespace(fallback=True)
        self.updates = SimpleNamespace(resume=lambda: None)

    async def probe(self):
        if self.failures:
            raise self.failures.pop(0)


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch):
    monkeypatch.setattr("memoryd_server.qmd.fallback.FIRST_PAUSE_SECONDS", 0.001)


async def test_trials_go_on_after_an_unexpected_exception_and_report_it():
    reported, changes, returned = [], [], asyncio.Event()
    asyncio.get_running_loop().set_exception_handler(lambda _, context: reported.append(str(context["exception"])))

    def on_change(answers, _reason):
        changes.append(answers)
        if answers:
            returned.set()

    qmd = ScriptedQmd([QmdFailure(QmdFailureReason.EXIT_CODE, "broken"), ValueError("a fault"), ValueError("again")])
    backend = FallbackBackend(qmd, None, on_change)
    await backend.check(math.inf)
    async with asyncio.timeout(10):
        await returned.wait()
    assert changes == [False, True]
    assert reported == ["a fault"]
