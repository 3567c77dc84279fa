"""A workspace, a history of writes, and editors of it."""

import itertools
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path

from memoryd_server.renames import Renames
from memoryd_server.sources import Roots
from memoryd_server.sqlite import SqliteWriteHistory
from memoryd_server.writing import MoveJob, NewContent, RestoreJob, WriteJob
from memoryd_server.writing.editor import Editor

LIMIT = 1 << 20
YEAR_SECONDS = 365 * 86_400
NOW_MS = 1_770_000_000_000

# All renames; then without each of the steps that some file systems do not have.
SYSTEMS = {
    "all": Renames(),
    "no exchange": Renames(exchanges=False),
    "links only": Renames(exchanges=False, to_free_names=False),
    "no links": Renames(exchanges=False, links=False),
    "plain renames only": Renames(exchanges=False, to_free_names=False, links=False),
}


def digest(data):
    return None if data is None else sha256(data).digest()


@dataclass
class EditFixture:
    """Edits files as the daemon does for one agent. Ids are numbered, so that every run has the same names."""

    folder: Path
    renames: object = None
    wrap: object = staticmethod(lambda history: history)
    prefix: str = "id"
    agent: str = "main"
    history: object = field(init=False)
    editor: object = field(init=False)

    def __post_init__(self):
        self.workspace = self.folder / "workspace"
        self.workspace.mkdir(parents=True, exist_ok=True)
        state = self.folder / "state" / "memory"
        state.mkdir(parents=True, exist_ok=True)
        self.history_path = state / f"{self.agent}.history.sqlite"
        self.ledger = state / f"{self.agent}.appends"
        self.open()

    def open(self):
        numbers = itertools.count(1)
        self.history = self.wrap(
            SqliteWriteHistory(
                self.history_path, max_age_seconds=YEAR_SECONDS, max_bytes=1 << 28, now_ms=lambda: NOW_MS
            )
        )
        roots = Roots(str(self.workspace))
        self.editor = Editor(
            roots,
            self.history,
            max_file_bytes=LIMIT,
            now_ms=lambda: NOW_MS,
            new_id=lambda: f"{self.prefix}{next(numbers)}",
            renames=self.renames,
        )
        return self

    def close(self):
        self.history.close()

    def file(self, path):
        return self.workspace / path

    def put(self, path, data):
        """Write a file as another program does."""
        file = self.file(path)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(data)
        return file

    def data(self, path):
        """Return the bytes of a file, None if it is missing."""
        file = self.file(path)
        return file.read_bytes() if file.exists() else None

    def files(self):
        """Return the bytes of every file, by path: also of temporary files."""
        found = sorted(file for file in self.workspace.rglob("*") if file.is_file())
        return {str(file.relative_to(self.workspace)): file.read_bytes() for file in found}

    def write(self, path, change, **more):
        """Write with the content that the file has now as the expected one, unless another is given."""
        if isinstance(change, bytes):
            change = NewContent(change)
        if "expected" not in more:
            more["expected"] = digest(self.data(path))
        return self.editor.edit(WriteJob(path=path, change=change, **more))

    def move(self, path, new_path, **more):
        if "expected" not in more:
            more["expected"] = digest(self.data(path))
        return self.editor.edit(MoveJob(path=path, new_path=new_path, **more))

    def restore(self, version_id, path="", **more):
        if "expected" not in more:
            more["expected"] = digest(self.data(path or self.history.get(version_id).path))
        return self.editor.edit(RestoreJob(version_id=version_id, path=path, **more))

    def kinds(self, path=""):
        """Return the kinds of the writes in the history, oldest first."""
        return [record.kind.value for record in reversed(self.history.records(path, older_than=None, limit=1000))]


def replace_file(file, data):
    """Save a file as editors do that rename a new file over it."""
    beside = file.with_name("beside.tmp")
    beside.write_bytes(data)
    beside.rename(file)
