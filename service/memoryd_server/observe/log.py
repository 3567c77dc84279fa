"""The log: one event per line on standard error, as JSON or as text for people.

Events are a constant verb and noun with fields. Query and note text is never logged above DEBUG, secrets never.
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
    """The lowest level of events that a log writes: debug, info, warning or error. Can be changed while in use."""

    def __init__(self, name: str) -> None:
        self._number = _number(name)

    def set(self, name: str) -> None:
        """Change the level from the next event on."""
        self._number = _number(name)

    def __call__(self, _: object, method: str, event: structlog.typing.EventDict) -> structlog.typing.EventDict:
        """Drop events below the level. A structlog processor, because structlog's own filter is fixed."""
        if structlog.processors.NAME_TO_LEVEL[method] < self._number:
            raise structlog.DropEvent
        return event


def make_log(level: str | LogLevel, style: str, stream: TextIO | None = None) -> Log:
    """Return a log at `level` (debug, info, warning, error) in `style` (json, console), by default to stderr."""
    processors: list[structlog.typing.Processor] = [
        level if isinstance(level, LogLevel) else LogLevel(level),
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    if style == "json":
        processors += [structlog.processors.format_exc_info, structlog.processors.JSONRenderer(ensure_ascii=False)]
    else:
        processors += [structlog.dev.ConsoleRenderer(colors=False)]
    # Without `bind`, structlog makes a logger for each event, also for those that are dropped.
    log: Log = structlog.wrap_logger(
        structlog.WriteLogger(stream or sys.stderr),
        processors=processors,
        wrapper_class=structlog.make_filtering_bound_logger(logging.DEBUG),
    ).bind()
    return log


class FaultLog:
    """Log the exceptions of background work, as the running event loop's exception handler."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self._previous: _Handler | None = None

    def start(self) -> None:
        """Become the loop's exception handler."""
        loop = asyncio.get_running_loop()
        self._previous = loop.get_exception_handler()
        loop.set_exception_handler(self._handle)

    def stop(self) -> None:
        """Restore the previous handler, unless the handler was replaced."""
        loop = asyncio.get_running_loop()
        if loop.get_exception_handler() == self._handle:
            loop.set_exception_handler(self._previous)

    def _handle(self, _: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        # asyncio's message quotes the arguments of a callback, which may contain text of notes.
        what = str(context.get("message", "")).partition("(")[0]
        self._log.error("fail-background-task", what=what, exc_info=context.get("exception"))


def _number(name: str) -> int:
    return logging.getLevelNamesMapping()[name.upper()]
