"""The connection to OpenClaw's database: short transactions, a replaced file, and databases that cannot be read."""

import itertools
import os
import shutil
import tempfile
from pathlib import Path

import apsw
import pytest

from memoryd_server.errors import FileNotFound, PathNotAllowed
from memoryd_server.sources.session_database import SessionDatabase, SessionDatabaseUnusable, change_signature
from openclaw_home import MAIN, HostWriter, copy_home

EVENTS = "SELECT seq FROM transcript_events WHERE session_id = :session AND seq > :after ORDER BY seq"
TEXTS = EVENTS.replace("seq FROM", "seq, coalesce(event_json, event_zstd) FROM")


@pytest.fixture
def database(tmp_path):
    return copy_home(tmp_path)


def pages(database, sql=EVENTS, **limits):
    with SessionDatabase(str(database), **limits) as opened:
        return [[row[0] for row in page] for page in opened.pages(sql, {"session": MAIN}, -1)]


def test_the_rows_of_all_pages_are_the_rows_of_the_statement(database):
    assert pages(database) == [list(range(14))]
    assert pages(database, page_rows=5) == [[0, 1, 2, 3, 4], [5, 6, 7, 8, 9], [10, 11, 12, 13]]


def test_a_transaction_ends_at_its_bytes(database):
    assert pages(database, TEXTS, page_bytes=1) == [[number] for number in range(14)]


def test_a_transaction_ends_at_its_time(database):
    ticks = itertools.count()
    # The clock advances by 10 ms whenever it is read: at the beginning, and after each row.
    split = pages(database, monotonic=lambda: next(ticks) / 100, page_seconds=0.035)
    assert split == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10, 11], [12, 13]]


def test_no_transaction_is_open_between_two_pages(database):
    with HostWriter(database) as writer, SessionDatabase(str(database), page_rows=5) as opened:
        found = opened.pages(EVENTS, {"session": MAIN}, -1)
        next(found)
        writer.say(MAIN, "The quince is ripe.")
        # A reader in a transaction would keep a checkpoint from completing.
        assert writer.value("PRAGMA wal_checkpoint(TRUNCATE)") == 0
        assert [row[0] for page in found for row in page] == list(range(5, 15))


def test_a_replaced_database_is_opened_again(database):
    with SessionDatabase(str(database), page_rows=5) as opened:
        found = opened.pages(EVENTS, {"session": MAIN}, -1)
        next(found)
        other = copy_home(database.parents[4] / "other")
        with HostWriter(other) as writer:
            writer.say(MAIN, "The quince is ripe.")
            writer.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        other.replace(database)
        assert [row[0] for page in found for row in page] == list(range(5, 15))


def test_a_replaced_database_of_another_version_is_not_read(database):
    with SessionDatabase(str(database), page_rows=5) as opened:
        found = opened.pages(EVENTS, {"session": MAIN}, -1)
        next(found)
        other = copy_home(database.parents[4] / "other")
        with HostWriter(other) as writer:
            writer.execute("PRAGMA user_version = 24")
            writer.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        other.replace(database)
        with pytest.raises(SessionDatabaseUnusable, match="schema version 24"):
            next(found)


def test_a_database_that_is_removed_while_it_is_read_is_missing(database):
    with SessionDatabase(str(database), page_rows=5) as opened:
        found = opened.pages(EVENTS, {"session": MAIN}, -1)
        next(found)
        database.unlink()
        with pytest.raises(FileNotFound):
            next(found)


@pytest.mark.parametrize(
    ("make", "error"),
    [
        (lambda path: None, FileNotFound),
        (lambda path: path.mkdir(), PathNotAllowed),
        (lambda path: path.symlink_to("/etc/hostname"), PathNotAllowed),
        (os.mkfifo, PathNotAllowed),
        (lambda path: path.write_bytes(b""), SessionDatabaseUnusable),
        (lambda path: path.write_bytes(b"SQLite format 3\0" + bytes(5000)), SessionDatabaseUnusable),
    ],
    ids=["missing", "folder", "link", "pipe", "empty", "damaged"],
)
def test_what_is_no_database_of_sessions_is_an_error(tmp_path, make, error):
    path = tmp_path / "openclaw-agent.sqlite"
    make(path)
    with pytest.raises(error):
        SessionDatabase(str(path))
    assert [each for each in tmp_path.iterdir() if each != path] == []


def test_the_database_of_another_role_is_not_read(database):
    with HostWriter(database) as writer:
        writer.execute("UPDATE schema_meta SET role = 'state'")
    with pytest.raises(SessionDatabaseUnusable, match="'state'"):
        SessionDatabase(str(database))


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE schema_meta SET role = printf('%.*c', 6000000, 'x')",
        "UPDATE sqlite_schema SET sql = 'x', name = printf('%.*c', 6000000, 'x') WHERE name = 'transcript_events'",
    ],
)
def test_errors_do_not_contain_long_values_of_the_database(database, change):
    with HostWriter(database) as writer:
        writer.execute("PRAGMA ignore_check_constraints = ON")
        writer.execute("PRAGMA writable_schema = ON")
        writer.execute(change)
    with pytest.raises(SessionDatabaseUnusable) as refused:
        SessionDatabase(str(database)).row(EVENTS, {"session": MAIN, "after": -1})
    assert len(str(refused.value)) < 1000


@pytest.mark.parametrize("owner", ["other", "Main", "", "main " + "x" * 10_000])
def test_the_database_of_another_agent_is_not_read(database, owner):
    with HostWriter(database) as writer:
        writer.execute("UPDATE schema_meta SET agent_id = ?", owner)
    with pytest.raises(SessionDatabaseUnusable, match="not to 'main'") as refused:
        SessionDatabase(str(database), "main")
    assert len(str(refused.value)) < 1000


def test_a_database_without_an_owner_is_read(database):
    SessionDatabase(str(database), "main").close()
    with HostWriter(database) as writer:
        writer.execute("UPDATE schema_meta SET agent_id = NULL")
    SessionDatabase(str(database), "main").close()


ENDLESS = "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n)"


@pytest.mark.attacks
@pytest.mark.timeout(60)
@pytest.mark.parametrize(
    "replacement",
    [
        f"CREATE VIEW {{0}} AS {ENDLESS} SELECT 'primary' AS meta_key, max(x) AS role, NULL AS agent_id FROM n",
        "CREATE VIRTUAL TABLE {0} USING fts5(meta_key, role, agent_id)",
    ],
    ids=["view", "virtual"],
)
@pytest.mark.parametrize("table", ["schema_meta", "session_nodes", "session_transcript_archives"])
def test_only_ordinary_tables_are_read(database, table, replacement):
    with HostWriter(database) as writer:
        writer.execute("PRAGMA foreign_keys = OFF")
        writer.execute(f"DROP TABLE {table}")
        writer.execute(replacement.format(table))
    with pytest.raises(SessionDatabaseUnusable, match=f"has no table {table}"):
        SessionDatabase(str(database))


@pytest.mark.attacks
@pytest.mark.timeout(60)
def test_a_query_that_takes_too_long_is_interrupted(database):
    ticks = itertools.count()
    # The clock advances by a second whenever it is read.
    with SessionDatabase(str(database), monotonic=lambda: float(next(ticks)), query_seconds=20) as opened:
        with pytest.raises(SessionDatabaseUnusable, match="a query took too long"):
            opened.row(f"{ENDLESS} SELECT max(x) FROM n", {})
        # The time is that of one transaction.
        assert [[row[0] for row in page] for page in opened.pages(EVENTS, {"session": MAIN}, -1)][-1] == [13]


def test_a_locked_database_is_unusable_and_can_be_read_later(database):
    # On network volumes, OpenClaw uses no write-ahead log, and a writer excludes readers.
    writer = apsw.Connection(str(database))
    writer.execute("PRAGMA journal_mode = DELETE")
    writer.execute("BEGIN EXCLUSIVE")
    with pytest.raises(SessionDatabaseUnusable, match="locked"):
        SessionDatabase(str(database), busy_seconds=0.05)
    writer.execute("COMMIT")
    writer.close()
    assert pages(database) == [list(range(14))]


def test_uncommitted_changes_are_not_read_while_their_journal_exists(database):
    # The state of a gateway without a write-ahead log that was killed during a transaction: pages are written already.
    writer = apsw.Connection(str(database))
    for pragma in ("journal_mode = DELETE", "synchronous = OFF", "cache_size = 1"):
        writer.execute(f"PRAGMA {pragma}")
    writer.execute("BEGIN; DELETE FROM transcript_events WHERE seq > 2")
    killed = database.with_name("killed.sqlite")
    for suffix in ("", "-journal"):
        shutil.copy(f"{database}{suffix}", f"{killed}{suffix}")
    writer.execute("ROLLBACK")
    writer.close()
    with pytest.raises(SessionDatabaseUnusable, match="readonly"):
        pages(killed)
    with HostWriter(killed):
        assert pages(killed) == [list(range(14))]


def test_nothing_is_written_through_the_connection(database):
    with SessionDatabase(str(database)) as opened, pytest.raises(SessionDatabaseUnusable, match="readonly"):
        opened.row("UPDATE schema_meta SET role = 'x'", {})


def test_each_append_changes_the_signature_and_each_read_does_not(database):
    with HostWriter(database) as writer:
        writer.say(MAIN, "One.")
        seen = [change_signature(str(database))]
        pages(database)
        assert change_signature(str(database)) == seen[0]
        for number in range(20):
            writer.say(MAIN, f"Message {number}.")
            seen.append(change_signature(str(database)))
    assert len(set(seen)) == len(seen)


only_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become a user without access")


@pytest.fixture
def shown():
    """A database that every user may read, in a folder that only root may write."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        database = copy_home(folder)
        for path in (folder, *folder.rglob("*")):
            path.chmod(0o755 if path.is_dir() else 0o644)
        yield database


@only_root
def test_a_user_who_may_not_write_beside_the_database_reads_it_while_the_gateway_is_stopped(shown):
    before = sorted(shown.parent.iterdir())
    assert _without_privileges(lambda: pages(shown)) == str([list(range(14))])
    assert sorted(shown.parent.iterdir()) == before


@only_root
@pytest.mark.parametrize("suffix", ["-wal", "-journal"])
def test_a_transaction_that_begins_while_such_a_user_reads_ends_the_reading(shown, suffix):
    def work():
        with SessionDatabase(str(shown), page_rows=5) as opened:
            found = opened.pages(EVENTS, {"session": MAIN}, -1)
            next(found)
            os.seteuid(0)
            Path(f"{shown}{suffix}").touch()
            os.seteuid(_NOBODY)
            return next(found)

    assert "was changed while it was read" in _without_privileges(work)


_NOBODY = 65534


def _without_privileges(work):
    """Return the text of what `work` returns or raises in a child process without rights, which can regain them."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.setgroups([])
            os.setresgid(_NOBODY, _NOBODY, _NOBODY)
            os.setresuid(_NOBODY, _NOBODY, 0)
            text = str(work())
        except BaseException as error:  # noqa: BLE001 -- the parent compares it
            text = repr(error)
        os.write(writer, text.encode())
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as stream:
        text = stream.read()
    os.waitpid(child, 0)
    return text
