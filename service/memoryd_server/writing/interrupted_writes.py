"""The state of writes that a crash interrupted, found without changing a file.

`AppendRecovery` and `EditRecovery` settle such writes at the start of a daemon, and may complete or undo them for it.
A copy of the files changes nothing, so it can use only what the files show as they are.
"""

from hashlib import sha256
from pathlib import Path

from memoryd_server.errors import FileNotFound
from memoryd_server.sources import Location, Roots, read_file, resolve_for_append, stat_file
from memoryd_server.store import WriteKind, WriteRecord
from memoryd_server.writing.append import draft_path
from memoryd_server.writing.edited_file import aside_name
from memoryd_server.writing.ledger import AppendState, LedgerEntry
from memoryd_server.writing.memory_file import find_blocks

_MOST_BYTES = 1 << 30


def append_state(roots: Roots, entry: LedgerEntry) -> AppendState:
    """Return the state of an append: DONE if its text is in its file, VOID if none of it is, or PENDING if unknown.

    Raises:
        PathNotAllowed: the file is not a regular one, or is not a memory file.
        OSError: it cannot be read.
    """
    if entry.state is not AppendState.PENDING:
        return entry.state
    data = _content(resolve_for_append(roots, entry.path)) or b""
    block, copies = data[entry.offset : entry.offset + entry.length], entry.copies_before
    is_whole = sha256(block).hexdigest() == entry.block_sha256
    # An edit can have moved the text, or an equal one to its place.
    is_added = is_whole if copies is None else len(find_blocks(entry.block_sha256, entry.length, data)) > copies
    if is_whole and is_added:
        return AppendState.DONE
    return AppendState.PENDING if block or is_added else AppendState.VOID


def has_append_draft(ledger_path: Path) -> bool:
    """Return whether an append was interrupted after the last start of a daemon, so that the next start settles it."""
    return draft_path(str(ledger_path)).exists()


def is_applied(roots: Roots, record: WriteRecord) -> bool | None:
    """Return whether an unfinished edit is in effect; None if it is not known, or left a temporary file.

    Raises:
        PathNotAllowed: a file is not a regular one, or is not a memory file.
        OSError: a file cannot be read.
    """
    location = resolve_for_append(roots, record.path)
    if record.kind is WriteKind.MOVE:
        source = resolve_for_append(roots, record.moved_from)
        if _has_temporary(source, record) or _has_temporary(location, record):
            return None
        left, moved = _digest(source), _digest(location)
        return {(None, record.before): True, (record.before, None): False}.get((left, moved))
    if _has_temporary(location, record):
        return None
    # Equal if the write leaves the content as it is: then it is in effect.
    return {record.before: False, record.after: True}.get(_digest(location))


def _has_temporary(location: Location, record: WriteRecord) -> bool:
    names = (record.draft, aside_name(record.draft)) if record.draft else ()
    folder = Path(location.root, *location.parts[:-1])
    return any((folder / name).exists() for name in names)


def _digest(location: Location) -> bytes | None:
    content = _content(location)
    return None if content is None else sha256(content).digest()


def _content(location: Location) -> bytes | None:
    if stat_file(location) is None:
        return None
    try:
        return read_file(location, _MOST_BYTES)[0]
    except FileNotFound:
        return None
