"""Which licenses a dependency may have, and what the license of a package is. The rules are in licenses.toml."""

import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import Distribution
from pathlib import Path

from packaging.licenses import InvalidLicenseExpression, canonicalize_license_expression

RULES = Path(__file__).with_name("licenses.toml")

# Texts of the field `License` and classifiers that name one license. "BSD License" does not: there are several.
_KNOWN_TEXTS: Mapping[str, str] = {
    "3-Clause BSD License": "BSD-3-Clause",
    "Apache 2": "Apache-2.0",
    "Apache 2.0": "Apache-2.0",
    "Apache License, Version 2.0": "Apache-2.0",
    "Apache Software License": "Apache-2.0",
    "MIT License": "MIT",
}
_LONGEST_TEXT = 100
_TOKEN = re.compile(r"[()]|[^\s()]+")


@dataclass(frozen=True, slots=True)
class Row:
    """A package of the list. `license` is an SPDX expression."""

    name: str
    version: str
    license: str
    condition: str = ""


def stated_license(distribution: Distribution) -> str:
    """Return what the metadata of an installed package says: an expression, else a text, else classifiers; else ""."""
    metadata = distribution.metadata
    for field in ("License-Expression", "License"):
        text = " ".join(metadata.get_all(field) or []).strip()
        # Some packages put the whole text of their license into the field.
        if text and len(text) <= _LONGEST_TEXT:
            return text
    classifiers = (line.split(" :: ") for line in metadata.get_all("Classifier") or [])
    return ", ".join(parts[-1] for parts in classifiers if parts[0] == "License")


class Policy:
    """The content of licenses.toml: permissive licenses, licenses of packages, and exceptions."""

    def __init__(self, text: str) -> None:
        rules = tomllib.loads(text)
        self._permissive = frozenset(rules["permissive"])
        self._licenses: Mapping[str, Mapping[str, str]] = rules["licenses"]
        self._exceptions: Mapping[str, Mapping[str, str]] = rules["exceptions"]

    def license_of(self, name: str, stated: str) -> str:
        """Return the license of a package as an SPDX expression. `stated` is the text in its metadata.

        Raises:
            ValueError: the text is missing, is no SPDX expression, or is not the one that licenses.toml explains.
        """
        entry = self._licenses.get(name)
        if entry is not None:
            if entry["metadata"] != stated:
                raise ValueError(
                    f"{name}: the metadata says {stated!r}, but licenses.toml explains {entry['metadata']!r}; "
                    f"read the license of the new version and correct [licenses.{name}]"
                )
            return entry["license"]
        if not stated:
            raise ValueError(f"{name}: no license in its metadata; add [licenses.{name}] with its source")
        try:
            return canonicalize_license_expression(_KNOWN_TEXTS.get(stated, stated).replace(" / ", " OR "))
        except InvalidLicenseExpression as error:
            raise ValueError(
                f"{name}: the metadata says {stated!r}, which is no SPDX expression; "
                f"add [licenses.{name}] with its source"
            ) from error

    def violation(self, row: Row) -> str:
        """Return why the package may not be used, or ""."""
        exception = self._exceptions.get(row.name)
        if exception is not None and exception["license"] == row.license:
            return ""
        if _holds(_TOKEN.findall(row.license), self._permissive):
            return ""
        return (
            f"{row.name} {row.version}: {row.license!r} is not permissive; use another package, or add "
            f"[exceptions.{row.name}] to licenses.toml with the reason why it may be used"
        )

    def unused(self, rows: Sequence[Row]) -> Sequence[str]:
        """Return a line for each entry of licenses.toml without a package."""
        names = {row.name for row in rows}
        entries = [("licenses", name) for name in self._licenses] + [("exceptions", name) for name in self._exceptions]
        return [
            f"licenses.toml: no lock file pins {name}; remove [{table}.{name}]"
            for table, name in entries
            if name not in names
        ]


def _holds(tokens: Sequence[str], permissive: frozenset[str]) -> bool:
    """Return whether the recipient can fulfil an SPDX expression with permissive licenses alone.

    AND binds more tightly than OR. A license WITH an exception is only permissive if the license is.
    """
    left = list(tokens)

    def alternatives() -> bool:
        value = conjunction()
        while left and left[0] == "OR":
            left.pop(0)
            value = conjunction() or value
        return value

    def conjunction() -> bool:
        value = operand()
        while left and left[0] == "AND":
            left.pop(0)
            value = operand() and value
        return value

    def operand() -> bool:
        token = left.pop(0)
        if token == "(":  # noqa: S105 -- a parenthesis, not a password
            value = alternatives()
            left.pop(0)
            return value
        if left and left[0] == "WITH":
            del left[:2]
        return token in permissive

    return alternatives()
