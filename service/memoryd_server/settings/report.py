"""What is found while settings are read: all of it is told at once, each finding with its file and key."""

from dataclasses import dataclass, field
from pathlib import Path

from memoryd_server.errors import SettingsError


@dataclass(slots=True)
class Report:
    """Collects problems, which refuse the settings, and warnings, which do not."""

    problems: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)

    def problem(self, origin: str | Path, key: str, message: str) -> None:
        """Adds a reason to refuse; `key` is empty when the file as a whole is meant."""
        _add(self.problems, origin, key, message)

    def warn(self, origin: str | Path, key: str, message: str) -> None:
        """Adds something to tell that stops nothing."""
        _add(self.warnings, origin, key, message)

    def raise_if_refused(self) -> None:
        """Raises a SettingsError that lists every problem, if there is one."""
        if self.problems:
            raise SettingsError("\n".join(["the settings cannot be used:", *(f"  {p}" for p in self.problems)]))


def _add(findings: list[str], origin: str | Path, key: str, message: str) -> None:
    # What a file says goes to terminals and logs: no control character of its keys gets there.
    text = ": ".join(part for part in (str(origin), key, message) if part)
    shown = "".join(c if c.isprintable() else c.encode("unicode_escape", "surrogatepass").decode() for c in text)
    if shown not in findings:
        findings.append(shown)
