"""Writes transcripts as Markdown for qmd to index, and takes away what is no longer to be found. Blocks.

One file a transcript, `<name>.md`, with the transcript's own time of change: by it an unchanged one is known without
being read, and old ones can decay.
"""

import contextlib
import os
import tempfile
from collections.abc import Callable
from pathlib import Path

from memoryd_server.backend.qmd.config import SessionsConfig
from memoryd_server.sources.transcripts import TranscriptFile, list_transcripts, read_transcript

_NS_A_DAY = 86_400_000_000_000
_EMPTY = "(empty)"


def export_sessions(
    config: SessionsConfig,
    *,
    own_folder: bool,
    now_ns: Callable[[], int],
    is_forgotten: Callable[[str], bool] = lambda _: False,
) -> None:
    """Brings the folder in line with the transcripts, but for those of sessions that are to stay out.

    A folder of our own (`own_folder`) holds nothing else; from one that the settings name only files that we made are
    removed.

    Raises:
        OSError: the transcripts cannot be listed, or the folder cannot be written.
    """
    config.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    oldest = None if config.retention_days is None else now_ns() - config.retention_days * _NS_A_DAY
    wanted = {
        f"{file.name}.md": file
        for file in list_transcripts(config.transcripts)
        if (oldest is None or file.mtime_ns >= oldest) and not is_forgotten(file.session_id)
    }
    for name, file in wanted.items():
        if not _is_current(config.folder / name, file):
            # One that vanishes meanwhile is removed the next time.
            with contextlib.suppress(FileNotFoundError):
                _write(config.folder / name, file)
    for path in config.folder.glob("*.md"):
        if path.name not in wanted and (own_folder or _is_ours(path)):
            path.unlink(missing_ok=True)


def forget_session(config: SessionsConfig, session_id: str, *, own_folder: bool) -> int:
    """Removes what was written of a session's transcripts, rotated ones included; how many files.

    Raises:
        OSError: the folder cannot be read or written.
    """
    removed = 0
    for path in sorted(config.folder.glob("*.md")):
        is_its = path.stem == session_id or path.stem.startswith((f"{session_id}.reset.", f"{session_id}.deleted."))
        if is_its and (own_folder or _is_ours(path)):
            path.unlink(missing_ok=True)
            removed += 1
    return removed


def _is_current(path: Path, file: TranscriptFile) -> bool:
    try:
        status = path.lstat()
    except FileNotFoundError:
        return False
    return status.st_mtime_ns == file.mtime_ns and status.st_size > 0


def _write(path: Path, file: TranscriptFile) -> None:
    content = read_transcript(file) or _EMPTY
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=".session-")
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as written:
            written.write(f"{_title(path)}\n\n{content}\n")
        os.utime(name, ns=(file.mtime_ns, file.mtime_ns))
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def _title(path: Path) -> str:
    return f"# Session {path.stem}"


def _is_ours(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            return file.readline().rstrip(b"\n") == _title(path).encode()
    except OSError:
        return False
