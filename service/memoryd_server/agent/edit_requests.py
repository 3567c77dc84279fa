"""Requests that change memory files and read the history of these changes; see `requests` for what they share.

`resolve` of a request that changes a file returns the job of `Editor.edit`. It hashes up to 3 MiB, so it is called on
another thread. Whether the file has the expected content, and whether the operation fits it, is decided by the job.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from memoryd_server.agent.requests import (
    DEFAULT_PAGE,
    MOST_PAGE,
    MOST_PATH_BYTES,
    FieldChecks,
    Request,
)
from memoryd_server.sources import Roots, resolve_for_append
from memoryd_server.writing import (
    Change,
    FileDeletion,
    LineDeletion,
    LineInsertion,
    MoveJob,
    NewContent,
    RestoreJob,
    TextReplacement,
    WriteJob,
    request_digest,
)

MOST_CONTENT_BYTES = 3 * 2**20
MOST_TEXT_BYTES = 2**20
MOST_VERSION_BYTES = 128

_SHA256 = re.compile("[0-9a-f]{64}")
_NO_NUL = "contains a NUL character, which would make the file unreadable as Markdown"


class _EditChecks(FieldChecks):
    """Checks what the requests that change a file share."""

    def expected_sha256(self) -> bytes | None:
        """Return the digest in the field `expected_sha256`; None if it is empty, so that the file must not exist."""
        return self.required_sha256() if self.value("expected_sha256") else None

    def required_sha256(self) -> bytes:
        """Return the digest in the field `expected_sha256`."""
        text = str(self.value("expected_sha256"))
        if _SHA256.fullmatch(text):
            return bytes.fromhex(text)
        what = "must have 64 lower-case hexadecimal digits" if text else "must not be empty"
        words = f"{what}; it is the SHA-256 of the file, which is content_sha256 in the response of MemoryGet"
        self.violation("expected_sha256", words)
        return b""

    def bounded(self, field: str, data: bytes, most_bytes: int) -> None:
        """Check the size of a text of the operation, and that it has no NUL."""
        if len(data) > most_bytes:
            self.violation(field, f"is {len(data):,} bytes long; at most {most_bytes:,} are allowed")
        if b"\0" in data:
            self.violation(field, _NO_NUL)

    def operation(self, change: Change | None) -> Change:
        """Return the operation, after the checks that need no file."""
        match change:
            case None:
                self.violation("operation", "set one: content, replace, insert, delete_lines or delete_file")
                return FileDeletion()
            case NewContent(data):
                self.bounded("content", data, MOST_CONTENT_BYTES)
            case TextReplacement(old, new):
                if not old:
                    self.violation("replace.old_text", "must not be empty")
                self.bounded("replace.old_text", old, MOST_TEXT_BYTES)
                self.bounded("replace.new_text", new, MOST_TEXT_BYTES)
            case LineInsertion(after_line, text):
                if after_line < 0:
                    self.violation("insert.after_line", f"is {after_line}; it must not be negative")
                if not text:
                    self.violation("insert.text", "must not be empty")
                self.bounded("insert.text", text, MOST_TEXT_BYTES)
            case LineDeletion(start_line, end_line):
                self._lines(start_line, end_line)
        return change

    def _lines(self, start_line: int, end_line: int) -> None:
        if start_line < 1:
            self.violation("delete_lines.start_line", f"is {start_line}; it must be at least 1")
        elif end_line < start_line:
            words = f"is {end_line}; it must not be less than start_line, which is {start_line}"
            self.violation("delete_lines.end_line", words)


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteRequest(Request):
    """An operation on a memory file that has the content `expected_sha256`, or does not exist if that is empty.

    `caller` is the name of the caller in the history.
    """

    path: str
    operation: Change | None
    expected_sha256: str = ""
    idempotency_key: str = ""
    caller: str = ""

    def resolve(self) -> WriteJob:
        """Return the write. Blocks."""
        checks = _EditChecks(self, self.unreadable)
        path = checks.text("path", most_bytes=MOST_PATH_BYTES, required=True)
        change = checks.operation(self.operation)
        may_create = self.operation is None or isinstance(change, NewContent)
        expected = checks.expected_sha256() if may_create else checks.required_sha256()
        key = checks.idempotency_key()
        checks.check()
        return WriteJob(
            path=path,
            expected=expected,
            change=change,
            key=key,
            request_sha256=request_digest("write", path, self.expected_sha256, *_parts(change)) if key else "",
            caller=self.caller,
        )


def _parts(change: Change) -> Iterator[str | bytes]:
    yield type(change).__name__
    match change:
        case NewContent(data):
            yield data
        case TextReplacement(old, new):
            yield from (old, new)
        case LineInsertion(after_line, text):
            yield from (str(after_line), text)
        case LineDeletion(start_line, end_line):
            yield from (str(start_line), str(end_line))
        case FileDeletion():
            pass


@dataclass(frozen=True, slots=True, kw_only=True)
class MoveRequest(Request):
    """A move of the memory file `path`, which has the content `expected_sha256`, to `new_path`, which must be free."""

    path: str
    new_path: str
    expected_sha256: str = ""
    idempotency_key: str = ""
    caller: str = ""

    def resolve(self) -> MoveJob:
        """Return the move."""
        checks = _EditChecks(self, self.unreadable)
        path = checks.text("path", most_bytes=MOST_PATH_BYTES, required=True)
        new_path = checks.text("new_path", most_bytes=MOST_PATH_BYTES, required=True)
        expected = checks.required_sha256()
        key = checks.idempotency_key()
        if path and path == new_path:
            checks.violation("new_path", "must differ from path")
        checks.check()
        return MoveJob(
            path=path,
            new_path=new_path,
            expected=expected,
            key=key,
            request_sha256=request_digest("move", path, new_path, self.expected_sha256) if key else "",
            caller=self.caller,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class RestoreRequest(Request):
    """A restore of the content before the write `version_id`, to its file if `path` is empty.

    The file has the content `expected_sha256`, or does not exist if that is empty.
    """

    version_id: str
    path: str = ""
    expected_sha256: str = ""
    idempotency_key: str = ""
    caller: str = ""

    def resolve(self) -> RestoreJob:
        """Return the restore."""
        checks = _EditChecks(self, self.unreadable)
        version_id = checks.text("version_id", most_bytes=MOST_VERSION_BYTES, required=True)
        path = checks.text("path", most_bytes=MOST_PATH_BYTES)
        expected = checks.expected_sha256()
        key = checks.idempotency_key()
        checks.check()
        return RestoreJob(
            version_id=version_id,
            path=path,
            expected=expected,
            key=key,
            request_sha256=request_digest("restore", version_id, path, self.expected_sha256) if key else "",
            caller=self.caller,
        )


EditRequest = WriteRequest | MoveRequest | RestoreRequest


@dataclass(frozen=True, slots=True)
class HistoryQuery:
    """The writes to return: the one with `version_id`, or at most `limit` older than the sequence `older_than`.

    `path` is the file whose writes are returned; empty for all files.
    """

    path: str
    version_id: str
    include_diffs: bool
    limit: int
    older_than: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryRequest(Request):
    """A page of the writes of one file, or of all files if `path` is empty; or the only write `version_id`.

    `older_than` is the sequence of the last write of the previous page.
    """

    path: str = ""
    version_id: str = ""
    include_diffs: bool = False
    page_size: int = 0
    older_than: int | None = None

    def resolve(self, roots: Roots) -> HistoryQuery:
        """Return the query.

        Raises:
            PathNotAllowed: the path is not a memory file of the workspace.
        """
        checks = FieldChecks(self, self.unreadable)
        path = checks.text("path", most_bytes=MOST_PATH_BYTES)
        version_id = checks.text("version_id", most_bytes=MOST_VERSION_BYTES)
        if path and version_id:
            checks.violation("path", "must be empty if version_id is set")
        limit = min(checks.count("page_size") or DEFAULT_PAGE, MOST_PAGE)
        checks.check()
        path = resolve_for_append(roots, path).path if path else ""
        return HistoryQuery(path, version_id, self.include_diffs, limit, self.older_than)
