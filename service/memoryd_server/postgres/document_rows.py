"""DocumentRows: the rows of one agent's documents in one transaction."""

import posixpath
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256
from itertools import accumulate

from memoryd_server.errors import PathNotAllowed
from memoryd_server.model import DOCUMENT_DEVICE, FileStat
from memoryd_server.postgres.agent_database import AgentRows

MOST_NAME_BYTES = 255
"""The longest name of a file or folder, as in file systems, so that documents can be exported to a folder."""

_AT = "agent_id = %(agent)s AND path_key = md5(%(path)s) AND path = %(path)s"
_FIND = "SELECT path, sha256, size_bytes, version, mtime_ns FROM documents WHERE "
# One look-up in the key for each path, whatever the statistics of the server are.
_FIND_ALL = """SELECT found.* FROM unnest(%(paths)s::text[]) AS wanted CROSS JOIN LATERAL (
    SELECT path, sha256, size_bytes, version, mtime_ns FROM documents
    WHERE agent_id = %(agent)s AND path_key = md5(wanted) AND path = wanted LIMIT 1) AS found"""
_READ = """SELECT path, sha256, size_bytes, version, mtime_ns, CASE WHEN size_bytes <= %(most)s THEN content END
    FROM documents WHERE """
_PUT = """INSERT INTO documents(agent_id, path, content, sha256, size_bytes, version, mtime_ns)
    VALUES(%(agent)s, %(path)s, %(content)s, %(sha256)s, %(size)s, %(version)s, %(mtime_ns)s)
    ON CONFLICT (agent_id, path_key) DO UPDATE SET content = excluded.content, sha256 = excluded.sha256,
        size_bytes = excluded.size_bytes, version = excluded.version, mtime_ns = excluded.mtime_ns
        WHERE documents.path = excluded.path"""
_EXTEND = """UPDATE documents SET content = content || %(added)s, sha256 = %(sha256)s, size_bytes = %(size)s,
    version = %(version)s, mtime_ns = %(mtime_ns)s WHERE """
_MOVE = "UPDATE documents SET path = %(new_path)s, version = %(version)s WHERE "
_DELETE = "DELETE FROM documents WHERE "


@dataclass(frozen=True, slots=True)
class DocumentRow:
    """A stored document without its content. `version` is that of the write that stored it under this path.

    No other document of the same path, at any time, has this version.
    """

    path: str
    sha256: bytes
    size_bytes: int
    version: int
    mtime_ns: int

    @property
    def stat(self) -> FileStat:
        """The stat of the document, which changes with each of its versions."""
        return document_stat(self.size_bytes, self.mtime_ns, self.version)


def document_stat(size_bytes: int, mtime_ns: int, version: int) -> FileStat:
    """Return the stat of a document or transcript with a version."""
    return FileStat(size_bytes, mtime_ns, mtime_ns, DOCUMENT_DEVICE, version)


class DocumentRows:
    """The documents of one agent. To write, lock them first: `version` is then that of the write."""

    def __init__(self, rows: AgentRows) -> None:
        self._rows = rows

    def find(self, path: str) -> DocumentRow | None:
        """Return the document at a path, or None."""
        found = self._rows.all(_FIND + _AT, path=path)
        return DocumentRow(*found[0]) if found else None

    def find_all(self, paths: Sequence[str]) -> dict[str, DocumentRow]:
        """Return the documents at some paths, by path."""
        found = self._rows.all(_FIND_ALL, paths=list(paths)) if paths else []
        return {row[0]: DocumentRow(*row) for row in found}

    def read(self, path: str, most_bytes: int) -> tuple[DocumentRow, bytes | None] | None:
        """Return a document and its content; the content is None if it has more than `most_bytes` bytes."""
        found = self._rows.all(_READ + _AT, path=path, most=most_bytes)
        return (DocumentRow(*found[0][:-1]), found[0][-1]) if found else None

    def put(self, path: str, content: bytes, version: int, mtime_ns: int) -> None:
        """Create or replace a document.

        Raises:
            PathNotAllowed: another document has a path with the same hash.
        """
        digest = sha256(content).digest()
        values = {"content": content, "sha256": digest, "size": len(content), "version": version, "mtime_ns": mtime_ns}
        if not self._rows.run(_PUT, path=path, **values):
            raise PathNotAllowed(path, "another document has a path with the same MD5")

    def extend(self, path: str, content: bytes, added: int, version: int, mtime_ns: int) -> None:
        """Append the last `added` bytes of the new content of a document."""
        values = {"sha256": sha256(content).digest(), "size": len(content), "version": version, "mtime_ns": mtime_ns}
        self._rows.run(_EXTEND + _AT, path=path, added=content[len(content) - added :], **values)

    def move(self, path: str, new_path: str, version: int) -> None:
        """Change the path of a document to one that is free. It keeps its time, as a renamed file does."""
        self._rows.run(_MOVE + _AT, path=path, new_path=new_path, version=version)

    def delete(self, path: str) -> bool:
        """Delete a document; return whether there was one."""
        self._rows.connection.deletes_text = True
        return bool(self._rows.run(_DELETE + _AT, path=path))

    def require_place(self, path: str) -> None:
        """Check that a new document can have a path. It must also be possible in a folder, for exports.

        Raises:
            PathNotAllowed: a name in it is too long, or the path leads through a document or is a folder of one.
        """
        *folders, _ = names = path.split("/")
        if any(len(name.encode()) > MOST_NAME_BYTES for name in names):
            raise PathNotAllowed(path, f"a name in it is longer than {MOST_NAME_BYTES} bytes")
        above = [folder for folder in accumulate(folders, posixpath.join) if folder.endswith(".md")]
        if self.find_all(above):
            raise PathNotAllowed(path, "it leads through a link, or is not a regular file")
        query = """SELECT 1 FROM documents WHERE agent_id = %(agent)s AND is_below_file_name
            AND starts_with(path, %(folder)s) LIMIT 1"""
        if self._rows.all(query, folder=f"{path}/"):
            raise PathNotAllowed(path, "it is a link, a folder, a device or a pipe, not a regular file")
