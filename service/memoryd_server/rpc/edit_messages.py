"""The messages of MemoryWrite, MemoryMove, MemoryRestore and MemoryHistory, from and to the values of `agent`."""

from memoryd.v1 import memory_service_pb2 as pb
from memoryd_server.agent import (
    Change,
    FileDeletion,
    FileVersion,
    HistoryPage,
    HistoryRequest,
    LineDeletion,
    LineInsertion,
    MoveRequest,
    NewContent,
    RestoreRequest,
    TextReplacement,
    WriteReceipt,
    WriteRequest,
)
from memoryd_server.errors import FieldViolation, InvalidRequest
from memoryd_server.rpc import wire
from memoryd_server.rpc.wire import build_message, fitting, make_page_token, read_page_token, timestamp

_LIST = "history"


def write_request(message: pb.MemoryWriteRequest, caller: str) -> WriteRequest:
    """Return the request of a MemoryWrite by `caller`."""
    return WriteRequest(
        path=message.path,
        operation=_operation(message),
        expected_sha256=message.expected_sha256,
        idempotency_key=message.idempotency_key,
        caller=caller,
    )


def _operation(message: pb.MemoryWriteRequest) -> Change | None:
    match message.WhichOneof("operation"):
        case "content":
            return NewContent(message.content.encode())
        case "replace":
            return TextReplacement(message.replace.old_text.encode(), message.replace.new_text.encode())
        case "insert":
            return LineInsertion(message.insert.after_line, message.insert.text.encode())
        case "delete_lines":
            return LineDeletion(message.delete_lines.start_line, message.delete_lines.end_line)
        case "delete_file":
            return FileDeletion()
        case _:
            return None


def write_response(value: WriteReceipt) -> pb.MemoryWriteResponse:
    """Return what a write did."""
    return pb.MemoryWriteResponse(
        path=value.path,
        content_sha256=_hex(value.content),
        version_id=value.version_id,
        start_line=value.start_line,
        end_line=value.end_line,
        index_revision=value.revision,
        already_written=value.already,
    )


def move_request(message: pb.MemoryMoveRequest, caller: str) -> MoveRequest:
    """Return the request of a MemoryMove by `caller`."""
    return MoveRequest(
        path=message.path,
        new_path=message.new_path,
        expected_sha256=message.expected_sha256,
        idempotency_key=message.idempotency_key,
        caller=caller,
    )


def move_response(value: WriteReceipt) -> pb.MemoryMoveResponse:
    """Return what a move did."""
    return pb.MemoryMoveResponse(
        path=value.path,
        content_sha256=_hex(value.content),
        version_id=value.version_id,
        index_revision=value.revision,
        already_moved=value.already,
    )


def restore_request(message: pb.MemoryRestoreRequest, caller: str) -> RestoreRequest:
    """Return the request of a MemoryRestore by `caller`."""
    return RestoreRequest(
        version_id=message.version_id,
        path=message.path,
        expected_sha256=message.expected_sha256,
        idempotency_key=message.idempotency_key,
        caller=caller,
    )


def restore_response(value: WriteReceipt) -> pb.MemoryRestoreResponse:
    """Return what a restore did."""
    return pb.MemoryRestoreResponse(
        path=value.path,
        content_sha256=_hex(value.content),
        version_id=value.version_id,
        index_revision=value.revision,
        already_restored=value.already,
    )


def history_request(message: pb.MemoryHistoryRequest) -> HistoryRequest:
    """Return the request of a MemoryHistory.

    Raises:
        InvalidRequest: the page token is not one of MemoryHistory.
    """
    return HistoryRequest(
        path=message.path,
        version_id=message.version_id,
        include_diffs=message.include_diffs,
        page_size=message.page_size,
        older_than=_older_than(message.page_token),
    )


def _older_than(page_token: str) -> int | None:
    last = read_page_token(_LIST, page_token)
    if not last:
        return None
    if not (last.isascii() and last.isdecimal() and len(last) < _MOST_DIGITS):
        raise InvalidRequest([FieldViolation("page_token", "is not a next_page_token of this list")])
    return int(last)


# A sequence has 63 bits.
_MOST_DIGITS = 19


def history_response(value: HistoryPage) -> pb.MemoryHistoryResponse:
    """Return a page of writes: as many of them as fit a reply."""
    versions = fitting(value.versions, _version)
    is_last = len(versions) == len(value.versions) and not value.has_more
    token = "" if is_last else make_page_token(_LIST, str(value.versions[len(versions) - 1].record.sequence))
    return pb.MemoryHistoryResponse(versions=versions, next_page_token=token)


def _version(value: FileVersion) -> pb.FileVersion:
    record = value.record
    return build_message(
        pb.FileVersion,
        version_id=record.version_id,
        path=record.path,
        moved_from=record.moved_from,
        time=timestamp(record.time_ms * 1_000_000),
        caller=record.caller,
        kind=wire.write_kind(record.kind),
        before_sha256=_hex(record.before),
        before_bytes=record.before_bytes,
        after_sha256=_hex(record.after),
        after_bytes=record.after_bytes,
        restorable=record.is_restorable,
        diff=value.diff,
        diff_truncated=value.is_cut,
    )


def _hex(digest: bytes | None) -> str:
    return "" if digest is None else digest.hex()
