"""Keys of OpenClaw that memoryd knows of and does not implement. Each is dropped with a warning, never an error.

Those that may restrict what is sent to a provider disable remote embeddings while they are set.
"""

from collections.abc import Iterable, Mapping

from .checking import Checker
from .words import Path

_NEWER = "a key of a newer version of the reference"
_OURS = "a key of the reference"

MEMORY_SEARCH: Mapping[Path, str] = {
    ("multimodal",): _OURS,
    ("inputType",): _NEWER,
    ("queryInputType",): _NEWER,
    ("documentInputType",): _NEWER,
    ("local", "contextSize"): _NEWER,
    ("store", "fts"): _NEWER,
    ("sync", "embeddingBatchTimeoutSeconds"): _NEWER,
    ("qmd",): _NEWER,
}
MEMORY: Mapping[Path, str] = {
    ("search",): _NEWER,
    ("qmd", "mcporter"): _OURS,
    ("qmd", "searchTool"): _NEWER,
    ("qmd", "rerank"): _NEWER,
    ("qmd", "update", "startup"): _NEWER,
    ("qmd", "update", "startupDelayMs"): _NEWER,
}
COMPACTION: Mapping[Path, str] = {("memoryFlush", "model"): _NEWER}
AGENTS: Mapping[Path, str] = {
    ("entries",): _NEWER,
    ("defaults", "contextLimits", "memoryGetDefaultLines"): _NEWER,
    ("defaults", "contextLimits", "memoryGetMaxChars"): _NEWER,
}
BLOCKING: frozenset[Path] = frozenset({("memory", "search"), ("agents", "entries")})
"""Those that hold a provider, a fallback or `enabled` in the layout of a newer version."""


def drop_unimplemented(checker: Checker, agent_paths: Iterable[Path]) -> None:
    """Take every such key out of the tree, with a warning each; `agent_paths` are the places of the agents."""
    _drop(checker, ("agents",), AGENTS)
    _drop(checker, ("memory",), MEMORY)
    _drop(checker, ("agents", "defaults", "compaction"), COMPACTION)
    for around in (("agents", "defaults"), *agent_paths):
        _drop(checker, (*around, "memorySearch"), MEMORY_SEARCH)
        _drop_globs(checker, (*around, "memorySearch", "extraPaths"))
        _drop_reference(checker, (*around, "memorySearch", "remote", "apiKey"))


def _drop(checker: Checker, around: Path, known: Mapping[Path, str]) -> None:
    for key, what in known.items():
        path = (*around, *key)
        if checker.tree.at(*path) is None:
            continue
        if path in BLOCKING:
            checker.block_remote(path, f"{what}; memoryd does not read it")
        else:
            _warn(checker, path, what)
        checker.tree.remove(path)


def _drop_globs(checker: Checker, path: Path) -> None:
    listed = checker.tree.at(*path)
    if isinstance(listed, list) and any(isinstance(item, dict) for item in listed):
        _warn(checker, path, "{path, pattern} is a form of a newer version of the reference")
        listed[:] = [item for item in listed if not isinstance(item, dict)]


def _drop_reference(checker: Checker, path: Path) -> None:
    if isinstance(checker.tree.at(*path), dict):
        # Without it, another key would be used in its place.
        checker.block_remote(path, "a reference to a secret kept elsewhere; memoryd does not read it")
        checker.tree.remove(path)


def _warn(checker: Checker, path: Path, what: str) -> None:
    checker.warn(path, f"{what}; memoryd does not implement it and ignores it")
