"""Problems, warnings and blockers that are found while settings are read, each with its file and key."""

from dataclasses import dataclass, field
from pathlib import Path

from memoryd_server.errors import SettingsError

from .words import Path as KeyPath
from .words import dotted

ABOUT_PROVIDERS = frozenset({"memory", "agents", "models", "plugins"})
"""The blocks that decide which providers are used, and with what."""


@dataclass(frozen=True, slots=True)
class Blocker:
    """A setting that memoryd does not understand and that may restrict what is sent to embedding providers.

    While there is one, no agent uses a provider that is reached over HTTP. `where` names the file and the key.
    `agent_id` is the agent that the setting belongs to, empty for a setting that agents share. `warning` says what is
    wrong and what follows from it.
    """

    where: str
    agent_id: str = ""
    warning: str = field(default="", compare=False)

    def shown_to(self, agent_id: str) -> str:
        """Return `where` as the callers of an agent may read it: keys of another agent hold its id."""
        return self.where if self.agent_id in ("", agent_id) else "a setting of another agent"


class RefusedSettings(SettingsError):
    """Settings that cannot be used. A daemon that keeps the earlier ones has to respect the `blockers` all the same."""

    def __init__(self, message: str, blockers: tuple[Blocker, ...] = ()) -> None:
        super().__init__(message)
        self.blockers = blockers


@dataclass(frozen=True, slots=True)
class UnreadKey:
    """A provider's key that is a reference to a secret kept elsewhere: its file, and its place in the file."""

    origin: str
    key: KeyPath


@dataclass(slots=True)
class Report:
    """Collects problems, which refuse the settings; warnings, which do not; and blockers, which are warnings too.

    A key is its path in the file; an empty one means the file as a whole, or that there is no file.
    """

    problems: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    blockers: list[Blocker] = field(default_factory=list)

    def problem(self, origin: str | Path, key: KeyPath, message: str, agent_id: str = "") -> None:
        """Add a reason to refuse. A key in a block that decides about providers is a blocker as well."""
        _add(self.problems, origin, key, message)
        if ABOUT_PROVIDERS.intersection(key[:1]):
            self.block_remote(origin, key, message, agent_id)

    def unreadable(self, file: str | Path, message: str) -> None:
        """Add a file that cannot be read as a reason to refuse, and as a blocker: what it restricts is unknown."""
        _add(self.problems, file, (), message)
        self.block_remote(file, (), message)

    def warn(self, origin: str | Path, key: KeyPath, message: str) -> None:
        """Add a warning."""
        _add(self.warnings, origin, key, message)

    def block_remote(self, origin: str | Path, key: KeyPath, message: str, agent_id: str = "") -> None:
        """Add a blocker, with a warning that says what it causes. What is a blocker already is not added again."""
        effect = "remote embeddings are disabled for every agent until this is corrected"
        warning = _printable(origin, dotted(key), f"{message}; {effect}")
        blocker = Blocker(_printable(origin, dotted(key)), agent_id, warning)
        if blocker not in self.blockers:
            self.blockers.append(blocker)
            self.warnings.append(warning)

    def raise_if_refused(self) -> None:
        """Raise a RefusedSettings that lists every problem, if there is one."""
        if self.problems:
            message = "\n".join(["the settings cannot be used:", *(f"  {p}" for p in self.problems)])
            raise RefusedSettings(message, tuple(self.blockers))


def _add(findings: list[str], origin: str | Path, key: KeyPath, message: str) -> None:
    shown = _printable(origin, dotted(key), message)
    if shown not in findings:
        findings.append(shown)


def _printable(*parts: str | Path) -> str:
    # What a file says goes to terminals and logs: no control character of its keys gets there.
    text = ": ".join(str(part) for part in parts if str(part))
    return "".join(c if c.isprintable() else c.encode("unicode_escape", "surrogatepass").decode() for c in text)
