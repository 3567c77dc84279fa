"""A timer of nested functions: wall and CPU time of each stage, excluding the stages that its functions call.

A timed call costs about a microsecond. The cost is measured when the timer is created, and subtracted.
"""

import functools
import importlib
import inspect
import statistics
import sys
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

from profile_stages import STAGES, Stage

_CALLS_OF_CALIBRATION = 20_000


@dataclass(frozen=True)
class TimedCall:
    """One call of a stage: when it began (`time.perf_counter_ns`), and its times without those of nested calls."""

    stage: str
    began_ns: int
    wall_ns: float
    cpu_ns: float


class _Frame:
    """A timed call that has not returned yet."""

    __slots__ = ("calls_inside", "cpu_inside", "cpu_ns", "stage", "wall_inside", "wall_ns")

    def __init__(self, stage: str) -> None:
        self.stage = stage
        self.calls_inside = self.wall_inside = self.cpu_inside = 0
        self.cpu_ns = time.thread_time_ns()
        self.wall_ns = time.perf_counter_ns()


class Timer:
    """Times stages on all threads. `take` is called while nothing is timed."""

    def __init__(self) -> None:
        self._local = threading.local()
        self._threads: list[list[tuple[str, int, int, int, int]]] = []
        self._own_ns = self._outer_ns = 0.0
        self._calibrate()

    def enter(self, stage: str) -> None:
        stack = getattr(self._local, "stack", None)
        if stack is None:
            stack = self._local.stack = []
            self._local.calls = []
            self._threads.append(self._local.calls)
        stack.append(_Frame(stage))

    def leave(self, *, on_other_thread: bool = False) -> None:
        wall_ns, cpu_ns = time.perf_counter_ns(), time.thread_time_ns()
        stack: list[_Frame] = self._local.stack
        frame = stack.pop()
        wall_ns -= frame.wall_ns
        cpu_ns -= frame.cpu_ns
        # The wall time is counted by the thread that waits for this one.
        own_ns = 0 if on_other_thread and not stack else wall_ns - frame.wall_inside
        self._local.calls.append((frame.stage, frame.wall_ns, own_ns, cpu_ns - frame.cpu_inside, frame.calls_inside))
        if stack:
            outer = stack[-1]
            outer.calls_inside += 1
            outer.wall_inside += wall_ns
            outer.cpu_inside += cpu_ns

    def timed(self, stage: str, function: Callable[..., Any], *, on_other_thread: bool = False) -> Callable[..., Any]:
        """Return `function`, timed as a call of `stage`."""

        @functools.wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            self.enter(stage)
            try:
                return function(*args, **kwargs)
            finally:
                self.leave(on_other_thread=on_other_thread)

        return call

    def timed_context(self, stage: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return `function`, which returns a context manager. Entering and leaving it are timed, the block is not."""

        @functools.wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            return _TimedContext(self, stage, function(*args, **kwargs))

        return call

    def take(self) -> list[TimedCall]:
        """Return the calls since the last `take`, without the cost of the timer within them."""
        found = []
        for calls in self._threads:
            for stage, began_ns, wall_ns, cpu_ns, calls_inside in calls:
                cost = self._own_ns + self._outer_ns * calls_inside
                found.append(TimedCall(stage, began_ns, max(0.0, wall_ns - cost), max(0.0, cpu_ns - cost)))
            calls.clear()
        return found

    @property
    def call_ns(self) -> float:
        """The cost of timing one call, in nanoseconds."""
        return self._own_ns + self._outer_ns

    def _calibrate(self) -> None:
        """Measure what a timed call adds to its own stage, and to the function that makes it."""

        def nothing() -> None:
            return

        timed = self.timed("calibration", nothing)

        def nanoseconds(function: Callable[[], None]) -> float:
            began = time.perf_counter_ns()
            for _ in range(_CALLS_OF_CALIBRATION):
                function()
            return (time.perf_counter_ns() - began) / _CALLS_OF_CALIBRATION

        # The minimum of several measurements, because other processes can only increase them.
        whole, own = [], []
        for _ in range(5):
            whole.append(nanoseconds(timed) - nanoseconds(nothing))
            own.append(statistics.median(call.wall_ns for call in self.take()))
        self._own_ns = min(own)
        self._outer_ns = max(0.0, min(whole) - self._own_ns)


class _TimedContext:
    """A context manager whose beginning and end are timed."""

    def __init__(self, timer: Timer, stage: str, inner: AbstractContextManager[Any]) -> None:
        self._timer, self._stage, self._inner = timer, stage, inner

    def __enter__(self) -> Any:
        self._timer.enter(self._stage)
        try:
            return self._inner.__enter__()
        finally:
            self._timer.leave()

    def __exit__(self, *error: object) -> bool | None:
        self._timer.enter(self._stage)
        try:
            return self._inner.__exit__(*error)
        finally:
            self._timer.leave()


class FunctionMissing(LookupError):
    """A function of `profile_stages.py` does not exist."""


def require_functions(stages: Iterable[Stage] = STAGES) -> None:
    """Raise `FunctionMissing` if a function of a stage does not exist."""
    for stage in stages:
        for name in (*stage.functions, *stage.on_other_threads):
            _find(name)


def time_stages(timer: Timer) -> None:
    """Replace the functions of all stages by timed ones, in every module that has imported them.

    Raises:
        FunctionMissing: one of them does not exist.
    """
    require_functions()
    for stage in STAGES:
        for name in stage.functions:
            _replace(timer, stage.name, name, on_other_thread=False)
        for name in stage.on_other_threads:
            _replace(timer, stage.name, name, on_other_thread=True)


def _find(name: str) -> tuple[Any, str, Any]:
    """Return the module or class that has a function, the function's name there, and the function."""
    module_name, _, path = name.partition(":")
    *classes, attribute = path.split(".")
    try:
        owner: Any = importlib.import_module(module_name)
        for each in classes:
            owner = getattr(owner, each)
        return owner, attribute, inspect.getattr_static(owner, attribute)
    except (ImportError, AttributeError) as error:
        raise FunctionMissing(
            f"{name} does not exist ({error}): name the function that does its work in benchmarks/profile_stages.py"
        ) from error


def _replace(timer: Timer, stage: str, name: str, *, on_other_thread: bool) -> None:
    owner, attribute, function = _find(name)
    if isinstance(function, property):
        setattr(owner, attribute, property(timer.timed(stage, function.fget)))
        return
    if inspect.isgeneratorfunction(inspect.unwrap(function)) and hasattr(function, "__wrapped__"):
        # The decorator `contextmanager` keeps the generator function as `__wrapped__`.
        timed = timer.timed_context(stage, function)
    else:
        timed = timer.timed(stage, function, on_other_thread=on_other_thread)
    if inspect.isclass(owner):
        setattr(owner, attribute, timed)
        return
    for module in list(sys.modules.values()):
        if getattr(module, "__name__", "").startswith("memoryd_server"):
            for imported_as, value in list(vars(module).items()):
                if value is function:
                    setattr(module, imported_as, timed)
