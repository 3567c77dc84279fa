"""An index as the last memoryd of schema 4 left it, made from a current one."""

import apsw

ADDED = {
    "files": ("day", "rows_version", "skipped"),
    "chunks": ("line_origins", "origin", "day", "importance", "triggers", "projects"),
}


def downgrade(path):
    """Remove from the index at `path`, which must be closed, what schemas 5 and 6 added."""
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
    """Return the columns that schema 5 added, by the place of their chunk, and the day of each file."""
    connection = apsw.Connection(str(path))
    try:
        columns = ", ".join(f"chunks.{column}" for column in ADDED["chunks"])
        chunks = connection.execute(
            f"SELECT path, start_line, chunks.text, {columns} FROM chunks JOIN files ON files.id = file_id"
        ).fetchall()
        files = connection.execute("SELECT path, day, rows_version FROM files").fetchall()
        return sorted(chunks, key=str), sorted(files, key=str)
    finally:
        connection.close()


def vectors(path):
    """Return each chunk id with its vector."""
    connection = apsw.Connection(str(path))
    try:
        return dict(connection.execute("SELECT chunk_id, embedding FROM vectors").fetchall())
    finally:
        connection.close()
