"""The scope that each method requires. docs/operations.md shows the same table."""

from collections.abc import Mapping, Sequence

from memoryd_server.access import Scope

_READ_METHODS = (
    "memoryd.v1.MemoryService/MemorySearch",
    "memoryd.v1.MemoryService/ExplainMiss",
    "memoryd.v1.MemoryService/MemoryRecall",
    "memoryd.v1.MemoryService/MemoryGet",
    "memoryd.v1.MemoryService/MemoryHistory",
    "memoryd.v1.MemoryService/Status",
    "memoryd.v1.MemoryService/WatchIndex",
    "memoryd.v1.MemoryService/FlushDecision",
    "memoryd.v1.MemoryService/SessionContext",
    "memoryd.v1.MemoryService/ListAgents",
    "memoryd.v1.MemoryService/ListFiles",
    "memoryd.v1.EntryService/Recall",
    "memoryd.v1.EntryService/ListEntries",
    "memoryd.v1.EntryService/SuggestCapture",
    "memoryd.v1.EntryService/RecallBlock",
    # The calls that a session makes require scopes of their own.
    "memoryd.v1.McpService/Session",
    "grpc.health.v1.Health/Check",
    "grpc.health.v1.Health/List",
    "grpc.health.v1.Health/Watch",
    "grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo",
)
_APPEND_METHODS = (
    "memoryd.v1.MemoryService/MemoryAppend",
    "memoryd.v1.MemoryService/SessionArchive",
    "memoryd.v1.MemoryService/SessionAppend",
    "memoryd.v1.MemoryService/Sync",
    "memoryd.v1.EntryService/Remember",
)
_EDIT_METHODS = (
    "memoryd.v1.MemoryService/MemoryWrite",
    "memoryd.v1.MemoryService/MemoryMove",
    "memoryd.v1.MemoryService/MemoryRestore",
)
_ADMIN_METHODS = (
    "memoryd.v1.MemoryService/MemoryForget",
    "memoryd.v1.EntryService/Forget",
)

METHODS_BY_SCOPE: Mapping[Scope, Sequence[str]] = {
    Scope.READ: _READ_METHODS,
    Scope.APPEND: _APPEND_METHODS,
    Scope.EDIT: _EDIT_METHODS,
    Scope.ADMIN: _ADMIN_METHODS,
}


class _MethodScopes(dict[str, Scope]):
    def __missing__(self, method: str) -> Scope:
        return Scope.ADMIN


METHOD_SCOPES: Mapping[str, Scope] = _MethodScopes(
    {f"/{method}": scope for scope, names in METHODS_BY_SCOPE.items() for method in names}
)
"""The scope that `/package.Service/Method` requires: ADMIN for a method that the table does not have."""
