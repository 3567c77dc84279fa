"""Qmd's index and exported sessions.

qmd's own index of one agent: brought up to date, embedded, and begun anew where it is damaged. Blocks.

One writer at a time, between threads by the caller's care and between processes by a lock: two updates at once make one
of them fail.

Writes transcripts as Markdown for qmd to index, and takes away what is no longer to be found. Blocks.

One file a transcript, `<name>.md`, with the transcript's own time of change: by it an unchanged one is known without
being read, and old ones can decay.
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
from memoryd_server.qmd.client import QmdClient, QmdFailure, QmdFailureReason, check, is_conflict, last_words
from memoryd_server.qmd.config import QmdConfig, QmdSessionsConfig
from memoryd_server.qmd.host import hold_lock
from memoryd_server.qmd.process import CommandResult, CommandRun, ExitKind
from memoryd_server.sources import TranscriptFile, list_transcripts, read_transcript

_INDEXED = re.compile(r"Indexed: (\d{1,9}) new, (\d{1,9}) updated, (\d{1,9}) unchanged, (\d{1,9}) removed")
_DAMAGED = re.compile(r"SQLITE_NOTADB|SQLITE_CORRUPT|file is not a database|database disk image is malformed")
_SKIPPED = re.compile(r"Another embed process is already running", re.IGNORECASE)
_TOTAL = re.compile(r"^[^\S\n]*Total:\s+(\d{1,9})(?!\d)", re.MULTILINE)
_VECTORS = re.compile(r"^[^\S\n]*Vectors:\s+(\d{1,9})(?!\d)", re.MULTILINE)
_PENDING = re.compile(r"^[^\S\n]*Pending:\s+(\d{1,9})(?!\d)", re.MULTILINE)
_RETRY_SECONDS = 0.5

# Runs what it is given to its end, on the calling thread; ends early when nobody wants it any more.
Runner = Callable[[CommandRun], CommandResult]


@dataclass(frozen=True, slots=True)
class UpdateCounts:
    """What an update found: files that are new, changed, as they were, and gone."""

    new: int = 0
    changed: int = 0
    unchanged: int = 0
    removed: int = 0

    @property
    def documents(self) -> int:
        """How many files qmd holds now."""
        return self.new + self.changed + self.unchanged


@dataclass(frozen=True, slots=True)
class DocumentCounts:
    """What qmd says that it holds."""

    total: int
    vectors: int
    pending: int


class QmdIndex:
    """Updates and embeds for one agent. `export` writes what is indexed besides files, before each update."""

    def __init__(
        self,
        config: QmdConfig,
        client: QmdClient,
        *,
        export: Callable[[], None] = lambda: None,
        is_unwanted: Callable[[], bool] = lambda: False,
    ) -> None:
        self._config = config
        self._client = client
        self._export = export
        self._is_unwanted = is_unwanted
        self._begun = config.folder / "updated"
        self._unclean = config.folder / "unclean"

    @property
    def ready(self) -> bool:
        """Whether an update has completed since the index was begun; before, it answers with nothing or too little.

        Blocks.
        """
        return self._begun.exists() and self._client.home.index.exists()

    def prepare(self) -> bool:
        """Makes qmd's home; whether its configuration has changed.

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
        """Makes qmd's index match the files.

        Raises:
            QmdFailure: it does not.
        """
        seconds = self._config.update.update_seconds
        with self._writing(seconds):
            self._export()
            arguments, until = client.UPDATE, time.monotonic() + seconds
            done = run(self._client.start(arguments, seconds))
            if is_conflict(done):
                time.sleep(_RETRY_SECONDS)
                done = run(self._client.start(arguments, max(1.0, until - time.monotonic())))
            if done.code and (_DAMAGED.search(done.stderr) or is_conflict(done)):
                self._begin_anew()
                done = run(self._client.start(arguments, seconds))
            check(done)
            updated = _updated(done)
            if updated.changed or updated.removed:
                self._unclean.touch(mode=0o600)
            self._begun.touch(mode=0o600)
            self._clean(run)
        return updated

    def _clean(self, run: Runner) -> None:
        """Lets qmd forget the text that is no longer in the files; what fails is tried again after the next update."""
        if self._unclean.exists():
            done = run(self._client.start(client.CLEANUP, self._config.update.command_seconds))
            if done.ending is ExitKind.EXITED and not done.code:
                self._unclean.unlink(missing_ok=True)

    def embed(self, run: Runner) -> DocumentCounts:
        """Makes the vectors that are missing; what qmd holds afterwards.

        Raises:
            QmdFailure: some are still missing, or it cannot be told.
        """
        seconds = self._config.update.embed_seconds
        with (
            hold_lock(self._config.embed_lock, "the host's turn to embed", seconds, self._is_unwanted),
            self._writing(seconds),
        ):
            done = run(self._client.start(client.EMBED, seconds))
            check(done)
            if _SKIPPED.search(done.stdout + done.stderr):
                raise QmdFailure(QmdFailureReason.BUSY, "another process embeds for qmd")
        held_now = self.documents(run)
        if held_now.pending:
            raise QmdFailure(
                QmdFailureReason.EXIT_CODE,
                f"{held_now.pending} documents have no vector after `qmd embed`{last_words(done)}",
            )
        return held_now

    def documents(self, run: Runner) -> DocumentCounts:
        """What qmd says that it holds.

        Raises:
            QmdFailure: it says nothing.
        """
        done = run(self._client.start(client.STATUS, self._config.update.command_seconds))
        check(done)
        return DocumentCounts(_number(_TOTAL, done), _number(_VECTORS, done), _number(_PENDING, done))

    @contextlib.contextmanager
    def _writing(self, seconds: float) -> Iterator[None]:
        self.prepare()
        try:
            with hold_lock(self._config.folder / "writer.lock", "qmd's index", seconds, self._is_unwanted):
                yield
        except OSError as error:
            raise QmdFailure(
                QmdFailureReason.EXIT_CODE, f"qmd's folder {self._config.folder} cannot be used: {error}"
            ) from error

    def _begin_anew(self) -> None:
        """Everything in it comes from the files."""
        self._begun.unlink(missing_ok=True)
        for suffix in ("", "-wal", "-shm"):
            index = self._client.home.index
            index.with_name(index.name + suffix).unlink(missing_ok=True)


def _updated(done: CommandResult) -> UpdateCounts:
    """The sum over all collections."""
    counts = [tuple(map(int, numbers)) for numbers in _INDEXED.findall(done.stdout)]
    return UpdateCounts(*(sum(column) for column in zip(*counts, strict=True))) if counts else UpdateCounts()


def _number(pattern: re.Pattern[str], done: CommandResult) -> int:
    told = pattern.search(done.stdout)
    return int(told[1]) if told else 0


_NS_A_DAY = 86_400_000_000_000
_EMPTY = "(empty)"


def export_sessions(
    config: QmdSessionsConfig,
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


def forget_session(config: QmdSessionsConfig, session_id: str, *, own_folder: bool) -> int:
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
