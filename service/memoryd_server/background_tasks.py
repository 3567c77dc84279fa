"""Background work: loops and one-time tasks whose unexpected exceptions are logged, counted, and shown by Status.

Every task of the daemon that no call awaits is started by `BackgroundTasks`. A loop that it runs continues after any
exception of a step; `TaskFailures` counts the exceptions for the metrics, and has those of the last steps for Status.
"""

import asyncio
import threading
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from typing import Any, NoReturn, TypeVar

from memoryd_server.foreign_text import valid_text

_MAX_MESSAGE_CHARS = 300

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class FailureCount:
    """The failures of one task. `last_error` is empty if its last step succeeded. `agent_id` is empty for the daemon's.

    `count` is the number of failures since the daemon's start.
    """

    task: str
    agent_id: str
    count: int
    last_error: str


class TaskFailures:
    """The unexpected exceptions of all background tasks of a daemon. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: dict[tuple[str, str], FailureCount] = {}

    def failed(self, task: str, agent_id: str, error: Exception) -> None:
        """Count a failure."""
        text = " ".join(valid_text(f"{type(error).__name__}: {error}").split())[:_MAX_MESSAGE_CHARS]
        with self._lock:
            before = self._counts.get((task, agent_id))
            count = 1 if before is None else before.count + 1
            self._counts[task, agent_id] = FailureCount(task, agent_id, count, text)

    def worked(self, task: str, agent_id: str) -> None:
        """Record that the last step of a task succeeded."""
        # The first look is without the lock, because nearly all steps succeed.
        before = self._counts.get((task, agent_id))
        if before is not None and before.last_error:
            with self._lock:
                self._counts[task, agent_id] = FailureCount(task, agent_id, self._counts[task, agent_id].count, "")

    def counts(self) -> list[FailureCount]:
        """Return each task that has ever failed, in order of agent and name."""
        with self._lock:
            return sorted(self._counts.values(), key=lambda each: (each.agent_id, each.task))

    def current(self, agent_id: str) -> tuple[str, ...]:
        """Return a message for each task of the daemon and of an agent whose last step failed."""
        failing = [each for each in self.counts() if each.last_error and each.agent_id in {"", agent_id}]
        return tuple(f"{each.task} failed ({each.count} since the start): {each.last_error}" for each in failing)


def report_to_loop(name: str, error: Exception) -> None:
    """Pass an exception to the event loop's exception handler, which logs it."""
    asyncio.get_running_loop().call_exception_handler({"message": f"{name} failed", "exception": error})


class ReportedErrors:
    """The unexpected exceptions of one background task.

    Every exception is counted. `report` is called once per exception type until `worked` resets the types.
    """

    def __init__(
        self,
        name: str,
        report: Callable[[str, Exception], None] = report_to_loop,
        failures: TaskFailures | None = None,
        agent_id: str = "",
    ) -> None:
        self._name = name
        self._report = report
        self._failures = failures or TaskFailures()
        self._agent_id = agent_id
        self._reported: set[type[Exception]] = set()

    def failed(self, error: Exception) -> None:
        """Count `error`, and report it unless an exception of its type was already reported."""
        self._failures.failed(self._name, self._agent_id, error)
        if type(error) not in self._reported:
            self._reported.add(type(error))
            self._report(self._name, error)

    def worked(self) -> None:
        """Record a success, so that the next exception is reported even if its type is known."""
        self._failures.worked(self._name, self._agent_id)
        self._reported.clear()


class BackgroundTasks:
    """The background tasks of one part of the daemon. For the event loop's thread.

    `agent_id` is the agent that the part belongs to, empty for the daemon. `report` receives the name and the exception
    of a task that fails.
    """

    def __init__(
        self,
        failures: TaskFailures | None = None,
        agent_id: str = "",
        report: Callable[[str, Exception], None] = report_to_loop,
    ) -> None:
        self._failures = failures or TaskFailures()
        self._agent_id = agent_id
        self._report = report
        self._tasks: set[asyncio.Task[Any]] = set()

    @property
    def running(self) -> int:
        """The number of tasks that have not ended."""
        return len(self._tasks)

    def errors(self, name: str) -> ReportedErrors:
        """Return the errors of a task that handles the exceptions of its steps itself."""
        return ReportedErrors(name, self._report, self._failures, self._agent_id)

    def spawn(
        self, name: str, work: Coroutine[Any, Any, _T], *, expected: tuple[type[Exception], ...] = ()
    ) -> asyncio.Task[_T]:
        """Start one-time work. An exception is reported unless it is `expected`; the caller may await the task."""
        faults = self.errors(name)
        task = asyncio.get_running_loop().create_task(work, name=name)
        self._tasks.add(task)

        def on_done(done: asyncio.Task[_T]) -> None:
            self._tasks.discard(done)
            # Retrieved, so that asyncio does not report it a second time.
            error = None if done.cancelled() else done.exception()
            if isinstance(error, Exception) and not isinstance(error, expected):
                faults.failed(error)
            elif error is None and not done.cancelled():
                faults.worked()

        task.add_done_callback(on_done)
        return task

    def repeat(
        self,
        name: str,
        step: Callable[[], Awaitable[Any]],
        *,
        interval_seconds: float = 0.0,
        delay_seconds: float = 0.0,
        fault_pause_seconds: float = 0.0,
    ) -> asyncio.Task[NoReturn]:
        """Start `repeat` of `step`."""
        faults = self.errors(name)
        pauses = {"interval_seconds": interval_seconds, "fault_pause_seconds": fault_pause_seconds}
        task = asyncio.get_running_loop().create_task(
            repeat(step, faults, delay_seconds=delay_seconds, **pauses), name=name
        )
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def wait(self, seconds: float | None = None) -> None:
        """Wait until the tasks of this moment have ended, at most `seconds`."""
        if self._tasks:
            await asyncio.wait(tuple(self._tasks), timeout=seconds)

    async def stop(self) -> None:
        """Cancel all tasks, and wait for their end."""
        tasks = tuple(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


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
