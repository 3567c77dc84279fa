"""QmdIndex: updates and embeds qmd's index of one agent; and the export of sessions for it. Everything here blocks.

The index has one writer at a time, because one of two concurrent updates fails. The caller ensures this for threads, a
file lock for processes. A damaged index is deleted and rebuilt.

Each transcript is exported as one Markdown file, `<name>.md`, with the transcript's modification time. By this time an
unchanged transcript is recognised without reading it, and old ones can decay. A file in the folder has the version of
the conversion: after an upgrade that masks other secrets, every transcript is exported again.
"""

import contextlib
import os
import re
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from memoryd_server.qmd import client
from memoryd_server.qmd.client import QmdClient, QmdFailure, QmdFailureReason, check, error_line, is_conflict
from memoryd_server.qmd.config import QmdConfig, QmdSessionsConfig
from memoryd_server.qmd.host import file_lock, make_private_folder
from memoryd_server.qmd.process import CommandResult, CommandRun, ExitKind
from memoryd_server.sources import (
    FLATTENING_VERSION,
    TranscriptFile,
    list_transcripts,
    read_generated_sessions,
    read_transcript,
)

_INDEXED = re.compile(r"Indexed: (\d{1,9}) new, (\d{1,9}) updated, (\d{1,9}) unchanged, (\d{1,9}) removed")
_DAMAGED = re.compile(r"SQLITE_NOTADB|SQLITE_CORRUPT|file is not a database|database disk image is malformed")
_SKIPPED = re.compile(r"Another embed process is already running", re.IGNORECASE)
_TOTAL = re.compile(r"^[^\S\n]*Total:\s+(\d{1,9})(?!\d)", re.MULTILINE)
_VECTORS = re.compile(r"^[^\S\n]*Vectors:\s+(\d{1,9})(?!\d)", re.MULTILINE)
_PENDING = re.compile(r"^[^\S\n]*Pending:\s+(\d{1,9})(?!\d)", re.MULTILINE)
_RETRY_SECONDS = 0.5

Runner = Callable[[CommandRun], CommandResult]
"""Runs a command on the calling thread, and ends it early if it was cancelled."""


@dataclass(frozen=True, slots=True)
class UpdateCounts:
    """The numbers of new, changed, unchanged and removed files in an update."""

    new: int = 0
    changed: int = 0
    unchanged: int = 0
    removed: int = 0

    @property
    def documents(self) -> int:
        """The number of files in qmd's index after the update."""
        return self.new + self.changed + self.unchanged


@dataclass(frozen=True, slots=True)
class DocumentCounts:
    """qmd's documents, its vectors, and its documents without a vector, as `qmd status` reports them."""

    total: int
    vectors: int
    pending: int


class QmdIndex:
    """qmd's index of one agent. `export` is called before each update, and writes the sessions to be indexed.

    `embed_lock_problem` is why the last embedding ran without the lock that daemons share; empty if it had the lock.
    """

    def __init__(
        self,
        config: QmdConfig,
        client: QmdClient,
        *,
        export: Callable[[], None] = lambda: None,
        should_stop: Callable[[], bool] = lambda: False,
    ) -> None:
        self._config = config
        self._client = client
        self._export = export
        self._should_stop = should_stop
        self._updated_marker = config.folder / "updated"
        self._cleanup_marker = config.folder / "unclean"
        self.embed_lock_problem = ""

    @property
    def ready(self) -> bool:
        """Whether an update has completed since the index was created; until then, the index is incomplete."""
        return self._updated_marker.exists() and self._client.home.index.exists()

    def prepare(self) -> bool:
        """Create qmd's home; return whether its configuration has changed.

        Raises:
            QmdFailure: the state directory cannot be written.
        """
        try:
            return self._client.home.prepare()
        except OSError as error:
            raise QmdFailure(
                QmdFailureReason.EXIT_CODE, f"qmd's folder {self._config.folder} cannot be written: {error}"
            ) from error

    def update(self, run: Runner) -> UpdateCounts:
        """Update qmd's index from the files.

        Raises:
            QmdFailure: the update failed.
        """
        seconds = self._config.update.update_timeout_seconds
        with self._write_lock(seconds):
            self._export()
            arguments, deadline = client.UPDATE, time.monotonic() + seconds
            result = run(self._client.make_run(arguments, seconds))
            if is_conflict(result):
                time.sleep(_RETRY_SECONDS)
                result = run(self._client.make_run(arguments, max(1.0, deadline - time.monotonic())))
            if result.code and (_DAMAGED.search(result.stderr) or is_conflict(result)):
                self._delete_index()
                result = run(self._client.make_run(arguments, seconds))
            check(result)
            counts = _update_counts(result)
            if counts.changed or counts.removed:
                self._cleanup_marker.touch(mode=0o600)
            self._updated_marker.touch(mode=0o600)
            self._clean_up(run)
        return counts

    def _clean_up(self, run: Runner) -> None:
        """Delete text that is no longer in the files from the index. If it fails, the next update does it again."""
        if self._cleanup_marker.exists():
            result = run(self._client.make_run(client.CLEANUP, self._config.update.command_timeout_seconds))
            if result.ending is ExitKind.EXITED and not result.code:
                self._cleanup_marker.unlink(missing_ok=True)

    def embed(self, run: Runner) -> DocumentCounts:
        """Embed the documents without a vector; return the counts afterwards.

        Raises:
            QmdFailure: documents without a vector remain, or their number is unknown.
        """
        seconds = self._config.update.embed_timeout_seconds
        with self._embed_lock(seconds), self._write_lock(seconds):
            result = run(self._client.make_run(client.EMBED, seconds))
            check(result)
            if _SKIPPED.search(result.stdout + result.stderr):
                raise QmdFailure(QmdFailureReason.BUSY, "another process is embedding for qmd")
        counts = self.documents(run)
        if counts.pending:
            raise QmdFailure(
                QmdFailureReason.EXIT_CODE,
                f"{counts.pending} documents have no vector after `qmd embed`{error_line(result)}",
            )
        return counts

    def documents(self, run: Runner) -> DocumentCounts:
        """Return the counts that `qmd status` reports.

        Raises:
            QmdFailure: the command failed.
        """
        result = run(self._client.make_run(client.STATUS, self._config.update.command_timeout_seconds))
        check(result)
        return read_counts(result)

    @contextlib.contextmanager
    def _embed_lock(self, seconds: float) -> Iterator[None]:
        """Hold the lock that all daemons share, so that their models do not run at the same time.

        Without the lock, embedding is slower. Therefore an unusable lock file does not prevent it.
        """
        lock = self._config.embed_lock
        with contextlib.ExitStack() as stack:
            try:
                make_private_folder(lock.parent)
                stack.enter_context(file_lock(lock, "the host's embedding lock", seconds, self._should_stop))
            except OSError as error:
                self.embed_lock_problem = f"the lock {lock} cannot be used: {error.strerror}: {error.filename}"
            else:
                self.embed_lock_problem = ""
            yield

    @contextlib.contextmanager
    def _write_lock(self, seconds: float) -> Iterator[None]:
        self.prepare()
        try:
            lock = self._config.folder / "writer.lock"
            with file_lock(lock, "the write lock of qmd's index", seconds, self._should_stop):
                yield
        except OSError as error:
            raise QmdFailure(
                QmdFailureReason.EXIT_CODE, f"qmd's folder {self._config.folder} cannot be used: {error}"
            ) from error

    def _delete_index(self) -> None:
        """Delete the index. The next update rebuilds all of it from the files."""
        self._updated_marker.unlink(missing_ok=True)
        for suffix in ("", "-wal", "-shm"):
            index = self._client.home.index
            index.with_name(index.name + suffix).unlink(missing_ok=True)


def _update_counts(result: CommandResult) -> UpdateCounts:
    """Return the sums over all collections."""
    counts = [tuple(map(int, numbers)) for numbers in _INDEXED.findall(result.stdout)]
    return UpdateCounts(*(sum(column) for column in zip(*counts, strict=True))) if counts else UpdateCounts()


def read_counts(result: CommandResult) -> DocumentCounts:
    """Return the counts that `qmd status` printed; 0 for a count that it did not print."""
    return DocumentCounts(_number(_TOTAL, result), _number(_VECTORS, result), _number(_PENDING, result))


def _number(pattern: re.Pattern[str], result: CommandResult) -> int:
    match = pattern.search(result.stdout)
    return int(match[1]) if match else 0


_NS_PER_DAY = 86_400_000_000_000
_EMPTY = "(empty)"
_VERSION_FILE = ".export-version"


def export_sessions(
    config: QmdSessionsConfig,
    *,
    own_folder: bool,
    now_ns: Callable[[], int],
    is_forgotten: Callable[[str], bool] = lambda _: False,
) -> None:
    """Export the transcripts to the folder, and remove exports of missing, old and forgotten ones.

    If `own_folder`, all other Markdown files in the folder are removed; otherwise only files that this function wrote.

    Raises:
        OSError: the transcripts cannot be listed, or the folder cannot be written.
    """
    config.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    oldest = None if config.retention_days is None else now_ns() - config.retention_days * _NS_PER_DAY
    generated, _ = read_generated_sessions(config.transcripts)
    wanted = {
        f"{file.name}.md": file
        for file in list_transcripts(config.transcripts)
        if (oldest is None or file.mtime_ns >= oldest)
        and file.session_id not in generated
        and not is_forgotten(file.session_id)
    }
    is_same_version = _read_version(config.folder) == str(FLATTENING_VERSION)
    for name, file in wanted.items():
        if not (is_same_version and _is_current(config.folder / name, file)):
            # A transcript may be deleted before it is read. The next export removes its file.
            with contextlib.suppress(FileNotFoundError):
                _write(config.folder / name, file)
    for path in config.folder.glob("*.md"):
        if path.name not in wanted and (own_folder or _is_export(path)):
            path.unlink(missing_ok=True)
    if not is_same_version:
        (config.folder / _VERSION_FILE).write_text(str(FLATTENING_VERSION), "utf-8")


def _read_version(folder: Path) -> str:
    """Return the version of the conversion that wrote the exports in a folder; empty if it is not known."""
    try:
        return (folder / _VERSION_FILE).read_text("utf-8")
    except (OSError, UnicodeDecodeError):
        return ""


def forget_session(config: QmdSessionsConfig, session_id: str, *, own_folder: bool) -> int:
    """Remove the exports of a session's transcripts, including rotated ones; return the number of files.

    Raises:
        OSError: the folder cannot be read or written.
    """
    removed = 0
    for path in sorted(config.folder.glob("*.md")):
        rotated = (f"{session_id}.reset.", f"{session_id}.deleted.")
        if (path.stem == session_id or path.stem.startswith(rotated)) and (own_folder or _is_export(path)):
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
        with os.fdopen(descriptor, "w", encoding="utf-8") as output:
            output.write(f"{_title(path)}\n\n{content}\n")
        os.utime(name, ns=(file.mtime_ns, file.mtime_ns))
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def _title(path: Path) -> str:
    return f"# Session {path.stem}"


def _is_export(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            return file.readline().rstrip(b"\n") == _title(path).encode()
    except OSError:
        return False
