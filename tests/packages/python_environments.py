"""Environments outside the checkout, with the packages that `make dist` built, and the tools that install them."""

import json
import os
import shutil
import subprocess
import sys
import tomllib
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

import daemon_process
from clients.python_venvs import run
from clients.runner import REPOSITORY

DIST = REPOSITORY / "dist"
TOOLS = REPOSITORY / ".tools" / "packaging" / "bin"
LLAMA_WHEELS = REPOSITORY / ".tools" / "wheels"
# Packages are downloaded and compiled on a machine that other tests use as well.
INSTALL_SECONDS = 300
# Variables that select another environment, or modules that are not installed in it.
FOREIGN = ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV")

NOTES = {
    "MEMORY.md": "# Facts\n\nThe heron nests by the weir.\n",
    "memory/2026-01-12.md": "We rolled back release 2.4.1 because of the cache.\n",
}
QUERY = "where does the heron nest?"
CLIENT_PROGRAM = """
import sys
from memoryd.client import connect

with connect(sys.argv[1], timeout=60) as client:
    print(client.search(query=sys.argv[2]).results[0].path)
"""


def project(folder):
    """Return the table `project` of a package's pyproject.toml."""
    return tomllib.loads((REPOSITORY / folder / "pyproject.toml").read_text("utf-8"))["project"]


def archive(name, suffix):
    """Return the file of a package in dist: `name` is memoryd or memoryd_client, `suffix` is .whl or .tar.gz."""
    found = sorted(DIST.glob(f"{name}-[0-9]*{suffix}"))
    assert len(found) == 1, f"{DIST} contains {len(found)} files {name}-*{suffix} instead of 1; run `make dist`"
    return found[0]


def wheels():
    """Return the wheels of the daemon and of the client, in that order."""
    return archive("memoryd", ".whl"), archive("memoryd_client", ".whl")


def tool(name):
    """Return the path of uv, pipx or twine. Skip the test if they are not installed; CI has them, so there it fails."""
    path = TOOLS / name
    if not path.exists():
        reason = f"{name} is missing: `make packages` installs it"
        pytest.fail(f"CI must not skip this test: {reason}") if os.environ.get("CI") == "true" else pytest.skip(reason)
    return path


def interpreter(version):
    """Return an interpreter of this version of Python. Skip the test if there is none with the module venv."""
    pyenv = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv")
    for path in [shutil.which(f"python{version}"), *sorted(pyenv.glob(f"versions/{version}.*/bin/python"))]:
        # A shim of pyenv fails if its version is not selected.
        if path and subprocess.run([path, "-c", "import ensurepip"], capture_output=True, check=False).returncode == 0:
            return path
    pytest.skip(f"Python {version} is not installed")


@cache
def _caches():
    """Return the variables with the caches of pip and uv of the user who runs the tests.

    The cache of uv can contain earlier builds of memoryd with the same version and name. They are removed, because uv
    would install them.
    """
    pip, uv = (sys.executable, "-m", "pip"), tool("uv")
    run(uv, "cache", "clean", "-q", "memoryd", "memoryd-client")
    return {"PIP_CACHE_DIR": run(*pip, "cache", "dir").strip(), "UV_CACHE_DIR": run(uv, "cache", "dir").strip()}


def environment(home):
    """Return the environment variables of a user with an empty home. pip and uv keep their configuration and cache."""
    kept = {name: value for name, value in daemon_process.environment(home).items() if name not in FOREIGN}
    folders = {
        "UV_TOOL_DIR": home / "uv" / "tools",
        "UV_TOOL_BIN_DIR": home / "uv" / "bin",
        "PIPX_HOME": home / "pipx",
        "PIPX_BIN_DIR": home / "pipx" / "bin",
    }
    return kept | _caches() | {name: str(path) for name, path in folders.items()} | {"UV_NO_PROGRESS": "1"}


@dataclass(frozen=True)
class Installed:
    """The command `memoryd`, and a folder outside the checkout with a workspace, a state directory and a home."""

    memoryd: Path
    folder: Path

    @property
    def python(self):
        """Return the interpreter of the environment."""
        return self.memoryd.with_name("python")

    @property
    def workspace(self):
        """Return the workspace, in which every test finds the same notes."""
        return self.folder / "notes"

    def run(self, *arguments, program=None, **options):
        """Run the command, or another program of the environment, to its end, and return its output."""
        env = environment(self.folder / "home")
        return run(program or self.memoryd, *arguments, cwd=self.folder, env=env, **options)

    def configure(self, name, settings):
        """Create a state directory with these settings, and return it."""
        state = self.folder / name
        state.mkdir()
        (state / "memoryd.json5").write_text(json.dumps(settings), "utf-8")
        return state

    def search(self, query=QUERY, state=None):
        """Search the notes without a daemon, and return the response."""
        folders = ("--workspace", self.workspace, "--state-dir", state or self.folder / "state")
        return json.loads(self.run("search", "--json", *folders, query, timeout=INSTALL_SECONDS))

    @contextmanager
    def serving(self, name, settings):
        """Run a daemon with these settings, at a Unix socket in a new state directory, until the block ends."""
        state = self.configure(name, settings)
        served = daemon_process.start(self.workspace, state, home=self.folder / "home", memoryd=(self.memoryd,))
        try:
            yield served
        finally:
            daemon_process.end(served.process)


def prepare(folder, memoryd=None):
    """Write the notes, and return the command that an installer will create: by default that of folder/env."""
    for name, text in NOTES.items():
        note = folder / "notes" / name
        note.parent.mkdir(parents=True, exist_ok=True)
        note.write_text(text, "utf-8")
    (folder / "home").mkdir()
    (folder / "state").mkdir()
    return Installed(memoryd or folder / "env" / "bin" / "memoryd", folder)


def install_with_pip(folder):
    """Install the wheels as the documentation describes it: with the module venv and the pip that it contains."""
    installed = prepare(folder)
    installed.run("-m", "venv", folder / "env", program=sys.executable)
    # Python compiles the modules that a test imports. Without this option, pip compiles all, which doubles its time.
    options = ("-q", "--no-compile")
    installed.run("-m", "pip", "install", *options, *wheels(), program=installed.python, timeout=INSTALL_SECONDS)
    return installed


def install_with_uv(folder, *arguments, python=sys.executable, find_links=()):
    """Install with uv, which takes seconds if its cache contains the dependencies.

    `arguments` are requirements and options of `uv pip install`.
    """
    installed, uv = prepare(folder), tool("uv")
    installed.run("venv", "-q", "--no-config", "--python", python, folder / "env", program=uv)
    links = [option for place in (DIST, *find_links) for option in ("--find-links", place)]
    command = ("pip", "install", "-q", "--python", installed.python, *links, *arguments)
    installed.run(*command, program=uv, timeout=INSTALL_SECONDS)
    return installed
