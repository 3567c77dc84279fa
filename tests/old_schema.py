"""An index as the last memoryd of schema 4 or 6 left it, made from a current one."""

import apsw

ADDED = {
    "files": ("day", "rows_version", "skipped"),
    "chunks": ("line_origins", "origin", "day", "importance", "triggers", "projects"),
}


def downgrade_to_6(path):
    """Remove from the index at `path`, which must be closed, what schema 7 added."""
    connection = apsw.Connection(str(path))
    try:
        for statement in (
            "DROP TABLE front_matter",
            "DROP INDEX files_by_date",
            "DROP INDEX chunks_by_file",
            "CREATE INDEX chunks_by_file ON chunks(file_id)",
            "ALTER TABLE files DROP COLUMN date",
            "DELETE FROM meta WHERE key = 'touches'",
            "PRAGMA user_version=6",
        ):
            connection.execute(statement).fetchall()
    finally:
        connection.close()


def downgrade(path):
    """Remove from the index at `path`, which must be closed, what schemas 5 to 7 added."""
    downgrade_to_6(path)
    connection = apsw.Connection(str(path))
    try:
        for index in ("files_by_day", "chunks_by_day"):
            connection.execute(f"DROP INDEX {index}")
        for table, columns in ADDED.items():
            for column in columns:
                connection.execute(f"ALTER TABLE {table} DROP COLUMN {column}")
        connection.execute("DELETE FROM meta WHERE key = 'annotated'")
        connection.execute("PRAGMA user_version=4").fetchall()
    finally:
        connection.close()


def filled(path):
    """Return the columns that schema 5 added, by the place of their chunk, and the days and front matter of files."""
    connection = apsw.Connection(str(path))
    try:
        columns = ", ".join(f"chunks.{column}" for column in ADDED["chunks"])
        chunks = connection.execute(
            f"SELECT path, start_line, chunks.text, {columns} FROM chunks JOIN files ON files.id = file_id"
        ).fetchall()
        files = connection.execute("SELECT path, day, rows_version, date FROM files").fetchall()
        front_matter = connection.execute("SELECT path, key, value FROM front_matter JOIN files ON files.id = file_id")
        return sorted(chunks, key=str), sorted(files, key=str), sorted(front_matter)
    finally:
        connection.close()


def vectors(path):
    """Return each chunk id with its vector."""
    connection = apsw.Connection(str(path))
    try:
        return dict(connection.execute("SELECT chunk_id, embedding FROM vectors").fetchall())
    finally:
        connection.close()
