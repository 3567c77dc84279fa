"""Misspelt keys in places where unknown keys are allowed and ignored, such as `agents.defaults.memorysearch`."""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from .checking import Checker
from .words import Path, nearest

# Two letters that changed places in a word of six are closer than this: `memroy`.
CLOSE = 0.8
# OpenClaw's `reserveTokens` is further from `reserveTokensFloor` than this.
_CLOSE_IN_COMPACTION = 0.85


class _Place(NamedTuple):
    """An object and its known keys; ignoring a misspelt one of `harmless` cannot change what is sent to a provider."""

    path: Path
    known: tuple[str, ...]
    harmless: tuple[str, ...] = ()
    close: float = CLOSE


_COMPACTION = ("reserveTokensFloor", "postIndexSync", "memoryFlush")
_PLACES = (
    _Place((), ("memoryd", "memory", "agents", "plugins", "models")),
    _Place(("agents",), ("defaults", "list", "entries")),
    _Place(
        ("agents", "defaults"),
        ("workspace", "memorySearch", "userTimezone", "compaction"),
        harmless=("userTimezone", "compaction"),
    ),
    _Place(("agents", "defaults", "compaction"), _COMPACTION, _COMPACTION, _CLOSE_IN_COMPACTION),
    _Place(("models",), ("providers",)),
    _Place(("plugins",), ("enabled", "slots", "entries", "allow", "deny")),
    _Place(("plugins", "slots"), ("memory",)),
    _Place(("plugins", "entries"), ("memory-core", "memory-lancedb")),
    _Place(("plugins", "entries", "memory-core"), ("enabled", "config")),
    _Place(("plugins", "entries", "memory-lancedb"), ("enabled", "config")),
)
_IN_AGENT = ("workspace", "memorySearch", "default")


def check_spelling(checker: Checker, agent_paths: Iterable[Path]) -> None:
    """Warn of keys that are nearly known ones; `agent_paths` are the places of the agents.

    A key that may have restricted what is sent to a provider disables remote embeddings.
    """
    for place in (*_PLACES, *(_Place(path, _IN_AGENT) for path in agent_paths)):
        for key, meant in misspelt(checker.keys(place.path), place.known, place.close):
            found = ignored(meant)
            if meant in place.harmless:
                checker.warn((*place.path, key), found)
            else:
                checker.block_remote((*place.path, key), found)


def misspelt(keys: Iterable[str], known: Iterable[str], close: float = CLOSE) -> Iterator[tuple[str, str]]:
    """Yield each key that is close to a known one without being one, and the known one."""
    known = tuple(known)
    for key in keys:
        meant = None if key in known else nearest(key, known, close)
        if meant:
            yield key, meant


def ignored(meant: str) -> str:
    """Return what to say of a misspelt key."""
    return f'the key is ignored (did you mean "{meant}"?)'
