"""Unexpected exceptions of background work: reported, and never the end of a loop."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, NoReturn


def report_to_loop(name: str, error: Exception) -> None:
    """Pass an exception to the event loop's exception handler, which logs it."""
    asyncio.get_running_loop().call_exception_handler({"message": f"{name} failed", "exception": error})


class ReportedErrors:
    """The unexpected exceptions of one background task. `report` gets each type once until the task works again."""

    def __init__(self, name: str, report: Callable[[str, Exception], None] = report_to_loop) -> None:
        self._name = name
        self._report = report
        self._reported: set[type[Exception]] = set()

    def failed(self, error: Exception) -> None:
        """Report `error` unless its type is reported already."""
        if type(error) not in self._reported:
            self._reported.add(type(error))
            self._report(self._name, error)

    def worked(self) -> None:
        """Note a success: the next exception is reported whatever its type."""
        self._reported.clear()


async def repeat(
    step: Callable[[], Awaitable[Any]],
    faults: ReportedErrors,
    *,
    interval_seconds: float = 0.0,
    delay_seconds: float = 0.0,
    fault_pause_seconds: float = 0.0,
) -> NoReturn:
    """Await `step` at intervals until cancelled. An exception of one step is reported and the next step follows.

    `delay_seconds` precede the first step. A step that itself waits for events needs a `fault_pause_seconds`, so that a
    lasting fault does not keep the loop busy.
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
