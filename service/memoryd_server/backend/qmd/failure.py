"""Why qmd did not answer: one reason a cause, so that whoever reads it knows what to do."""

from enum import StrEnum


class Reason(StrEnum):
    """The cause. What stands behind it is told in the failure's message."""

    MISSING = "the command is missing"
    TOO_OLD = "the command is too old"
    SIGNAL = "the command was ended by a signal"
    EXIT_CODE = "the command failed"
    TIMEOUT = "the command took too long"
    NOT_JSON = "the answer is not what qmd prints"
    TOO_LARGE = "the answer is too large"
    UNKNOWN_COLLECTION = "qmd does not know a collection"
    BUSY = "qmd is busy"
    NOT_READY = "qmd has nothing to search yet"
    NO_TIME = "the caller's time was too short"
    CANCELLED = "the call was cancelled"


# These say nothing against the next call.
PASSING = frozenset({Reason.BUSY, Reason.NOT_READY, Reason.NO_TIME, Reason.CANCELLED})


class QmdFailure(Exception):
    """qmd did not do what was asked. The message says what happened, and what to do where something can be done."""

    def __init__(self, reason: Reason, message: str) -> None:
        super().__init__(message)
        self.reason = reason
        self.message = message
