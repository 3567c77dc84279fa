"""ForgottenRows: the forgotten sources of one agent in the database."""

from memoryd_server.postgres.agent_database import AgentDatabase
from memoryd_server.sources import ForgottenEntries

_FILES = "SELECT path, sha256 FROM forgotten_files WHERE agent_id = %(agent)s"
_SESSIONS = "SELECT session_id FROM forgotten_sessions WHERE agent_id = %(agent)s"
_ADD_FILE = """INSERT INTO forgotten_files(agent_id, path, sha256) VALUES(%(agent)s, %(path)s, %(sha256)s)
    ON CONFLICT (agent_id, path_key) DO UPDATE SET path = excluded.path, sha256 = excluded.sha256"""
_REMOVE_FILE = """DELETE FROM forgotten_files
    WHERE agent_id = %(agent)s AND path_key = md5(%(path)s) AND path = %(path)s"""
_ADD_SESSION = """INSERT INTO forgotten_sessions(agent_id, session_id) VALUES(%(agent)s, %(session)s)
    ON CONFLICT DO NOTHING"""


class ForgottenRows:
    """Keep the forgotten sources of one agent in the database. Blocks.

    Raises:
        IndexUnavailable, IndexBusy, IndexReadOnly, DiskFull: the database cannot be written. If the connection was lost
            during the commit, the change may be stored.
    """

    def __init__(self, database: AgentDatabase) -> None:
        self._database = database

    def load(self) -> ForgottenEntries:
        """Return all entries.

        Raises:
            IndexUnavailable, IndexBusy: the database cannot be read. Without the entries, their sources would be
                indexed again.
        """
        with self._database.read() as rows:
            files = {path: bytes(digest).hex() for path, digest in rows.all(_FILES)}
            return ForgottenEntries(files, frozenset(row[0] for row in rows.all(_SESSIONS)))

    def add_file(self, path: str, sha256: str) -> None:
        """Add a memory file, or replace its hash."""
        with self._database.write() as rows:
            rows.run(_ADD_FILE, path=path, sha256=bytes.fromhex(sha256))

    def remove_file(self, path: str) -> None:
        """Remove a memory file."""
        with self._database.write() as rows:
            rows.run(_REMOVE_FILE, path=path)

    def add_session(self, session_id: str) -> None:
        """Add a session."""
        with self._database.write() as rows:
            rows.run(_ADD_SESSION, session=session_id)
