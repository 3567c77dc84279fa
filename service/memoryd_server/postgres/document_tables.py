"""The tables of documents: memory files, transcripts, idempotency keys of appends, and forgotten sources."""

from typing import Final

DOCUMENT_STATEMENTS: Final = (
    # One row per agent, which every write locks. `next_version` is the version of the next write; `append_keys` is the
    # number of rows in the table of this name.
    """CREATE TABLE document_states(
        agent_id text COLLATE "C" PRIMARY KEY CHECK (agent_id <> ''),
        next_version bigint NOT NULL,
        append_keys bigint NOT NULL)""",
    # Contents are bytes, because memory files need not be valid UTF-8. No path can be that of a document and of a
    # folder, so that an export to a folder is always possible. `is_below_file_name` selects the few documents below a
    # folder that has the name of a Markdown file.
    """CREATE TABLE documents(
        agent_id text COLLATE "C" NOT NULL,
        path text COLLATE "C" NOT NULL,
        path_key text COLLATE "C" GENERATED ALWAYS AS (md5(path)) STORED,
        content bytea NOT NULL,
        sha256 bytea NOT NULL,
        size_bytes bigint NOT NULL,
        version bigint NOT NULL,
        mtime_ns bigint NOT NULL,
        is_below_file_name boolean GENERATED ALWAYS AS (path LIKE '%.md/%') STORED,
        PRIMARY KEY(agent_id, path_key))""",
    "CREATE INDEX documents_below_file_names ON documents(agent_id) WHERE is_below_file_name",
    # `version` is that of the append that used the key, so the newest keys have the highest versions.
    """CREATE TABLE append_keys(
        agent_id text COLLATE "C" NOT NULL,
        key text COLLATE "C" NOT NULL,
        path text COLLATE "C" NOT NULL,
        request_sha256 text NOT NULL,
        start_line bigint NOT NULL,
        end_line bigint NOT NULL,
        version bigint NOT NULL,
        appended_at_ms bigint NOT NULL,
        PRIMARY KEY(agent_id, key))""",
    "CREATE INDEX append_keys_by_version ON append_keys(agent_id, version)",
    """CREATE TABLE forgotten_files(
        agent_id text COLLATE "C" NOT NULL,
        path text COLLATE "C" NOT NULL,
        path_key text COLLATE "C" GENERATED ALWAYS AS (md5(path)) STORED,
        sha256 bytea NOT NULL,
        PRIMARY KEY(agent_id, path_key))""",
    """CREATE TABLE forgotten_sessions(
        agent_id text COLLATE "C" NOT NULL,
        session_id text COLLATE "C" NOT NULL,
        PRIMARY KEY(agent_id, session_id))""",
    # `version` is that of the write that created the transcript. It tells a new transcript from a deleted one with the
    # same name.
    """CREATE TABLE transcripts(
        agent_id text COLLATE "C" NOT NULL,
        name text COLLATE "C" NOT NULL,
        records bigint NOT NULL,
        size_bytes bigint NOT NULL,
        version bigint NOT NULL,
        mtime_ns bigint NOT NULL,
        PRIMARY KEY(agent_id, name))""",
    # The bytes from `first_byte` on; `records_before` is the number of records that end before it.
    """CREATE TABLE transcript_parts(
        agent_id text COLLATE "C" NOT NULL,
        name text COLLATE "C" NOT NULL,
        first_byte bigint NOT NULL,
        records_before bigint NOT NULL,
        data bytea NOT NULL,
        PRIMARY KEY(agent_id, name, first_byte))""",
    "CREATE INDEX transcript_parts_by_record ON transcript_parts(agent_id, name, records_before, first_byte)",
)

DOCUMENT_TABLES: Final = (
    "document_states",
    "documents",
    "append_keys",
    "forgotten_files",
    "forgotten_sessions",
    "transcripts",
    "transcript_parts",
)
"""The tables that `DOCUMENT_STATEMENTS` create."""
