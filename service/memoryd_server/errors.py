"""Exceptions of memoryd, one class per way in which a caller can react.

    MemorydError
    ├── InvalidRequest            a field is missing, ill-formed or out of range
    ├── CursorMalformed           the cursor was not issued by memoryd
    ├── CursorExpired             the run of the cursor is no longer stored
    ├── TokenMissing              a bearer token is required
    ├── TokenInvalid              the bearer token is unknown
    ├── AgentForbidden            the token does not grant access to the agent
    ├── ScopeMissing              the token does not have the scope that the method requires
    ├── PathNotAllowed            outside the roots, through a link, or not a memory file
    ├── AgentNotFound             no agent with this id
    ├── FileNotFound              the path is allowed, but the file does not exist
    ├── EntryNotFound             no entry with this id
    ├── VersionNotFound           the history has no such write, or not its content
    ├── ContentChanged            the file does not have the content that the caller has seen
    │   └── PathTaken             a file exists where none must exist
    ├── EditsDisabled             edits of memory files are disabled
    ├── MemoryDisabled            memory is disabled for the agent
    ├── EmbeddingNotConfigured    vector search was requested without a provider
    ├── EmbeddingUnavailable      the embedding provider returned no usable vector
    │   └── EmbeddingOutage       and cannot embed any other text at present
    ├── EmbeddingQuotaExceeded    the quota at the embedding provider is used up
    ├── BackendUnavailable        the configured backend failed, and fallback is disabled
    ├── WorkspaceReadOnly         the workspace cannot be written
    ├── FileBusy                  another program holds a lock on a file
    ├── FileReplaced              another program keeps replacing a file
    ├── SyncConflict              a FULL sync was requested during a run
    ├── SyncCancelled             the run was cancelled or interrupted
    ├── IndexBusy                 another process holds the index
    ├── IndexTooNew               written by a newer memoryd
    ├── IndexReadOnly             the state directory cannot be written
    ├── IndexUnavailable          cannot be opened, read or written
    │   └── IndexDamaged          damaged or missing; it is rebuilt from the Markdown
    ├── EntriesUnavailable        the entries cannot be opened, read or written
    ├── HistoryUnavailable        the history of writes cannot be opened, read or written
    ├── DiskFull                  no space left
    ├── TooManyRequests           more calls than the limits allow
    ├── ShuttingDown              the daemon is stopping
    ├── RevisionNotReached        `min_revision` was not reached in time
    ├── DeadlineTooShort          the work did not finish in time
    ├── NotImplementedYet         in the contract, not in this version
    ├── InvalidImport             a file to import is missing, or is of another format (command line only)
    └── SettingsError             the settings are invalid (start-up only)

`reason` is the name of an `ErrorReason` without its prefix. Only `rpc.errors` maps errors to gRPC status codes.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from memoryd_server.foreign_text import valid_text


@dataclass(frozen=True, slots=True)
class FieldViolation:
    """A violation in one field of a request; `field` is the name in the proto."""

    field: str
    description: str


class MemorydError(Exception):
    """A refusal or failure with a message for people and `metadata` for programs.

    `retry_after_seconds` is set if a retry can succeed. The message and `metadata` may contain foreign text.
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
    """The request is invalid; `violations` holds every violation found, not only the first."""

    reason = "INVALID_REQUEST"

    def __init__(self, violations: Sequence[FieldViolation]) -> None:
        super().__init__("; ".join(f"{v.field}: {v.description}" for v in violations))
        self.violations = tuple(violations)


class CursorMalformed(MemorydError):
    """The cursor was not issued by memoryd."""

    reason = "CURSOR_MALFORMED"


class CursorExpired(MemorydError):
    """The run that the cursor belongs to is no longer stored."""

    reason = "CURSOR_EXPIRED"


class TokenMissing(MemorydError):
    """The call carries no bearer token."""

    reason = "TOKEN_MISSING"


class TokenInvalid(MemorydError):
    """The bearer token is unknown."""

    reason = "TOKEN_INVALID"


class AgentForbidden(MemorydError):
    """The token does not grant access to the agent. Does not reveal whether the agent exists."""

    reason = "AGENT_FORBIDDEN"


class ScopeMissing(MemorydError):
    """The token does not have the scope that the method requires."""

    reason = "SCOPE_MISSING"

    def __init__(self, method: str, scope: str) -> None:
        super().__init__(
            f"this token does not have the scope {scope!r}, which {method} requires; create a token that has it with "
            f"`memoryd token new --scope {scope}`",
            metadata={"scope": scope},
        )


class PathNotAllowed(MemorydError):
    """The path leads outside the roots or through a link, or is not a memory file.

    Does not reveal whether it exists.
    """

    reason = "PATH_NOT_ALLOWED"

    def __init__(self, path: str, why: str) -> None:
        shown = path if len(path) <= 200 else path[:200] + "…"  # noqa: PLR2004 -- a message, not a protocol
        super().__init__(f"path {shown!r} is not allowed: {why}", metadata={"path": shown})


class AgentNotFound(MemorydError):
    """No agent with this id is configured."""

    reason = "AGENT_NOT_FOUND"


class FileNotFound(MemorydError):
    """The path is allowed, but the file does not exist."""

    reason = "FILE_NOT_FOUND"


class EntryNotFound(MemorydError):
    """The agent has no entry with this id."""

    reason = "ENTRY_NOT_FOUND"


class VersionNotFound(MemorydError):
    """The history has no write with this id, or no longer has the content before it.

    `removed` is whether the history has the write, but not the content.
    """

    reason = "VERSION_NOT_FOUND"

    def __init__(self, version_id: str, *, removed: bool = False) -> None:
        shown = repr(version_id[:64])
        super().__init__(
            f"the history no longer has the content before the write {shown}, which was pruned or forgotten; "
            "MemoryHistory says which writes can be restored"
            if removed
            else f"the history has no write with the ID {shown}; MemoryHistory lists the writes that it has"
        )


class ContentChanged(MemorydError):
    """The file does not have the content that the caller has seen; nothing was changed.

    `content_sha256` is that of the current content, in hexadecimal; empty if the file does not exist.
    """

    reason = "CONTENT_CHANGED"

    def __init__(self, path: str, content_sha256: str) -> None:
        words = (
            f"{path!r} has other content than the caller expects; nothing was changed: read the file again, and repeat "
            "the write on its current content"
            if content_sha256
            else f"{path!r} does not exist; nothing was changed: to create it, write `content` with an empty "
            "expected_sha256"
        )
        super().__init__(words, metadata={"path": path, "content_sha256": content_sha256})


class PathTaken(ContentChanged):
    """A file exists at a path at which none must exist; nothing was changed."""

    def __init__(self, path: str, content_sha256: str) -> None:
        words = f"{path!r} exists already; nothing was changed: choose another path, or read and edit the file"
        MemorydError.__init__(self, words, metadata={"path": path, "content_sha256": content_sha256})


class TranscriptChanged(ContentChanged):
    """A transcript does not have the number of records that the caller has seen; nothing was appended."""

    def __init__(self, path: str, records: int) -> None:
        words = (
            f"{path!r} has {records} records, which is not the expected number; nothing was appended. To append after "
            f"them, set expected_records to {records}"
        )
        MemorydError.__init__(self, words, metadata={"path": path, "records": str(records)})


class EditsDisabled(MemorydError):
    """Edits of memory files are disabled."""

    reason = "EDITS_DISABLED"


class MemoryDisabled(MemorydError):
    """Memory is disabled for the agent."""

    reason = "MEMORY_DISABLED"


class EmbeddingNotConfigured(MemorydError):
    """Vector search was requested, but no provider is configured."""

    reason = "EMBEDDING_NOT_CONFIGURED"


class EmbeddingUnavailable(MemorydError):
    """The embedding provider does not answer, refuses the key or the text, or returns no usable vector.

    `retry_after_seconds` is the delay that the provider requested; None if it named none.
    """

    reason = "EMBEDDING_UNAVAILABLE"


class EmbeddingOutage(EmbeddingUnavailable):
    """The provider limits the rate, fails, cannot be reached or does not answer in time.

    The error concerns every text. Callers pause the provider after this error, but after no other
    `EmbeddingUnavailable`.
    """


class EmbeddingQuotaExceeded(MemorydError):
    """The quota at the embedding provider is used up. An early retry does not help."""

    reason = "EMBEDDING_QUOTA_EXCEEDED"


class BackendUnavailable(MemorydError):
    """The configured backend failed, and fallback is disabled."""

    reason = "BACKEND_UNAVAILABLE"


class WorkspaceReadOnly(MemorydError):
    """The workspace cannot be written."""

    reason = "WORKSPACE_READ_ONLY"


class FileBusy(MemorydError):
    """Another program holds a lock on the file. A retry succeeds when that program releases it."""

    reason = "INDEX_BUSY"

    def __init__(self, path: str, why: str) -> None:
        super().__init__(f"{path!r} {why}", metadata={"path": path}, retry_after_seconds=1.0)


class FileReplaced(MemorydError):
    """Another program replaced the file during the call: it does not contain the written text, or was not deleted."""

    reason = "INDEX_BUSY"

    def __init__(
        self,
        path: str,
        why: str = "was replaced repeatedly by another program; try again when that program has finished",
    ) -> None:
        super().__init__(
            f"{path!r} {why}",
            metadata={"path": path},
            retry_after_seconds=1.0,
        )


class SyncConflict(MemorydError):
    """A FULL sync was requested during a run."""

    reason = "SYNC_CONFLICT"


class SyncCancelled(MemorydError):
    """The run was cancelled, or interrupted by a shutdown, before it finished. Committed changes are kept."""

    reason = "SYNC_CANCELLED"


class IndexBusy(MemorydError):
    """Another process holds the index, or the index could not be locked in time."""

    reason = "INDEX_BUSY"


class IndexTooNew(MemorydError):
    """The index was written by a newer memoryd."""

    reason = "INDEX_TOO_NEW"


class IndexUnavailable(MemorydError):
    """The index cannot be opened, read or written."""

    reason = "INDEX_UNAVAILABLE"


class IndexDamaged(IndexUnavailable):
    """The index does not contain what was written to it, or its file is missing. It is rebuilt from the Markdown."""


class IndexReadOnly(MemorydError):
    """The state directory cannot be written: the index still answers searches, but is not updated."""

    reason = "STATE_READ_ONLY"


class EntriesUnavailable(MemorydError):
    """The entries cannot be opened, read or written."""

    reason = "ENTRIES_UNAVAILABLE"


class HistoryUnavailable(MemorydError):
    """The history of writes cannot be opened, read or written; nothing was changed."""

    reason = "HISTORY_UNAVAILABLE"


class DiskFull(MemorydError):
    """No space is left on the device."""

    reason = "DISK_FULL"


class TooManyRequests(MemorydError):
    """The caller exceeds the limit on calls."""

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
    """The contract includes the feature, but this version does not implement it."""

    reason = "NOT_IMPLEMENTED"


class InvalidImport(MemorydError):
    """A file or folder to import does not exist, cannot be read, or holds nothing of the format."""

    reason = "INVALID_REQUEST"


class SettingsError(MemorydError):
    """The settings are invalid. The message names the file, the key and the correction."""

    reason = "INVALID_REQUEST"
