"""Whether this SQLite can do what the index needs, found out by doing it."""

import apsw

from memoryd_server.index.connection import scalar
from memoryd_server.store.identity import TOKENIZER


def sqlite_version() -> str:
    """The version of the SQLite in use."""
    return str(apsw.sqlite_lib_version())


def sqlite_options() -> tuple[str, ...]:
    """What it was compiled with, such as "ENABLE_FTS5"."""
    return tuple(apsw.compile_options)


def probe_keyword_engine() -> None:
    """Builds a keyword table in memory, fills it and finds the row again.

    Raises:
        apsw.Error: SQLite lacks something.
        LookupError: the row was not found, or has no rank.
    """
    connection = apsw.Connection(":memory:")
    table = f"CREATE VIRTUAL TABLE t USING fts5(body, content='', contentless_delete=1, tokenize=\"{TOKENIZER}\")"
    connection.execute(table)
    connection.execute("INSERT INTO t(rowid, body) VALUES(1, 'harbour light')")
    rank = scalar(connection, "SELECT bm25(t) FROM t WHERE t MATCH 'harbour'")
    connection.close()
    if rank is None or rank >= 0:
        raise LookupError("FTS5 does not rank contentless tables")
