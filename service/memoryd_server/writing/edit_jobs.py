"""What an edit of a memory file requests and returns.

`expected` is the SHA-256 of the content that the caller has seen, or None if the file must not exist. A job with a
`key` can be repeated: the key with the same `request_sha256` is performed once. `caller` is stored in the history.
"""

from dataclasses import dataclass

from memoryd_server.writing.changes import Change


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteJob:
    """Change, create or delete the file `path`."""

    path: str
    expected: bytes | None
    change: Change
    key: str = ""
    request_sha256: str = ""
    caller: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class MoveJob:
    """Rename the file `path` to `new_path`, where no file must exist."""

    path: str
    new_path: str
    expected: bytes
    key: str = ""
    request_sha256: str = ""
    caller: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class RestoreJob:
    """Restore the content before the write `version_id` to `path`, or to the path of that write if it is empty."""

    version_id: str
    path: str = ""
    expected: bytes | None
    key: str = ""
    request_sha256: str = ""
    caller: str = ""


EditJob = WriteJob | MoveJob | RestoreJob


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteReceipt:
    """A write that is done. `content` is the SHA-256 of the content after it, None for a deleted file.

    `start_line` and `end_line` are as in `ChangeResult`; both are 0 after a move. `already` is True if an earlier call
    with the same key wrote it. `revision` is the index's revision that holds the change, None if it is not indexed yet.
    """

    path: str
    content: bytes | None
    version_id: str
    start_line: int = 0
    end_line: int = 0
    moved_from: str = ""
    already: bool = False
    revision: int | None = None
