"""The tools that are Python packages: `python benchmarks/peers/python_tools.py` installs them into .tools/peers.

Each has its own virtual environment with the versions of its file in `locks/`, because their dependencies differ from
those of memoryd. A tool that needs a newer Python than this one gets it from PEERS_PYTHON, from the PATH or from pyenv.
"""

import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import distributions
from pathlib import Path

from peer import PeerUnavailableError

TOOLS = Path(__file__).parents[2] / ".tools" / "peers"
LOCKS = Path(__file__).parent / "locks"
VERSIONS = ("3.12", "3.13", "3.14")
# A file that Python runs when it starts.
REPLACE_SQLITE = 'import sys, pysqlite3; sys.modules["sqlite3"] = pysqlite3; sys.modules["sqlite3.dbapi2"] = pysqlite3'
LOADS_EXTENSIONS = "import sqlite3; print(hasattr(sqlite3.Connection, 'enable_load_extension'))"


@dataclass(frozen=True, slots=True)
class PythonTool:
    """A package with a command of the same name. `loads_extensions` says whether it loads extensions into SQLite."""

    name: str
    oldest_python: tuple[int, int]
    loads_extensions: bool = False

    @property
    def python(self) -> Path:
        return TOOLS / self.name / "bin" / "python"

    @property
    def command(self) -> Path:
        return TOOLS / self.name / "bin" / self.name

    @property
    def version(self) -> str:
        """Return the version of the installed package."""
        return next(iter(distributions(name=self.name, path=[str(self._packages)]))).version

    @property
    def has_other_sqlite(self) -> bool:
        """Return whether `install` replaced a `sqlite3` that cannot load extensions with that of pysqlite3."""
        return self._sqlite.exists()

    def require(self) -> None:
        """Check that the versions of the lock are installed.

        Raises:
            PeerUnavailableError: if they are not.
        """
        if not self.is_installed:
            raise PeerUnavailableError(f"{self.name} is not installed, or in another version: run `make setup-peers`")

    @property
    def is_installed(self) -> bool:
        return self._marker.exists() and self._marker.read_text("utf-8") == self._hash()

    def install(self) -> None:
        """Create the environment again, unless it has the versions of the lock.

        Raises:
            PeerUnavailableError: if no Python is new enough.
            subprocess.CalledProcessError: if pip fails.
        """
        if self.is_installed:
            return
        folder = TOOLS / self.name
        shutil.rmtree(folder, ignore_errors=True)
        subprocess.run([self._find_python(), "-m", "venv", folder], check=True)
        pip = (self.python, "-m", "pip", "--disable-pip-version-check", "--no-input")
        # The lock has all dependencies, so that pip need not resolve them again.
        lock = ("--no-deps", "--require-hashes", "-r", self._lock)
        subprocess.run([*pip, "install", "-q", *lock], check=True)
        if self.loads_extensions and _print(self.python, LOADS_EXTENSIONS) != "True":
            self._sqlite.write_text(REPLACE_SQLITE, "utf-8")
            if _print(self.python, LOADS_EXTENSIONS) != "True":
                raise PeerUnavailableError(
                    f"{self.name} needs a Python whose sqlite3 can load extensions: set PEERS_PYTHON to one"
                )
        self._marker.write_text(self._hash(), "utf-8")

    @property
    def _packages(self) -> Path:
        return next((TOOLS / self.name).glob("lib/python*/site-packages"))

    @property
    def _sqlite(self) -> Path:
        return self._packages / "sqlite_with_extensions.pth"

    @property
    def _lock(self) -> Path:
        return LOCKS / f"{self.name}.lock"

    @property
    def _marker(self) -> Path:
        return TOOLS / self.name / ".ready"

    def _hash(self) -> str:
        return hashlib.sha256(self._lock.read_bytes()).hexdigest()

    def _find_python(self) -> Path:
        for candidate in _pythons():
            if _python_version(candidate) >= self.oldest_python:
                return candidate
        wanted = ".".join(map(str, self.oldest_python))
        raise PeerUnavailableError(
            f"{self.name} needs Python {wanted} or newer, which is neither on the PATH nor installed with pyenv: "
            "install it, or set PEERS_PYTHON to it"
        )


MEMSEARCH = PythonTool("memsearch", (3, 11))
BASIC_MEMORY = PythonTool("basic-memory", (3, 12), loads_extensions=True)


def _pythons() -> Iterator[Path]:
    """Yield the interpreters to try, in this order."""
    if chosen := os.environ.get("PEERS_PYTHON"):
        yield Path(chosen)
        return
    yield Path(sys.executable)
    for version in VERSIONS:
        if found := shutil.which(f"python{version}"):
            yield Path(found)
        pyenv = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv")
        yield from sorted(pyenv.glob(f"versions/{version}.*/bin/python"))


def _python_version(interpreter: Path) -> tuple[int, ...]:
    """Return the version that the interpreter reports, or an empty tuple if it does not run, as some shims of pyenv."""
    return tuple(map(int, _print(interpreter, "import sys; print(*sys.version_info[:2])").split()))


def _print(interpreter: Path, code: str) -> str:
    """Return what the code prints, or nothing if it fails."""
    try:
        return subprocess.run([interpreter, "-c", code], capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return ""


def main() -> None:
    missing = []
    for tool in (MEMSEARCH, BASIC_MEMORY):
        try:
            tool.install()
        except PeerUnavailableError as error:
            missing.append(str(error))
    if missing:
        sys.exit("\n".join(missing))


if __name__ == "__main__":
    main()
