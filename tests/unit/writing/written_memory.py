"""The memory of one agent behind the protocol of a writer, for the tests that every writer has to pass."""

import uuid
from hashlib import sha256
from typing import ClassVar

from memoryd_server.sources import FolderCorpus, Roots
from memoryd_server.sqlite import SqliteWriteHistory
from memoryd_server.writing import AppendJob, FolderWriter, MoveJob, NewContent, RestoreJob, WriteJob

LIMIT = 10_000
YEAR_SECONDS = 365 * 86_400
NOW_MS = 1_770_000_000_000
LIMITS = {"max_age_seconds": YEAR_SECONDS, "max_bytes": 1 << 28, "now_ms": lambda: NOW_MS}


def digest(data):
    return None if data is None else sha256(data).digest()


class WrittenMemory:
    """Writes as the daemon does for one agent. A subclass sets `writer`, `history` and `corpus`."""

    options: ClassVar = {"max_file_bytes": LIMIT, "now_ms": lambda: NOW_MS, "new_id": lambda: uuid.uuid4().hex}

    def close(self):
        self.history.close()

    def files(self):
        """Return the bytes of every memory file by path."""
        found = [file for file in self.corpus.discover().files if file.path.startswith(("M", "m", "U"))]
        return {file.path: self.corpus.read(file, 1 << 30)[0] for file in found}

    def data(self, path):
        return self.files().get(path)

    def append(self, text, path="memory/note.md", **request):
        return self.writer.append(AppendJob(text, path=path, **request))

    def write(self, path, change, **more):
        """Write with the content that the file has now as the expected one, unless another is given."""
        if "expected" not in more:
            more["expected"] = digest(self.data(path))
        return self.writer.edit(
            WriteJob(path=path, change=NewContent(change) if isinstance(change, bytes) else change, **more)
        )

    def move(self, path, new_path, **more):
        if "expected" not in more:
            more["expected"] = digest(self.data(path))
        return self.writer.edit(MoveJob(path=path, new_path=new_path, **more))

    def restore(self, version_id, path="", **more):
        if "expected" not in more:
            more["expected"] = digest(self.data(path or self.history.get(version_id).path))
        return self.writer.edit(RestoreJob(version_id=version_id, path=path, **more))

    def records(self, path=""):
        """Return the writes in the history, oldest first, with the contents that they replaced."""
        found = self.history.records(path, older_than=None, limit=1000)
        return [(each, each.before and self.history.content(each.before)) for each in reversed(found)]


class FolderMemory(WrittenMemory):
    """The memory files of a workspace."""

    def __init__(self, folder):
        self.workspace = folder / "workspace"
        self.workspace.mkdir(parents=True, exist_ok=True)
        self.roots = Roots(str(self.workspace))
        self.state = folder / "state"
        self.state.mkdir(exist_ok=True)
        self.open()

    def open(self):
        self.history = SqliteWriteHistory(self.state / "main.history.sqlite", **LIMITS)
        ledger = str(self.state / "main.appends")
        self.writer = FolderWriter("main", self.roots, self.history, ledger_path=ledger, **self.options)
        self.corpus = FolderCorpus(self.roots, agent_id="main")

    def put(self, path, data):
        """Store a file as its owner does."""
        file = self.workspace / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(data)
