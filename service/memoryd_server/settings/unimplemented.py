"""Keys of the reference that memoryd knows of and does not implement: told in a warning, never an error."""

from collections.abc import Iterable, Mapping

from .report import Report
from .tree import Tree
from .words import Path, dotted

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


def drop_unimplemented(tree: Tree, agent_paths: Iterable[Path], report: Report) -> None:
    """Takes every such key out of the tree, with a warning each; `agent_paths` are the places of the agents."""
    _drop(tree, ("agents",), AGENTS, report)
    _drop(tree, ("memory",), MEMORY, report)
    _drop(tree, ("agents", "defaults", "compaction"), COMPACTION, report)
    for around in (("agents", "defaults"), *agent_paths):
        _drop(tree, (*around, "memorySearch"), MEMORY_SEARCH, report)
        _drop_globs(tree, (*around, "memorySearch", "extraPaths"), report)
        _drop_reference(tree, (*around, "memorySearch", "remote", "apiKey"), report)


def _drop(tree: Tree, path: Path, known: Mapping[Path, str], report: Report) -> None:
    for key, what in known.items():
        if tree.at(*path, *key) is not None:
            _warn(tree, (*path, *key), what, report)
            tree.remove((*path, *key))


def _drop_globs(tree: Tree, path: Path, report: Report) -> None:
    listed = tree.at(*path)
    if isinstance(listed, list) and any(isinstance(item, dict) for item in listed):
        _warn(tree, path, "{path, pattern} is a form of a newer version of the reference", report)
        listed[:] = [item for item in listed if not isinstance(item, dict)]


def _drop_reference(tree: Tree, path: Path, report: Report) -> None:
    if isinstance(tree.at(*path), dict):
        _warn(tree, path, "a reference to a secret kept elsewhere", report)
        tree.remove(path)


def _warn(tree: Tree, path: Path, what: str, report: Report) -> None:
    report.warn(tree.origin(path), dotted(path), f"{what}; memoryd does not implement it and ignores it")
