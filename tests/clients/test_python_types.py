"""The Python client's types as the user's type checker sees them."""

import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.clients
def test_a_typed_program_is_checked_strictly_and_its_mistakes_are_found(tmp_path):
    program = Path(__file__).parent / "typed_use.py"
    command = [sys.executable, "-m", "mypy", "--strict", "--config-file=", "--cache-dir", tmp_path / "cache", program]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=110, check=False)
    assert done.returncode == 0, done.stdout
