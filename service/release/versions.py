"""The version of a release in all files that state it.

`python -m release.versions` checks that they agree. With `--tag v1.2.3`, it also checks that they agree with the tag,
and that CHANGELOG.md has a section for the version with a date. `--set 1.2.3` replaces the version. The Go module has
no version in a file: its tag is `clients/go/v1.2.3`.
"""

import re
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

REPOSITORY = Path(__file__).parents[2]

_JSON = r'"version": "([^"]+)"'
_MAVEN = r"<artifactId>memoryd-client</artifactId>\s*<version>([^<]+)</version>"

PLACES: Sequence[tuple[str, str]] = (
    ("pyproject.toml", r'^version = "([^"]+)"'),
    ("pyproject.toml", r'^    "memoryd-client==([^"]+)"'),
    ("service/memoryd_server/__init__.py", r'^__version__ = "([^"]+)"'),
    ("clients/python/pyproject.toml", r'^version = "([^"]+)"'),
    ("clients/typescript/package.json", rf"^  {_JSON}"),
    ("clients/typescript/package-lock.json", rf"^  {_JSON}"),
    ("clients/typescript/package-lock.json", rf'^      "name": "@memoryd/client",\n      {_JSON}'),
    ("clients/openclaw/package.json", rf"^  {_JSON}"),
    ("clients/openclaw/package-lock.json", rf"^  {_JSON}"),
    ("clients/openclaw/package-lock.json", rf'^      "name": "@memoryd/openclaw",\n      {_JSON}'),
    ("clients/openclaw/package-lock.json", rf'^      "name": "@memoryd/client",\n      {_JSON}'),
    ("clients/openclaw/openclaw.plugin.json", rf"^  {_JSON}"),
    ("clients/openclaw/README.md", r"memoryd-openclaw-([^ ]+)\.tgz"),
    ("clients/rust/Cargo.toml", r'^version = "([^"]+)"'),
    ("clients/rust/runner/Cargo.toml", r'^version = "([^"]+)"'),
    ("clients/rust/crates.lock", r'^name = "memoryd-client"\nversion = "([^"]+)"'),
    ("clients/rust/crates.lock", r'^name = "memoryd-runner"\nversion = "([^"]+)"'),
    ("clients/java/pom.xml", _MAVEN),
    ("clients/java/README.md", _MAVEN),
    ("README.md", r"memoryd-openclaw-([^ ]+)\.tgz"),
)
"""Files relative to the repository, each with a pattern whose group is the version. It matches exactly once."""

# A version that every registry accepts in the same spelling.
_VERSION = re.compile(r"\d+\.\d+\.\d+")


def found_versions(repository: Path) -> Iterable[tuple[str, str]]:
    """Yield each place that states the version, as its file, and the version there.

    Raises:
        ValueError: a pattern does not match exactly once.
    """
    for path, pattern in PLACES:
        matches = re.findall(pattern, (repository / path).read_text("utf-8"), re.MULTILINE)
        if len(matches) != 1:
            raise ValueError(
                f"{path}: {pattern!r} matches {len(matches)} times; correct release/versions.py or the file"
            )
        yield path, matches[0]


def problems(repository: Path, tag: str | None) -> Iterable[str]:
    """Yield a line for each file whose version differs from the one of the tag, or else of pyproject.toml."""
    found = list(found_versions(repository))
    wanted = found[0][1] if tag is None else tag.removeprefix("v")
    if tag is not None and not _VERSION.fullmatch(wanted):
        yield f"the tag {tag} is not v followed by MAJOR.MINOR.PATCH"
    yield from (f"{path}: the version is {version}, not {wanted}" for path, version in found if version != wanted)
    changes = (repository / "CHANGELOG.md").read_text("utf-8")
    if tag is not None and not re.search(rf"^## \[{re.escape(wanted)}\] - \d{{4}}-\d\d-\d\d$", changes, re.MULTILINE):
        yield f"CHANGELOG.md: no section `## [{wanted}] - YYYY-MM-DD`; write the date of the release"


def replace_version(repository: Path, version: str) -> None:
    """Write the version into every file.

    Raises:
        ValueError: it is not MAJOR.MINOR.PATCH, or a pattern does not match exactly once.
    """
    if not _VERSION.fullmatch(version):
        raise ValueError(f"{version!r} is not a version; write MAJOR.MINOR.PATCH, for example 1.2.3")
    list(found_versions(repository))
    for path, pattern in PLACES:
        text = (repository / path).read_text("utf-8")
        match = re.search(pattern, text, re.MULTILINE)
        assert match is not None  # noqa: S101 -- `found_versions` raises
        (repository / path).write_text(text[: match.start(1)] + version + text[match.end(1) :], "utf-8")


def main(arguments: Sequence[str]) -> int:
    """Check or replace the version; print the problems and return the exit status."""
    try:
        match list(arguments):
            case []:
                found = list(problems(REPOSITORY, None))
            case ["--tag", tag]:
                found = list(problems(REPOSITORY, tag))
            case ["--set", version]:
                replace_version(REPOSITORY, version)
                found = []
            case _:
                found = ["usage: python -m release.versions [--tag vVERSION | --set VERSION]"]
    except ValueError as error:
        found = [str(error)]
    for problem in found:
        print(problem, file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
