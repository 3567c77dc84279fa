"""The languages with a client: each `clients/<language>/runner.json` describes one or several variants."""

import json
import os
import shutil
from dataclasses import dataclass

import pytest

from clients.runner import REPOSITORY

# Its runner needs nothing but what the tests need themselves.
OWN = "python"


@dataclass(frozen=True)
class Language:
    """A client and how its runner is started; `example` is its gateway."""

    name: str
    command: tuple
    example: tuple
    needs: tuple
    build: str
    memory_tool: bool

    @property
    def marks(self):
        """The tests of other languages are run by `make clients`."""
        return [] if self.name.partition("-")[0] == OWN else [pytest.mark.clients]

    def missing(self):
        """Why it cannot be run here; empty when it can."""
        absent = [name for name in self.needs if shutil.which(name) is None]
        if absent:
            return f"{self.name} needs {', '.join(absent)}"
        built = [part for part in self.command if "/" in part and not part.startswith("-")]
        if not all((REPOSITORY / part).exists() for part in built):
            return f"{self.name}'s runner is not built; `{self.build}` does it"
        return ""

    @property
    def in_ci(self):
        """Whether nothing may be skipped."""
        return os.environ.get("CI") == "true"

    def or_skip(self):
        """Skips the test where the language cannot be run. CI has all of them and skips none."""
        why = self.missing()
        if why and self.in_ci:
            pytest.fail(f"CI must not skip it: {why}")
        if why:
            pytest.skip(why)
        return self


def _read():
    for file in sorted((REPOSITORY / "clients").glob("*/runner.json")):
        told = json.loads(file.read_text("utf-8"))
        name, needs = file.parent.name, tuple(told.get("needs", ()))
        more = {"build": told["build"], "memory_tool": told.get("memory_tool", False)}
        yield Language(name, tuple(told["command"]), tuple(told.get("example", ())), needs, **more)
        for variant, command in told.get("variants", {}).items():
            yield Language(f"{name}-{variant}", tuple(command), (), needs, **more)


LANGUAGES = tuple(_read())


def every_language(*marks):
    """Parameters, one a language."""
    return [pytest.param(each, id=each.name, marks=[*each.marks, *marks]) for each in LANGUAGES]
