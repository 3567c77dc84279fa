"""The Python client's README: its programs run unchanged."""

import re
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from daemon_process import environment, serving

pytestmark = pytest.mark.clients

PAGE = Path(__file__).parents[2] / "clients" / "python" / "README.md"


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    folder = tmp_path_factory.mktemp("d")
    workspace, state = folder / "w", folder / "s"
    for each in (workspace, state):
        each.mkdir()
    (workspace / "MEMORY.md").write_text("# Releases\n\nWe roll back a release with `tidectl rollback`.\n", "utf-8")
    with serving(workspace, state, home=folder) as daemon:
        yield daemon


@pytest.mark.parametrize("number", [0, 1], ids=["blocking", "asyncio"])
def test_the_first_programs_run_as_they_are_written(served, number):
    program = re.findall(r"```python\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL)[number]
    if "async with" in program:
        program = f"import asyncio\n\nasync def main():\n{textwrap.indent(program, '    ')}\nasyncio.run(main())\n"
    surroundings = environment(served.home) | {"MEMORYD_ADDRESS": served.address}
    done = subprocess.run(
        [sys.executable, "-c", program], env=surroundings, capture_output=True, text=True, timeout=100, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "completed" in done.stdout
    assert "tidectl rollback" in done.stdout
