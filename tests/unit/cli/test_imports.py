"""What the help pages import: a verb's module imports what its work needs only when the verb runs."""

import json
import subprocess
import sys

import click
import pytest

from memoryd_server.cli.main import main

HEAVY = {"apsw", "google", "grpc", "httpx", "numpy", "pydantic", "rich", "structlog", "yaml"}
SHOW_HELP = """
import json, sys
from memoryd_server.cli.main import main
main([*sys.argv[1:], "--help"], standalone_mode=False)
print(json.dumps(sorted({name.split(".")[0] for name in sys.modules})))
"""


def verbs(group, *path):
    """Every group and verb, as a list of words."""
    yield list(path)
    for name in group.list_commands(click.Context(group)):
        command = group.get_command(click.Context(group), name)
        if isinstance(command, click.Group):
            yield from verbs(command, *path, name)
        else:
            yield [*path, name]


@pytest.mark.parametrize("verb", [pytest.param(verb, id=" ".join(verb) or "memoryd") for verb in verbs(main)])
def test_help_imports_no_heavy_library(verb):
    command = [sys.executable, "-c", SHOW_HELP, *verb]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    assert "--help" in done.stdout
    imported = set(json.loads(done.stdout.splitlines()[-1]))
    assert "click" in imported
    assert not imported & HEAVY
