"""The `memoryd` command over an agent whose backend is qmd."""

import json

import pytest

from daemon_process import memoryd
from fake_qmd.installs import make_fake

STILL = {"onBoot": False, "interval": "0s", "debounceMs": 0}


class QmdCommandFixture:
    """A workspace, and settings under which qmd answers."""

    def __init__(self, folder, command):
        self.home, self.workspace, self.state = folder, folder / "workspace", folder / "state"
        (self.workspace / "memory").mkdir(parents=True)
        self.state.mkdir()
        (self.workspace / "memory" / "a.md").write_text("# Harbour\n\na crane\n")
        memory = {"backend": "qmd", "qmd": {"command": str(command), "update": STILL}}
        (self.state / "memoryd.json5").write_text(json.dumps({"memory": memory}))

    def memoryd(self, *arguments):
        return memoryd(*arguments, "--workspace", self.workspace, "--state-dir", self.state, home=self.home)


@pytest.fixture
def fake(tmp_path):
    return make_fake(tmp_path / "bin")


@pytest.fixture
def qmd(tmp_path, fake):
    return QmdCommandFixture(tmp_path, fake.path)


@pytest.mark.slow
def test_a_search_at_the_command_line_is_in_scope(qmd):
    answer = json.loads(qmd.memoryd("search", "crane", "--json").stdout)
    assert [hit["path"] for hit in answer["results"]] == ["memory/a.md"]
    assert answer["info"]["backend"] == "BACKEND_QMD"
    out = qmd.memoryd("search", "crane", "--session-key", "agent:main:slack:channel:x").stdout
    assert "memory.qmd.scope" in out


@pytest.mark.slow
def test_a_search_for_any_of_the_words_is_named(qmd):
    found = qmd.memoryd("search", "which crane lifts")
    assert "memory/a.md" in found.stdout
    assert "no file contains all words" in found.stderr
    assert "no file contains all words" not in qmd.memoryd("search", "crane").stderr


@pytest.mark.slow
def test_status_reports_qmd(qmd, fake):
    qmd.memoryd("search", "crane")
    assert "Backend    qmd 2.8.3" in qmd.memoryd("status", "--deep").stdout
    fake.faults(search="segfault")
    assert "qmd 2.8.3 is unavailable: qmd was ended by SIGSEGV" in qmd.memoryd("status", "--deep").stdout


@pytest.mark.slow
def test_doctor_looks_at_qmd(qmd):
    checks = json.loads(qmd.memoryd("doctor", "--json").stdout)
    found = {check["name"]: check for check in checks if check["name"].startswith("qmd of ")}
    assert [check["verdict"] for check in found.values()] == ["ok", "ok"]
    assert "version 2.8.3" in found["qmd of main"]["detail"]
