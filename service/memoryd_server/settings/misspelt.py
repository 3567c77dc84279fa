"""Keys that look like ours where unknown keys are allowed: `memorysearch` is ignored there, and nobody would know."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from .report import Report
from .words import dotted, nearest

_TOP = ("memoryd", "memory", "agents", "plugins", "models")
_IN_AGENTS = ("defaults", "list")
_IN_DEFAULTS = ("workspace", "memorySearch", "userTimezone", "compaction")
_IN_AGENT = ("workspace", "memorySearch", "default")
_IN_COMPACTION = ("reserveTokensFloor", "postIndexSync", "memoryFlush")

# The reference's own `reserveTokens` is further from `reserveTokensFloor` than this.
_CLOSE = 0.85


def warn_of_misspelt(layer: Mapping[str, Any], origin: Path, report: Report, *, top: bool) -> None:
    """Warns of keys that are nearly ours. `top` is whether the file's first level is looked at too."""
    agents = _table(layer, "agents")
    places: list[tuple[tuple[str, ...], Mapping[str, Any], tuple[str, ...]]] = [
        ((), layer if top else {}, _TOP),
        (("agents",), agents, _IN_AGENTS),
        (("agents", "defaults"), _table(agents, "defaults"), _IN_DEFAULTS),
        (("agents", "defaults", "compaction"), _table(_table(agents, "defaults"), "compaction"), _IN_COMPACTION),
    ]
    listed = _table(agents, "list")
    places += [(("agents", "list", key), _table(listed, key), _IN_AGENT) for key in listed]
    for path, table, known in places:
        for key in table:
            meant = None if key in known else nearest(key, known, _CLOSE)
            if meant:
                report.warn(origin, dotted((*path, key)), f'the key is ignored (did you mean "{meant}"?)')


def _table(around: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    found = around.get(key)
    return found if isinstance(found, Mapping) else {}
