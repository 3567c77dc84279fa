"""Loops of background work that report unexpected exceptions and continue."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, NoReturn


def report_to_loop(name: str, error: Exception) -> None:
    """Pass an exception to the event loop's exception handler, which logs it."""
    asyncio.get_running_loop().call_exception_handler({"message": f"{name} failed", "exception": error})


class ReportedErrors:
    """The unexpected exceptions of one background task.

    `report` is called once per exception type until `worked` resets the types.
    """

    def __init__(self, name: str, report: Callable[[str, Exception], None] = report_to_loop) -> None:
        self._name = name
        self._report = report
        self._reported: set[type[Exception]] = set()

    def failed(self, error: Exception) -> None:
        """Report `error` unless an exception of its type was already reported."""
        if type(error) not in self._reported:
            self._reported.add(type(error))
            self._report(self._name, error)

    def worked(self) -> None:
        """Record a success, so that the next exception is reported even if its type is known."""
        self._reported.clear()


async def repeat(
    step: Callable[[], Awaitable[Any]],
    faults: ReportedErrors,
    *,
    interval_seconds: float = 0.0,
    delay_seconds: float = 0.0,
    fault_pause_seconds: float = 0.0,
) -> NoReturn:
    """Await `step` at intervals until cancelled. Report an exception of a step and continue with the next step.

    The first step starts after `delay_seconds`. A step that itself waits for events needs a `fault_pause_seconds`, so
    that a persistent fault does not keep the loop busy.
    """
    await asyncio.sleep(delay_seconds)
    while True:
        pause = interval_seconds
        try:
            await step()
        except Exception as error:  # noqa: BLE001 -- a fault of one step must not end all later ones
            faults.failed(error)
            pause = max(pause, fault_pause_seconds)
        else:
            faults.worked()
        await asyncio.sleep(pause)
