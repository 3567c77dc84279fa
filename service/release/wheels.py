"""Which wheels the package index has of the locked packages, and on which systems they can be installed.

uv asks the index: a project that requires exactly the locked versions is locked, and its lock file lists the wheels. So
this module knows no address, and uses the index that uv is configured with.
"""

import subprocess
import tempfile
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import chain
from pathlib import Path

from packaging.tags import Tag, compatible_tags, cpython_tags, mac_platforms
from packaging.utils import parse_wheel_filename

from release.locks import Pin

PackageKey = tuple[str, str]
"""The name and the version of a package."""

GLIBC = tuple(f"2.{minor}" for minor in range(5, 43))
MUSL = tuple(f"1.{minor}" for minor in range(1, 3))
MACOS = (*(f"10.{minor}" for minor in range(9, 16)), *(f"{major}.0" for major in range(11, 27)))

# Older names of versions of manylinux.
_MANYLINUX = {"2.5": "manylinux1", "2.12": "manylinux2010", "2.17": "manylinux2014"}


@dataclass(frozen=True, slots=True)
class Platform:
    """A system on a processor. `library` is what its wheels need in a minimum version: glibc, musl or macOS."""

    name: str
    library: str
    machine: str

    @property
    def system(self) -> tuple[str, str]:
        """The system as `sys_platform` and `platform_system` of a marker."""
        return ("darwin", "Darwin") if self.library == "macOS" else ("linux", "Linux")

    @property
    def versions(self) -> Sequence[str]:
        """The versions of the library that are tried, the oldest first."""
        if self.library == "macOS":
            # The first macOS for arm64 is 11.
            return [version for version in MACOS if self.machine != "arm64" or not version.startswith("10.")]
        return GLIBC if self.library == "glibc" else MUSL

    def tags(self, version: str) -> Sequence[str]:
        """Return the platform tags of wheels that a system with this version of the library accepts."""
        if self.library == "macOS":
            major, minor = map(int, version.split("."))
            return list(mac_platforms((major, minor), self.machine))
        known = self.versions[: self.versions.index(version) + 1]
        prefix = "musllinux" if self.library == "musl" else "manylinux"
        names = [f"{prefix}_{each.replace('.', '_')}" for each in known]
        names += [_MANYLINUX[each] for each in known if self.library == "glibc" and each in _MANYLINUX]
        return [f"{name}_{self.machine}" for name in names]


PLATFORMS = (
    Platform("Linux x86-64, glibc", "glibc", "x86_64"),
    Platform("Linux arm64, glibc", "glibc", "aarch64"),
    Platform("Linux x86-64, musl", "musl", "x86_64"),
    Platform("Linux arm64, musl", "musl", "aarch64"),
    Platform("macOS arm64", "macOS", "arm64"),
    Platform("macOS x86-64", "macOS", "x86_64"),
)


@dataclass(frozen=True, slots=True)
class Index:
    """What the package index has: the tags of all wheels of each package, and the packages with a source archive."""

    tags: Mapping[PackageKey, frozenset[Tag]]
    sources: frozenset[PackageKey]


@dataclass(frozen=True, slots=True)
class Support:
    """Whether packages can be installed on a platform.

    `to_build` are those without a wheel for it, `unavailable` those without a source archive either. `minimum` is the
    version of the platform's library that the wheels need.
    """

    to_build: Sequence[str]
    unavailable: Sequence[str]
    minimum: str


def ask_index(pins: Iterable[Pin], uv: str) -> Index:
    """Return what the package index has of each package. Take up to a minute without uv's cache.

    Raises:
        subprocess.CalledProcessError: uv failed; it has printed why.
    """
    wanted = sorted({(pin.name, pin.version, pin.marker) for pin in pins})
    requirements = [f"{name}=={version}" + (f" ; {marker}" if marker else "") for name, version, marker in wanted]
    lines = ["[project]", 'name = "wheels"', 'version = "0"', 'requires-python = ">=3.11,<3.15"']
    lines += ["dependencies = [", *(f'    "{requirement}",' for requirement in requirements), "]"]
    # So uv neither reads the dependencies of a package nor builds one to know them.
    for name, version in sorted({(name, version) for name, version, _ in wanted}):
        lines += ["[[tool.uv.dependency-metadata]]", f'name = "{name}"', f'version = "{version}"', "requires-dist = []"]
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "pyproject.toml").write_text("\n".join(lines), "utf-8")
        subprocess.run([uv, "lock", "--quiet", "--project", folder], check=True)  # noqa: S603 -- fixed
        lock = tomllib.loads(Path(folder, "uv.lock").read_text("utf-8"))
    packages = {(each["name"], each["version"]): each for each in lock["package"] if each["name"] != "wheels"}
    return Index(
        {
            key: frozenset(chain.from_iterable(map(_tags, package.get("wheels", ()))))
            for key, package in packages.items()
        },
        frozenset(key for key, package in packages.items() if "sdist" in package),
    )


def _tags(wheel: Mapping[str, str]) -> frozenset[Tag]:
    return parse_wheel_filename(wheel["url"].rpartition("/")[2])[3]


def support(pins: Iterable[Pin], index: Index, platform: Platform, python: str) -> Support:
    """Return how the packages can be installed on the platform with a version of Python, such as "3.11"."""
    to_build, unavailable, minimum = [], [], 0
    for pin in pins:
        if not pin.is_installed(python, platform.system, platform.machine):
            continue
        key = (pin.name, pin.version)
        oldest = _oldest(index.tags[key], platform, python)
        if oldest is not None:
            minimum = max(minimum, oldest)
        elif key in index.sources:
            to_build.append(pin.name)
        else:
            unavailable.append(pin.name)
    return Support(to_build, unavailable, platform.versions[minimum])


def _oldest(tags: frozenset[Tag], platform: Platform, python: str) -> int | None:
    """Return the index of the oldest version of the platform's library for which there is a wheel."""
    return next(
        (
            number
            for number, version in enumerate(platform.versions)
            if not tags.isdisjoint(accepted_tags(platform, version, python))
        ),
        None,
    )


@cache
def accepted_tags(platform: Platform, version: str, python: str) -> frozenset[Tag]:
    """Return the tags of wheels that CPython installs on the platform with this version of its library."""
    number = tuple(map(int, python.split(".")))
    interpreter = f"cp{python.replace('.', '')}"
    platforms = platform.tags(version)
    own = cpython_tags(number, abis=[interpreter], platforms=platforms)
    return frozenset(chain(own, compatible_tags(number, interpreter, platforms)))
