"""Log messages of the packages `mcp`, `sse_starlette` and `uvicorn`, as lines of the daemon's log.

The messages may contain text of the user and of requests. A line therefore has only the place in the code that logged
the message, and the type of an exception.
"""

import logging
from pathlib import PurePath

import structlog

LIBRARIES = ("mcp", "sse_starlette", "uvicorn")


class LibraryLog(logging.Handler):
    """Writes warnings and errors of these packages to the daemon's log, and nothing to standard error."""

    def __init__(self, log: structlog.typing.FilteringBoundLogger) -> None:
        super().__init__(logging.WARNING)
        self._log = log

    def emit(self, record: logging.LogRecord) -> None:
        """Write one line."""
        error = record.exc_info[1] if record.exc_info else None
        write = self._log.error if record.levelno >= logging.ERROR else self._log.warning
        frames = _frames(error)
        write(
            "report-library",
            library=record.name,
            place=f"{record.module}:{record.lineno}",
            **({"error": type(error).__name__, "frames": frames} if error is not None else {}),
        )


def _frames(error: BaseException | None) -> list[str]:
    frames = []
    traceback = None if error is None else error.__traceback__
    while traceback is not None:
        frames.append(f"{PurePath(traceback.tb_frame.f_code.co_filename).name}:{traceback.tb_lineno}")
        traceback = traceback.tb_next
    return frames


def capture_logs(log: structlog.typing.FilteringBoundLogger) -> LibraryLog:
    """Send the logs of the packages to the daemon's log, and return the handler for `release_logs`."""
    handler = LibraryLog(log)
    for name in LIBRARIES:
        logger = logging.getLogger(name)
        logger.propagate = False
        # Without any handler, Python writes warnings to standard error.
        if not logger.handlers:
            logger.addHandler(logging.NullHandler())
        logger.addHandler(handler)
    return handler


def release_logs(handler: LibraryLog) -> None:
    """Stop sending the logs of the packages to the daemon's log. Nothing is written to standard error either."""
    for name in LIBRARIES:
        logging.getLogger(name).removeHandler(handler)
