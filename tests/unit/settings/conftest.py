"""A home directory to write settings into, and to load them from."""

import json
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from memoryd_server.errors import SettingsError
from memoryd_server.settings.loading import load
from memoryd_server.settings.resolved import ResolvedSettings


@dataclass
class Home:
    path: Path
    environ: dict[str, str] = field(default_factory=dict)

    @property
    def state(self) -> Path:
        return self.path / ".openclaw"

    @property
    def reference(self) -> Path:
        return self.state / "openclaw.json"

    @property
    def own(self) -> Path:
        return self.state / "memoryd.json5"

    def write(self, file: Path, content: object) -> Path:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
        return file

    def load(self, reference=None, own=None, **flags) -> ResolvedSettings:
        for file, content in ((self.reference, reference), (self.own, own)):
            if content is not None:
                self.write(file, content)
        return load(environ=self.environ, home=self.path, flags=flags)

    def refused(self, reference=None, own=None, **flags) -> str:
        with pytest.raises(SettingsError) as caught:
            self.load(reference, own, **flags)
        return caught.value.message

    def search(self, **memory_search):
        return self.load(own={"agents": {"defaults": {"memorySearch": memory_search}}}).agent("").memory_search


@pytest.fixture
def home(tmp_path) -> Home:
    return Home(tmp_path / "home")
