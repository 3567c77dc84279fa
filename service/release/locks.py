"""The packages that the lock files pin, read without a resolver or a network."""

import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from packaging.markers import Marker

REPOSITORY = Path(__file__).parents[2]
LOCKS = REPOSITORY / "service" / "locks"

GROUPS: Mapping[str, str] = {
    "core": "run.lock",
    "http": "http.lock",
    "lancedb": "lancedb.lock",
    "local": "local.lock",
    "postgres": "postgres.lock",
}
"""What can be installed: memoryd alone, or one of its extras, which its lock file adds to the core."""

PYTHONS = ("3.11", "3.12", "3.13", "3.14")
"""The supported versions of Python."""

SYSTEMS = (("linux", "Linux"), ("darwin", "Darwin"))
"""The supported systems, as `sys_platform` and `platform_system` of a marker."""

MACHINES = ("x86_64", "aarch64", "arm64")
"""The supported processors, by all their names."""

_PIN = re.compile(r"^([A-Za-z0-9._-]+)==([^ ;\\]+)(?: ; ([^\\]+?))?(?: \\)?$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Pin:
    """A package in a lock file. `marker` is its condition, such as `python_full_version < '3.14'`, or empty."""

    name: str
    version: str
    marker: str = ""

    def is_installed(self, python: str, system: tuple[str, str], machine: str) -> bool:
        """Return whether the marker holds for a version of Python, a member of `SYSTEMS` and a processor."""
        if not self.marker:
            return True
        environment = {
            "python_version": python,
            "python_full_version": f"{python}.0",
            "sys_platform": system[0],
            "platform_system": system[1],
            "platform_machine": machine,
            "os_name": "posix",
            "implementation_name": "cpython",
            "platform_python_implementation": "CPython",
        }
        return Marker(self.marker).evaluate(environment)

    @property
    def is_supported(self) -> bool:
        """Whether the marker holds on any supported system, such as not for `sys_platform == 'win32'`."""
        return any(
            self.is_installed(python, system, machine)
            for python in PYTHONS
            for system in SYSTEMS
            for machine in MACHINES
        )


def read_pins(lock: Path) -> Sequence[Pin]:
    """Return the packages of a lock file in its order.

    Raises:
        ValueError: the file pins nothing.
    """
    pins = [Pin(name, version, marker) for name, version, marker in _PIN.findall(lock.read_text("utf-8"))]
    if not pins:
        raise ValueError(f"{lock} pins no package; run `make lock`")
    return pins


def project_version() -> str:
    """Return the version of memoryd in pyproject.toml."""
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text("utf-8"))["project"]
    return str(project["version"])
