"""What an edit expects, changes, records and returns: the rules that every writer of memory files follows. Pure."""

from hashlib import sha256

from memoryd_server.errors import ContentChanged, FieldViolation, InvalidRequest, PathTaken
from memoryd_server.store import WriteKind, WriteRecord
from memoryd_server.writing.changes import (
    ChangeResult,
    FileDeletion,
    LineDeletion,
    LineInsertion,
    NewContent,
    TextReplacement,
)
from memoryd_server.writing.edit_jobs import EditJob, WriteJob, WriteReceipt


def require_same_request(job: EditJob, known: WriteRecord) -> None:
    """Check that a key is used for the request that it was used for first.

    Raises:
        InvalidRequest: it was another request.
    """
    if known.request_sha256 != job.request_sha256:
        raise invalid("idempotency_key", "was used before with other contents; use a new key for a new write")


def require_expected(path: str, before: bytes | None, expected: bytes | None) -> None:
    """Check that a file has the content with the SHA-256 `expected`; None is a missing file.

    Raises:
        ContentChanged: it has another one; `PathTaken` if no file is expected.
    """
    found = digest_of(before)
    if found is not None and expected is None:
        raise PathTaken(path, found.hex())
    if found != expected:
        raise ContentChanged(path, found.hex() if found is not None else "")


def change_of(job: WriteJob, data: bytes | None) -> ChangeResult:
    """Apply the change of a job to the content of its file.

    Raises:
        InvalidRequest: the change cannot be applied.
    """
    if data is None and not isinstance(job.change, NewContent):
        raise invalid("expected_sha256", "is required, except to create a file with `content`")
    return job.change.apply(data or b"")


def change_to(content: bytes | None) -> ChangeResult:
    """Return the change that restores a content; None deletes the file."""
    return ChangeResult(None, 0, 0) if content is None else NewContent(content).apply(b"")


def require_size(field: str, content: bytes | None, most_bytes: int) -> None:
    """Check the size of a new content, which a field of the request makes too large.

    Raises:
        InvalidRequest: it has more than `most_bytes` bytes.
    """
    if content is not None and len(content) > most_bytes:
        words = f"the file would have {len(content)} bytes, more than {most_bytes} (memoryd.limits.maxFileBytes)"
        raise invalid(field, words)


def kind_of(job: WriteJob) -> WriteKind:
    """Return what a job does to its file."""
    match job.change:
        case NewContent():
            return WriteKind.CREATE if job.expected is None else WriteKind.REPLACE_CONTENT
        case TextReplacement():
            return WriteKind.REPLACE_TEXT
        case LineInsertion():
            return WriteKind.INSERT_LINES
        case LineDeletion():
            return WriteKind.DELETE_LINES
        case FileDeletion():
            return WriteKind.DELETE_FILE


def digest_of(data: bytes | None) -> bytes | None:
    """Return the SHA-256 of a content; None for a missing file."""
    return None if data is None else sha256(data).digest()


def record_of(
    job: EditJob,
    path: str,
    kind: WriteKind,
    *,
    version_id: str,
    time_ms: int,
    before: bytes | None,
    after: bytes | None,
    lines: tuple[int, int] = (0, 0),
    moved_from: str = "",
    draft: str = "",
    is_done: bool = False,
) -> WriteRecord:
    """Return the record of a job's write for the history. `before` and `after` are contents."""
    return WriteRecord(
        version_id=version_id,
        path=path,
        kind=kind,
        time_ms=time_ms,
        caller=job.caller,
        before=digest_of(before),
        before_bytes=len(before or b""),
        after=digest_of(after),
        after_bytes=len(after or b""),
        moved_from=moved_from,
        lines=lines,
        key=job.key,
        request_sha256=job.request_sha256,
        draft=draft,
        is_done=is_done,
    )


def receipt_of(record: WriteRecord, *, already: bool = False) -> WriteReceipt:
    """Return the receipt of a recorded write; `already` if an earlier call wrote it."""
    return WriteReceipt(
        path=record.path,
        content=record.after,
        version_id=record.version_id,
        start_line=record.lines[0],
        end_line=record.lines[1],
        moved_from=record.moved_from,
        already=already,
    )


def invalid(field: str, description: str) -> InvalidRequest:
    """Return the error for one field of a request."""
    return InvalidRequest([FieldViolation(field, description)])
