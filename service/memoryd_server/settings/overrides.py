"""Flags and variables: what a person said last, and so what holds."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from . import environment as env
from .report import Report
from .tree import DEFAULT
from .words import Path, did_you_mean

_SERVICE_FLAGS: Mapping[str, Path] = {
    "listen": ("listen",),
    "token_file": ("tokenFile",),
    "log_level": ("log", "level"),
}
_OTHER_FLAGS = ("workspace", "state_dir", "config")


@dataclass(frozen=True, slots=True)
class Given:
    """A text and who gave it; empty when nobody did."""

    text: str
    origin: str


class Overrides:
    """The flags over the variables. A flag that is None and a variable that is blank count as not given."""

    def __init__(self, environ: Mapping[str, str], flags: Mapping[str, object], report: Report) -> None:
        self.environ = environ
        self._flags = {name: value for name, value in flags.items() if value is not None}
        self._report = report
        for name in self._flags.keys() - {*_SERVICE_FLAGS, *_OTHER_FLAGS}:
            report.problem(_flag(name), (), f"no such flag{did_you_mean(name, [*_SERVICE_FLAGS, *_OTHER_FLAGS])}")
        self.config = self._first("config", env.CONFIG)
        self.state_dir = self._first("state_dir", env.STATE_DIR, env.REFERENCE_STATE_DIR)
        self.workspace = self._first("workspace", env.WORKSPACE)

    def layers(self) -> Iterator[tuple[dict[str, Any], str]]:
        """One layer with its origin for each variable, then each flag, that sets a key of the `memoryd` block."""
        yield from env.environment_layers(self.environ, self._report)
        for name, path in _SERVICE_FLAGS.items():
            value = self._flags.get(name)
            if value:
                given = (
                    value if isinstance(value, str) else list(value) if isinstance(value, list | tuple) else str(value)
                )
                as_array = name == "listen" and isinstance(given, str)
                yield env.service_layer(path, [given] if as_array else given), _flag(name)

    def _first(self, flag: str, *variables: str) -> Given:
        if flag in self._flags and str(self._flags[flag]).strip():
            return Given(str(self._flags[flag]).strip(), _flag(flag))
        for name in variables:
            if self.environ.get(name, "").strip():
                return Given(self.environ[name].strip(), f"env {name}")
        return Given("", DEFAULT)


def _flag(name: str) -> str:
    return f"flag --{name.replace('_', '-')}"
