"""A home of OpenClaw 2026.9.6 with ten sessions, an index with its sessions as sources, and a writer as the gateway's.

`tests/openclaw` has the database as OpenClaw's own functions wrote it. `HostWriter` appends to a copy of it with the
statements and pragmas of the gateway, as far as a reader can notice them.
"""

import json
import shutil
import time
import uuid
from pathlib import Path

import apsw

from memoryd_server.sources.compression import zstd
from memoryd_server.sources.folder_corpus import FolderCorpus
from memoryd_server.sources.session_source import open_transcript
from transcript_fixture import TranscriptFixture

FIXTURE = Path(__file__).parent / "openclaw"
EXPECTED = json.loads((FIXTURE / "expected.json").read_text())

MAIN = "11111111-1111-4111-8111-111111111111"
REWOUND = "55555555-5555-4555-8555-555555555555"
ARCHIVED = "88888888-8888-4888-8888-888888888888"
MIXED = "99999999-9999-4999-8999-999999999999"
COLD = "aaaaaaaa-aaaa-4aaa-8aaa-aaaaaaaaaaaa"


def path_of(session):
    return f"sessions/main/{session}.jsonl"


def copy_home(folder):
    """Copy the fixture's agent to `folder`/state; return the path of its database."""
    agent = folder / "state" / "agents" / "main"
    shutil.copytree(FIXTURE / "state" / "agents" / "main", agent, dirs_exist_ok=True)
    return agent / "agent" / "openclaw-agent.sqlite"


class OpenClawIndex(TranscriptFixture):
    """Hold an index and a copy of the fixture's home."""

    def __init__(self, folder, **options):
        super().__init__(folder, **options)
        self.database = copy_home(folder)
        self.corpus = FolderCorpus(self.roots, str(self.sessions), True, str(self.database), "main")

    def open_until(self, file, should_stop):
        return open_transcript(file, should_stop)

    def found_paths(self, query):
        """The paths of the files with a chunk that keyword search finds."""
        return sorted(set(self.found(query)))

    def writer(self):
        return HostWriter(self.database)


class HostWriter:
    """Write sessions as the gateway does: write-ahead log, and one transaction per event. A context manager."""

    def __init__(self, database):
        self.connection = apsw.Connection(str(database))
        for pragma in ("busy_timeout = 5000", "journal_mode = WAL", "synchronous = NORMAL", "foreign_keys = ON"):
            self.connection.execute(f"PRAGMA {pragma}")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.connection.close()

    def execute(self, sql, *values):
        return self.connection.execute(sql, values)

    def value(self, sql, *values):
        row = self.execute(sql, *values).fetchone()
        return None if row is None else row[0]

    def create(self, session, key):
        """Make a session with its header."""
        now = int(time.time() * 1000)
        with self.transaction():
            self.execute(
                "INSERT INTO session_nodes(session_key, current_session_id, entry_json, updated_at) VALUES(?,?,?,?)"
                " ON CONFLICT DO UPDATE SET current_session_id = excluded.current_session_id",
                *(key, session, "{}", now),
            )
            self.execute(
                "INSERT INTO session_windows(session_id, session_key, created_at, updated_at) VALUES(?,?,?,?)",
                *(session, key, now, now),
            )
            self.execute("INSERT INTO transcript_rewrite_watermarks VALUES(?,?,?)", session, uuid.uuid4().hex, now)
            self._insert(session, 0, {"type": "session", "version": 4, "id": session}, now)

    def say(self, session, text, role="user", *, compressed=False, parent=True, **more):
        """Append a message to the active branch, or to the event `parent`; return its id."""
        message = {"role": role, "content": text, **more}
        return self.append(session, {"type": "message", "message": message}, compressed=compressed, parent=parent)

    def append(self, session, event, *, compressed=False, parent=True):
        """Append an event. A `parent` other than the leaf is a rewind: the active branch is rebuilt later."""
        now = int(time.time() * 1000)
        with self.transaction():
            last = self.value("SELECT max(seq) FROM transcript_events WHERE session_id = ?", session)
            leaf = self.value("SELECT leaf_event_id FROM session_transcript_index_state WHERE session_id = ?", session)
            record = {**event, "id": str(uuid.uuid4()), "parentId": leaf if parent is True else parent}
            self._insert(session, last + 1, record, now, compressed=compressed)
            rewound = record["parentId"] != leaf
            if not rewound:
                self.execute(
                    "INSERT INTO session_transcript_active_events(session_id, active_position, event_seq,"
                    " message_position) SELECT ?, count(*), ?, NULL FROM session_transcript_active_events"
                    " WHERE session_id = ?",
                    *(session, last + 1, session),
                )
            self.execute(
                "INSERT INTO session_transcript_index_state(session_id, indexed_seq, leaf_event_id, needs_rebuild,"
                " updated_at) VALUES(?,?,?,?,?) ON CONFLICT DO UPDATE SET indexed_seq = excluded.indexed_seq,"
                " leaf_event_id = excluded.leaf_event_id, needs_rebuild = max(needs_rebuild, excluded.needs_rebuild)",
                *(session, last + 1, record["id"], int(rewound), now),
            )
        return record["id"]

    def rewrite(self, session, number, text):
        """Replace the text of a message: the generation of the session changes."""
        with self.transaction():
            event = json.loads(
                self.value("SELECT event_json FROM transcript_events WHERE session_id = ? AND seq = ?", session, number)
            )
            event["message"]["content"] = text
            self.execute(
                "UPDATE transcript_events SET event_json = ? WHERE session_id = ? AND seq = ?",
                *(json.dumps(event), session, number),
            )
            self.execute(
                "UPDATE transcript_rewrite_watermarks SET generation = ? WHERE session_id = ?",
                uuid.uuid4().hex,
                session,
            )
            self._touch(session, int(time.time() * 1000))

    def delete(self, session, archive_name=None, data=b""):
        """Remove a session, and keep its log as a row if `archive_name` is given."""
        with self.transaction():
            key = self.value("SELECT session_key FROM session_windows WHERE session_id = ?", session)
            self.execute("DELETE FROM session_nodes WHERE session_key = ?", key)
            self.execute("DELETE FROM session_windows WHERE session_id = ?", session)
            if archive_name:
                self.execute(
                    "INSERT INTO session_transcript_archives(session_id, generation, session_key, reason, encoding,"
                    " archive_blob, archive_sha256, archive_name, created_at) VALUES(?,?,?,'deleted','zstd',?,?,?,?)",
                    *(session, uuid.uuid4().hex, key, zstd.compress(data), "0" * 64, archive_name, 1),
                )

    def transaction(self):
        return _Transaction(self.connection)

    def _insert(self, session, number, event, now, *, compressed=False):
        text = json.dumps(event)
        frame = zstd.compress(text.encode()) if compressed else None
        self.execute(
            "INSERT INTO transcript_events(session_id, seq, event_json, event_zstd, event_utf8_bytes, created_at,"
            " navigation_json) VALUES(?,?,?,?,?,?,?)",
            *(session, number, None if compressed else text, frame, len(text.encode()), now),
            _NAVIGATION if compressed else None,
        )
        self.execute(
            "INSERT INTO transcript_event_identities(session_id, event_id, seq, event_type, parent_id, created_at)"
            " VALUES(?,?,?,?,?,?)",
            *(session, event["id"], number, event["type"], event.get("parentId"), now),
        )
        self._touch(session, now)

    def _touch(self, session, now):
        self.execute(
            "UPDATE session_windows SET transcript_updated_at = max(?, coalesce(transcript_updated_at, 0) + 1)"
            " WHERE session_id = ?",
            *(now, session),
        )


_NAVIGATION = json.dumps(
    {
        "version": 1,
        "report": {"kind": "canonical"},
        "navigation": {},
        "reset": {},
        "model": {},
        "modelBytes": 0,
        "modelWithoutCheckpointBytes": 0,
        "withoutCustomDataBytes": 0,
    }
)


class _Transaction:
    def __init__(self, connection):
        self._connection = connection

    def __enter__(self):
        self._connection.execute("BEGIN IMMEDIATE")

    def __exit__(self, kind, *_):
        self._connection.execute("COMMIT" if kind is None else "ROLLBACK")
