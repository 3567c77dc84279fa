"""Copies the files that tests write into the documents of a database, and changed documents into files.

With `--store=documents`, tests still write and read files, which are copied before and after each call.
"""

import asyncio
import threading
import time
from contextlib import closing, contextmanager
from pathlib import Path

import grpc

from memoryd_server.postgres import Database, DatabaseConfig, PostgresWriteHistory, TranscriptRows
from memoryd_server.postgres.document_rows import DocumentRows

OWN_FILES = {"MEMORY.md", "memory.md", "USER.md", "DREAMS.md", ".memoryignore"}


def is_document(path):
    """Return whether a path below a workspace can be that of a document."""
    return path in OWN_FILES or (path.startswith("memory/") and path.endswith((".md", "/.memoryignore")))


def files_below(folder):
    """Return (path, file) of each regular file below a folder that has a name in UTF-8."""
    for file in sorted(folder.rglob("*")):
        path = str(file.relative_to(folder))
        if file.is_file() and not file.is_symlink() and path.isprintable():
            yield path, file


class DocumentMirror:
    """The folders of agents and their documents in the database at `url`, which are copied in both directions.

    Thread-safe. Blocks. A file that has changed in both places is taken from the folder.
    """

    def __init__(self, url):
        self._database = Database(DatabaseConfig(url))
        self._guard = threading.Lock()
        # The copied content of each file, by agent and path, and the version of each document.
        self._copied, self._versions = {}, {}

    @contextmanager
    def _history(self, agent_id):
        limits = {"max_age_seconds": 1e6, "max_bytes": 0, "now_ms": lambda: time.time_ns() // 1_000_000}
        with self._guard, closing(PostgresWriteHistory(self._database, agent_id, **limits)) as history:
            yield history.documents()

    def store(self, agent_id, workspace, state_dir):
        """Store the files of an agent that have changed since the last call, and delete those that are gone."""
        with self._history(agent_id) as database:
            copied, versions = self._copied.setdefault(agent_id, {}), self._versions.setdefault(agent_id, {})
            found = {path: file for path, file in files_below(Path(workspace)) if is_document(path)}
            sessions = files_below(state_dir / "agents" / agent_id / "sessions")
            found |= {path: file for path, file in sessions if path.endswith(".jsonl")}
            for path in copied.keys() - found.keys():
                self._change(database, path, None, 0)
                del copied[path]
                versions.pop(path, None)
            for path, file in found.items():
                data = file.read_bytes()
                if copied.get(path) != data:
                    versions[path] = self._change(database, path, data, file.stat().st_mtime_ns)
                    copied[path] = data

    def _change(self, database, path, data, mtime_ns):
        """Store a document or a transcript, or delete it, and return the version of the document."""
        if path.endswith(".jsonl"):
            transcripts, session_id = TranscriptRows(database, lambda: mtime_ns // 1_000_000), Path(path).stem
            before = self._copied.get(database.agent_id, {}).get(path, b"")
            if data is None or not data.startswith(before):
                transcripts.delete_session(session_id)
                before = b""
            if data is not None:
                transcripts.append(session_id, data.removeprefix(before).splitlines())
            return 0
        with database.write() as rows:
            version = rows.lock_documents()
            if data is None:
                DocumentRows(rows).delete(path)
            else:
                DocumentRows(rows).put(path, data, version, mtime_ns)
        return version

    def load(self, agent_id, workspace):
        """Write the documents of an agent that have changed since `store`, and delete the files of deleted ones."""
        with self._history(agent_id) as database:
            before = {path: each for path, each in self._versions.get(agent_id, {}).items() if each}
            now = _versions(database)
            copied = self._copied.setdefault(agent_id, {})
            for path in before.keys() - now.keys():
                (Path(workspace) / path).unlink(missing_ok=True)
                copied.pop(path, None)
            for path in [path for path, version in now.items() if before.get(path) != version]:
                with database.read() as rows:
                    _, copied[path] = DocumentRows(rows).read(path, 2**31 - 1)
                file = Path(workspace) / path
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_bytes(copied[path])
            self._versions[agent_id] = now


def _versions(database):
    with database.read() as rows:
        return dict(rows.all("SELECT path, version FROM documents WHERE agent_id = %(agent)s"))


class Mirroring(grpc.aio.UnaryUnaryClientInterceptor):
    """Copies changed files into the database before each call, and changed documents into the folders after it."""

    def __init__(self, home):
        self._home = home

    async def intercept_unary_unary(self, continuation, details, request):
        await asyncio.to_thread(self._home.store_files)
        call = await continuation(details, request)
        await call.code()
        await asyncio.to_thread(self._home.load_files)
        return call


class MirroringStreams(grpc.aio.UnaryStreamClientInterceptor):
    """Copies changed files into the database before each call that returns a stream."""

    def __init__(self, home):
        self._home = home

    async def intercept_unary_stream(self, continuation, details, request):
        await asyncio.to_thread(self._home.store_files)
        return await continuation(details, request)
