"""The completion scripts, in the shells that are installed."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from memoryd_server.cli.main import main

BASH = """
eval "$(memoryd completion bash)"
complete -p memoryd
COMP_WORDS=(memoryd ser); COMP_CWORD=1; COMPREPLY=(); _memoryd_completion memoryd; echo "${COMPREPLY[@]}"
COMP_WORDS=(memoryd service inst); COMP_CWORD=2; COMPREPLY=(); _memoryd_completion memoryd; echo "${COMPREPLY[@]}"
COMP_WORDS=(memoryd search --exp); COMP_CWORD=2; COMPREPLY=(); _memoryd_completion memoryd; echo "${COMPREPLY[@]}"
COMP_WORDS=(memoryd rec); COMP_CWORD=1; COMPREPLY=(); _memoryd_completion memoryd; echo "${COMPREPLY[@]}"
COMP_WORDS=(memoryd recall --source e); COMP_CWORD=3; COMPREPLY=(); _memoryd_completion memoryd; echo "${COMPREPLY[@]}"
COMP_WORDS=(memoryd init --embedding o); COMP_CWORD=3; COMPREPLY=(); _memoryd_completion memoryd; echo "${COMPREPLY[@]}"
COMP_WORDS=(memoryd token new --scope a); COMP_CWORD=4; COMPREPLY=(); _memoryd_completion memoryd
echo "${COMPREPLY[@]}"
"""


def test_bash_completes_verbs_options_and_values(tmp_path):
    if shutil.which("bash") is None:
        pytest.skip("bash is missing")
    env = {**os.environ, "PATH": f"{Path(sys.prefix) / 'bin'}:{os.environ['PATH']}", "HOME": str(tmp_path)}
    done = subprocess.run(["bash", "-c", BASH], env=env, capture_output=True, text=True, timeout=60, check=True)
    registered, *completed = done.stdout.splitlines()
    assert "_memoryd_completion memoryd" in registered
    assert completed == ["serve service", "install", "--explain", "recall", "entries", "ollama openai", "append admin"]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_each_shell_accepts_its_script(shell, tmp_path):
    done = CliRunner().invoke(main, ["completion", shell])
    assert done.exit_code == 0
    assert "_MEMORYD_COMPLETE" in done.output
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is missing, so its script is not parsed")
    script = tmp_path / "script"
    script.write_text(done.output, "utf-8")
    subprocess.run([shell, "-n", script], check=True, capture_output=True)


def test_an_unknown_shell_is_a_usage_error():
    done = CliRunner().invoke(main, ["completion", "tcsh"])
    assert done.exit_code == 2
    assert "'bash', 'zsh', 'fish'" in done.output
