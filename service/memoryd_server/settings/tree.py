"""Several files, variables and flags as one tree in which every key remembers where it came from."""

from collections.abc import Mapping
from typing import Any

from .words import Path

DEFAULT = "default"

# Of two layers the later one's replaces the earlier's as a whole: half a scope or half a set of headers means nothing.
_WHOLE = frozenset({"scope", "headers"})


class Tree:
    """The settings as written, later layers over earlier ones. Objects are merged key by key, arrays are replaced.

    `replaced` has the path, the origin and the value of what was no object and has an object of a later layer over it.
    """

    def __init__(self) -> None:
        self.values: dict[str, Any] = {}
        self.replaced: list[tuple[Path, str, object]] = []
        self._origins: dict[Path, str] = {}

    def overlay(self, layer: Mapping[str, Any], origin: str) -> None:
        """Puts a layer over what is there; a null takes the key away, as if nobody had written it."""
        self._merge(self.values, layer, (), origin)

    def at(self, *path: str) -> Any:
        """The value at a path, or None when there is none."""
        value: Any = self.values
        for key in path:
            value = value.get(key) if isinstance(value, dict) else None
        return value

    def written(self, path: Path) -> str | None:
        """Who wrote exactly this key, or the array or object that holds it as a whole; None when nobody did."""
        return self._origins.get(path)

    def origin(self, path: Path) -> str:
        """Who wrote the key, or the nearest thing around it."""
        return next((self._origins[path[:n]] for n in range(len(path), 0, -1) if path[:n] in self._origins), DEFAULT)

    def remove(self, path: Path) -> None:
        """Takes a key away, as if nobody had written it."""
        around = self.at(*path[:-1])
        if isinstance(around, dict):
            around.pop(path[-1], None)
        self._forget(path)

    def _merge(self, into: dict[str, Any], layer: Mapping[str, Any], path: Path, origin: str) -> None:
        for key, value in layer.items():
            here = (*path, key)
            old = into.get(key)
            keep = isinstance(old, dict) and isinstance(value, Mapping) and key not in _WHOLE
            if key in into and isinstance(value, Mapping) and not isinstance(old, dict):
                self.replaced.append((here, self._origins[here], old))
            if not keep and key in into:
                self._forget(here)
                del into[key]
            if value is None:
                continue
            self._origins[here] = origin
            if isinstance(value, Mapping):
                self._merge(into.setdefault(key, {}), value, here, origin)
            else:
                into[key] = value

    def _forget(self, path: Path) -> None:
        for known in [p for p in self._origins if p[: len(path)] == path]:
            del self._origins[known]


def merged(low: Mapping[str, Any], high: Mapping[str, Any]) -> dict[str, Any]:
    """`high` over `low`, as `Tree.overlay` does it; neither is changed."""
    tree = Tree()
    tree.overlay(low, "low")
    tree.overlay(high, "high")
    return tree.values
