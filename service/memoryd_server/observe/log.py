"""The log: one event a line on standard error, JSON for machines or plain for people.

Events are a constant verb and noun with fields. Query and note text never stand above DEBUG, secrets nowhere.
"""

import logging
import sys
from typing import TextIO

import structlog

Log = structlog.typing.FilteringBoundLogger


def make_log(level: str, style: str, stream: TextIO | None = None) -> Log:
    """A log at `level` (debug, info, warning, error) in `style` (json, console), to standard error by default."""
    processors: list[structlog.typing.Processor] = [
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
        wrapper_class=structlog.make_filtering_bound_logger(logging.getLevelNamesMapping()[level.upper()]),
    )
    return log
