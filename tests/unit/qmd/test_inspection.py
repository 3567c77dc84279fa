"""What `memoryd doctor` finds of a qmd, and what it says to do."""

import os

import pytest

from fake_qmd.installs import make_fake, real_qmd, tiny_models
from memoryd_server.cli.doctor_checks import check_qmd
from memoryd_server.doctor.checks import CheckResult
from memoryd_server.qmd.client import INSTALL_QMD
from rpc.qmd_calls import qmd_settings
from rpc.wire import Home

MODELS = (
    "hf_ggml-org_embeddinggemma-300M-Q8_0.gguf",
    "hf_tobil_qmd-query-expansion-1.7B-q4_k_m.gguf",
    "hf_ggml-org_qwen3-reranker-0.6b-q8_0.gguf",
)


class Doctor:
    """Checks settings under which `command` answers, with a Node of this version on the PATH."""

    def __init__(self, folder):
        self.home = Home(folder)
        self.home.environ = {"PATH": f"{folder / 'bin'}:{os.defpath}", "HOME": str(folder)}
        self.fake = make_fake(folder / "bin")

    def node(self, version):
        file = self.fake.path.with_name("node")
        file.write_text(f"#!/bin/sh\necho {version}\n")
        file.chmod(0o755)

    def look(self, command="qmd", **qmd):
        """The check of the command, and those of the models."""
        first, *models = check_qmd(self.home.settings(qmd_settings(command, **qmd)))
        return first, models


@pytest.fixture
def doctor(tmp_path):
    return Doctor(tmp_path)


def test_a_working_qmd_has_no_findings(doctor):
    doctor.node("v24.1.0")
    check, models = doctor.look()
    assert (check.verdict, check.detail) == (CheckResult.OK, f"{doctor.fake.path}, version 2.8.3")
    assert [model.verdict for model in models] == [CheckResult.OK]
    # Nothing of the agent's was touched for it.
    assert not (doctor.home.state_dir / "agents").exists()


def test_another_backend_is_none_of_its_business(doctor):
    assert list(check_qmd(doctor.home.settings())) == []


@pytest.mark.parametrize(("fallback", "verdict"), [("builtin", CheckResult.WARNING), ("none", CheckResult.FAILED)])
def test_a_missing_command_is_reported_with_the_install_command(doctor, fallback, verdict):
    doctor.fake.remove()
    check, _ = doctor.look(fallback=fallback)
    assert check.verdict is verdict
    assert "qmd is not on the PATH" in check.detail
    assert INSTALL_QMD in check.detail + check.advice


def test_an_old_node_is_reported_when_qmd_crashes(doctor):
    doctor.node("v20.20.2")
    doctor.fake.faults(status="segfault")
    check, _ = doctor.look()
    assert (check.verdict, "SIGSEGV" in check.detail) == (CheckResult.WARNING, True)
    assert "Node v20.20.2 is on the PATH, but qmd needs 22 or newer" in check.advice


def test_a_node_that_is_too_old_is_no_trouble_for_a_qmd_with_its_own(doctor):
    doctor.node("v20.20.2")
    check, _ = doctor.look()
    assert check.verdict is CheckResult.OK
    assert "includes its own" in check.detail


@pytest.mark.parametrize(
    ("faults", "told"),
    [
        ({"version": "1.0.0"}, "1.0.0 is older than 2.0.0"),
        ({"status": "fail"}, "something broke"),
        ({"version": "x"}, "not a version"),
    ],
)
def test_a_broken_command_is_reported_with_its_output(doctor, faults, told):
    doctor.fake.faults(**faults)
    check, _ = doctor.look()
    assert check.verdict is CheckResult.WARNING
    assert told in check.detail


@pytest.mark.parametrize(("mode", "missing"), [("search", 0), ("vsearch", 2), ("query", 3)])
def test_models_that_would_be_fetched_are_reported(doctor, mode, missing):
    _, models = doctor.look(searchMode=mode)
    assert sum(check.verdict is CheckResult.WARNING for check in models) == missing
    assert all("qmd pull" in check.advice for check in models if check.verdict is CheckResult.WARNING)


@pytest.mark.parametrize("where", ["the user's", "its own"])
def test_models_on_disk_are_found(doctor, tmp_path, where):
    cache = tmp_path / ".cache" if where == "the user's" else doctor.home.state_dir / "agents/main/qmd/xdg-cache"
    folder = cache / "qmd" / "models"
    folder.mkdir(parents=True)
    for name in MODELS:
        (folder / name).write_text("GGUF")
    _, models = doctor.look(searchMode="query")
    assert [check.verdict for check in models] == [CheckResult.OK]


def test_a_model_that_is_named_by_a_path_must_be_there(doctor, tmp_path):
    here = tmp_path / "e.gguf"
    here.write_text("GGUF")
    doctor.home.environ |= {"QMD_EMBED_MODEL": str(here), "QMD_GENERATE_MODEL": "/nowhere/g.gguf"}
    _, (check,) = doctor.look(searchMode="vsearch")
    assert (check.verdict, check.detail) == (CheckResult.FAILED, "the file /nowhere/g.gguf does not exist")


@pytest.mark.skipif(real_qmd() is None, reason="no qmd: `make qmd` installs it")
def test_the_real_one_is_well(doctor):
    doctor.home.environ |= tiny_models() or {}
    check, models = doctor.look(real_qmd(), searchMode="query" if tiny_models() else "search")
    assert (check.verdict, "version 2." in check.detail) == (CheckResult.OK, True)
    assert [model.verdict for model in models] == [CheckResult.OK]
