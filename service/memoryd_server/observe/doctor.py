"""What a check of `memoryd doctor` finds: what is so, what that means for the memory, and what to do about it."""

from dataclasses import dataclass
from enum import StrEnum


class Verdict(StrEnum):
    """How a check ended."""

    OK = "ok"
    WARNING = "warning"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Check:
    """One check. `meaning` and `advice` are empty when all is well, and never where it is not."""

    name: str
    verdict: Verdict
    detail: str
    meaning: str = ""
    advice: str = ""

    def __post_init__(self) -> None:
        if self.verdict is not Verdict.OK and not (self.detail and self.meaning and self.advice):
            raise ValueError(f"the check {self.name!r} finds fault and does not say what that means or what to do")


def well(name: str, detail: str) -> Check:
    """All is well."""
    return Check(name, Verdict.OK, detail)


def warning(name: str, detail: str, meaning: str, advice: str) -> Check:
    """The memory works, and something about it is less than it could be, or soon will be."""
    return Check(name, Verdict.WARNING, detail, meaning, advice)


def failure(name: str, detail: str, meaning: str, advice: str) -> Check:
    """Something does not work."""
    return Check(name, Verdict.FAILED, detail, meaning, advice)
