"""Everything that memoryd refuses or fails at, by what the caller can do about it.

    MemorydError
    ├── InvalidRequest            a field is missing, ill-formed or out of range
    ├── CursorMalformed           the cursor is not ours
    ├── CursorExpired             the cursor's run is forgotten
    ├── TokenMissing              no bearer token where one is asked for
    ├── TokenInvalid              not one of our tokens
    ├── AgentForbidden            the token does not name the agent
    ├── PathNotAllowed            outside the roots, through a link, or not a memory file
    ├── AgentNotFound             no such agent
    ├── FileNotFound              an allowed path without a file
    ├── EntryNotFound             no such entry
    ├── MemoryDisabled            the agent's memory is switched off
    ├── EmbeddingNotConfigured    vector search asked for, no provider
    ├── EmbeddingUnavailable      the provider of embeddings made no usable vector
    │   └── EmbeddingOutage       and cannot embed any other text now either
    ├── EmbeddingQuotaExceeded    its quota is used up
    ├── BackendUnavailable        the configured backend failed, and no other may answer
    ├── WorkspaceReadOnly         the workspace cannot be written
    ├── FileBusy                  another program holds a lock on a file
    ├── FileReplaced              another program replaces a file again and again
    ├── SyncConflict              a FULL sync during a run
    ├── SyncCancelled             the run was cancelled or cut short before its end
    ├── IndexBusy                 the index is held by another process
    ├── IndexTooNew               written by a newer memoryd
    ├── IndexReadOnly             the state directory cannot be written
    ├── IndexUnavailable          cannot be opened, read or written
    │   └── IndexDamaged          found damaged or gone; built anew from the Markdown
    ├── EntriesUnavailable        the entries cannot be opened, read or written
    ├── DiskFull                  no space left
    ├── TooManyRequests           more calls than the limits allow
    ├── ShuttingDown              the daemon is stopping
    ├── RevisionNotReached        `min_revision` was not reached in time
    ├── DeadlineTooShort          the work did not finish in time
    ├── NotImplementedYet         in the contract, not in this version
    └── SettingsError             the settings cannot be used (start-up only)

`reason` is the name of an `ErrorReason` without its prefix. Status codes are given by `rpc.status_mapping` alone.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from memoryd_server.foreign_text import valid_text


@dataclass(frozen=True, slots=True)
class FieldViolation:
    """One thing wrong with one field of a request; `field` is its proto name."""

    field: str
    description: str


class MemorydError(Exception):
    """A refusal or failure with words for a person and `metadata` for a program.

    `retry_after_seconds` is set where trying again helps. Both the words and `metadata` may contain foreign text.
    """

    reason: ClassVar[str] = "INTERNAL"

    def __init__(
        self,
        message: str,
        *,
        metadata: Mapping[str, str] | None = None,
        retry_after_seconds: float | None = None,
    ) -> None:
        self.message = valid_text(message)
        super().__init__(self.message)
        self.metadata = {key: valid_text(value) for key, value in (metadata or {}).items()}
        self.retry_after_seconds = retry_after_seconds


class InvalidRequest(MemorydError):
    """Carries every violation found, never only the first."""

    reason = "INVALID_REQUEST"

    def __init__(self, violations: Sequence[FieldViolation]) -> None:
        super().__init__("; ".join(f"{v.field}: {v.description}" for v in violations))
        self.violations = tuple(violations)


class CursorMalformed(MemorydError):
    """The cursor was not made by memoryd."""

    reason = "CURSOR_MALFORMED"


class CursorExpired(MemorydError):
    """The run that the cursor belongs to is forgotten."""

    reason = "CURSOR_EXPIRED"


class TokenMissing(MemorydError):
    """The call carries no bearer token."""

    reason = "TOKEN_MISSING"


class TokenInvalid(MemorydError):
    """The bearer token is not one of ours."""

    reason = "TOKEN_INVALID"


class AgentForbidden(MemorydError):
    """The token does not name the agent. Says nothing about existence."""

    reason = "AGENT_FORBIDDEN"


class PathNotAllowed(MemorydError):
    """The path leads outside the roots or through a link, or is not a memory file. Says nothing about existence."""

    reason = "PATH_NOT_ALLOWED"

    def __init__(self, path: str, why: str) -> None:
        shown = path if len(path) <= 200 else path[:200] + "…"  # noqa: PLR2004 -- a message, not a protocol
        super().__init__(f"path {shown!r} is not allowed: {why}", metadata={"path": shown})


class AgentNotFound(MemorydError):
    """No agent of that id is configured."""

    reason = "AGENT_NOT_FOUND"


class FileNotFound(MemorydError):
    """The path is allowed, and no file is there."""

    reason = "FILE_NOT_FOUND"


class EntryNotFound(MemorydError):
    """The agent has no entry of that id."""

    reason = "ENTRY_NOT_FOUND"


class MemoryDisabled(MemorydError):
    """Memory is switched off for the agent."""

    reason = "MEMORY_DISABLED"


class EmbeddingNotConfigured(MemorydError):
    """The vector leg was asked for, and there is no provider."""

    reason = "EMBEDDING_NOT_CONFIGURED"


class EmbeddingUnavailable(MemorydError):
    """The embedding provider does not answer, refuses the key or the text, or returns no usable vector.

    `retry_after_seconds` is the time that the provider asked for; None if it named none.
    """

    reason = "EMBEDDING_UNAVAILABLE"


class EmbeddingOutage(EmbeddingUnavailable):
    """The provider limits the rate, fails, cannot be reached or does not answer in time.

    The error concerns every text. Callers pause the provider after it, and after no other `EmbeddingUnavailable`.
    """


class EmbeddingQuotaExceeded(MemorydError):
    """The quota at the provider of embeddings is used up. Trying again soon does not help."""

    reason = "EMBEDDING_QUOTA_EXCEEDED"


class BackendUnavailable(MemorydError):
    """The configured backend failed, and falling back is switched off."""

    reason = "BACKEND_UNAVAILABLE"


class WorkspaceReadOnly(MemorydError):
    """The workspace cannot be written."""

    reason = "WORKSPACE_READ_ONLY"


class FileBusy(MemorydError):
    """Another program holds a lock on the file. Trying again helps as soon as that program is done."""

    reason = "INDEX_BUSY"

    def __init__(self, path: str, why: str) -> None:
        super().__init__(f"{path!r} {why}", metadata={"path": path}, retry_after_seconds=1.0)


class FileReplaced(MemorydError):
    """Another program replaced the file after each write, so it does not hold what was written."""

    reason = "INDEX_BUSY"

    def __init__(self, path: str) -> None:
        super().__init__(
            f"{path!r} is replaced by another program again and again; try again when that program is done",
            metadata={"path": path},
            retry_after_seconds=1.0,
        )


class SyncConflict(MemorydError):
    """A FULL sync was asked for during a run."""

    reason = "SYNC_CONFLICT"


class SyncCancelled(MemorydError):
    """The run was cancelled, or cut short by a stop, before its end; what it had committed stays."""

    reason = "SYNC_CANCELLED"


class IndexBusy(MemorydError):
    """The index is held by another process, or could not be locked in time."""

    reason = "INDEX_BUSY"


class IndexTooNew(MemorydError):
    """The index was written by a newer memoryd."""

    reason = "INDEX_TOO_NEW"


class IndexUnavailable(MemorydError):
    """The index cannot be opened, read or written."""

    reason = "INDEX_UNAVAILABLE"


class IndexDamaged(IndexUnavailable):
    """The index does not hold what was written to it, or its file is gone. It is built anew from the Markdown."""


class IndexReadOnly(MemorydError):
    """The state directory cannot be written, so the index answers as it is and takes up nothing new."""

    reason = "STATE_READ_ONLY"


class EntriesUnavailable(MemorydError):
    """The entries cannot be opened, read or written."""

    reason = "ENTRIES_UNAVAILABLE"


class DiskFull(MemorydError):
    """No space is left on the device."""

    reason = "DISK_FULL"


class TooManyRequests(MemorydError):
    """More calls than the limits allow."""

    reason = "TOO_MANY_REQUESTS"


class ShuttingDown(MemorydError):
    """The daemon is stopping."""

    reason = "SHUTTING_DOWN"


class RevisionNotReached(MemorydError):
    """The index did not reach `min_revision` before the deadline."""

    reason = "REVISION_NOT_REACHED"


class DeadlineTooShort(MemorydError):
    """The work did not finish before the deadline."""

    reason = "DEADLINE_TOO_SHORT"


class NotImplementedYet(MemorydError):
    """The contract has it, this version does not."""

    reason = "NOT_IMPLEMENTED"


class SettingsError(MemorydError):
    """The settings cannot be used. The message names the file, the key and what to write instead."""

    reason = "INVALID_REQUEST"
