"""The log: one event a line on standard error, JSON for machines or plain for people.

Events are a constant verb and noun with fields. Query and note text never stand above DEBUG, secrets nowhere.
"""

import logging
import sys
from typing import TextIO

import structlog

Log = structlog.typing.FilteringBoundLogger


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


def _number(name: str) -> int:
    return logging.getLevelNamesMapping()[name.upper()]
