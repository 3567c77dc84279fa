"""The log: one event a line on standard error, JSON for machines or plain for people.

Events are a constant verb and noun with fields. Query and note text never stand above DEBUG, secrets nowhere.
"""

import asyncio
import logging
import sys
from collections.abc import Callable
from typing import Any, TextIO

import structlog

Log = structlog.typing.FilteringBoundLogger

_Handler = Callable[[asyncio.AbstractEventLoop, dict[str, Any]], object]


class LogLevel:
    """The least important events that a log writes: debug, info, warning or error. May be set while it is in use."""

    def __init__(self, name: str) -> None:
        self._number = _number(name)

    def set(self, name: str) -> None:
        """Holds from the next event on."""
        self._number = _number(name)

    def __call__(self, _: object, method: str, event: structlog.typing.EventDict) -> structlog.typing.EventDict:
        """Drops events below the level; structlog's way of filtering while the level can change."""
        if structlog.processors.NAME_TO_LEVEL[method] < self._number:
            raise structlog.DropEvent
        return event


def make_log(level: str | LogLevel, style: str, stream: TextIO | None = None) -> Log:
    """A log at `level` (debug, info, warning, error) in `style` (json, console), to standard error by default."""
    processors: list[structlog.typing.Processor] = [
        level if isinstance(level, LogLevel) else LogLevel(level),
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    if style == "json":
        processors += [structlog.processors.format_exc_info, structlog.processors.JSONRenderer(ensure_ascii=False)]
    else:
        processors += [structlog.dev.ConsoleRenderer(colors=False)]
    log: Log = structlog.wrap_logger(
        structlog.WriteLogger(stream or sys.stderr),
        processors=processors,
        wrapper_class=structlog.make_filtering_bound_logger(logging.DEBUG),
    )
    return log


class FaultLog:
    """Logs the exceptions of background work, which the running event loop's exception handler gets."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self._before: _Handler | None = None

    def start(self) -> None:
        """Become the loop's exception handler."""
        loop = asyncio.get_running_loop()
        self._before = loop.get_exception_handler()
        loop.set_exception_handler(self._handle)

    def stop(self) -> None:
        """Give back the handler from before, unless there is another one now."""
        loop = asyncio.get_running_loop()
        if loop.get_exception_handler() == self._handle:
            loop.set_exception_handler(self._before)

    def _handle(self, _: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        # asyncio's message quotes the arguments of a callback, which may hold text of notes.
        what = str(context.get("message", "")).partition("(")[0]
        self._log.error("fail-background-task", what=what, exc_info=context.get("exception"))


def _number(name: str) -> int:
    return logging.getLevelNamesMapping()[name.upper()]
