"""Writes of documents that run at the same time or lose their connection are done once, or not at all."""

import importlib
import tempfile
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from memoryd_server.errors import ContentChanged, IndexUnavailable, InvalidRequest
from memoryd_server.writing import FileDeletion, LineInsertion, TextReplacement
from postgres_server import DATABASE
from unit.postgres.lossy_proxy import LossyProxy
from unit.store.contract import document, never
from unit.writing.written_memory import LIMIT, digest
from waiting import wait_until

pytestmark = pytest.mark.postgres

NOTE = "memory/note.md"
THREADS = 5
WRITES = 50


@pytest.fixture
def lossy(postgres_module):
    """A proxy to the server, and a database behind it."""
    with tempfile.TemporaryDirectory(prefix="pg-", dir="/tmp") as folder:
        proxy = LossyProxy(postgres_module.server.folder, folder)
        database = postgres_module.database(f"postgresql://memoryd@/{DATABASE}?host={folder}&application_name=lossy")
        database.attach()
        yield proxy, database
        proxy.on_request = None
        database.detach()
        proxy.close()


def in_threads(work, count=WRITES):
    with ThreadPoolExecutor(THREADS) as pool:
        return list(pool.map(work, range(count)))


def test_edits_at_the_same_time_lose_no_update(new_memory, postgres_module):
    memories = [new_memory(database=postgres_module.database()) for _ in range(2)]
    memories[0].write(NOTE, b"start\n")

    def edit(number):
        memory = memories[number % 2]
        while True:
            data, _ = memory.corpus.read(memory.corpus.resolve(NOTE), LIMIT)
            try:
                return memory.write(NOTE, LineInsertion(1, b"%d" % number), expected=digest(data))
            except ContentChanged:
                continue

    in_threads(edit)
    lines = memories[0].data(NOTE).decode().split()
    assert (lines[0], sorted(lines[1:], key=int)) == ("start", [str(number) for number in range(WRITES)])
    assert len(memories[0].records(NOTE)) == WRITES + 1
    versions = [before for _, before in memories[1].records(NOTE)]
    assert versions[1:] == sorted(versions[1:], key=len)


def test_appends_at_the_same_time_are_all_written_once(new_memory, postgres_module):
    memories = [new_memory(database=postgres_module.database()) for _ in range(2)]

    def append(number):
        # Each text is sent twice, to both daemons.
        return [memory.append(f"text {number}", idempotency_key=f"k{number}") for memory in memories]

    receipts = in_threads(append)
    lines = memories[0].data(NOTE).decode().splitlines()
    assert sorted(lines) == sorted(f"text {number}" for number in range(WRITES))
    for number, (first, second) in enumerate(receipts):
        assert (first.already_appended, second.already_appended) == (False, True)
        assert first.start_line == second.start_line
        assert lines[first.start_line - 1] == f"text {number}"


def test_appends_and_edits_at_the_same_time_lose_no_text(new_memory, postgres_module):
    memories = [new_memory(database=postgres_module.database()) for _ in range(2)]
    memories[0].write(NOTE, b"start\n")

    def write(number):
        memory = memories[number % 2]
        if number % 3:
            return memory.append(f"{number}")
        while True:
            data, _ = memory.corpus.read(memory.corpus.resolve(NOTE), LIMIT)
            try:
                return memory.write(NOTE, LineInsertion(1, b"%d" % number), expected=digest(data))
            except ContentChanged:
                continue

    in_threads(write)
    assert sorted(memories[0].data(NOTE).split()) == sorted([b"start", *(b"%d" % number for number in range(WRITES))])


def test_a_key_that_is_used_by_two_requests_at_the_same_time_is_used_once(new_memory, postgres_module):
    memories = [new_memory(database=postgres_module.database()) for _ in range(2)]
    barrier = threading.Barrier(2)

    def append(number):
        barrier.wait()
        try:
            return memories[number].append(f"text {number}", idempotency_key="k")
        except InvalidRequest:
            return None

    receipts = in_threads(append, 2)
    assert receipts.count(None) == 1
    assert memories[0].data(NOTE).count(b"\n") == 1


def test_only_the_newest_keys_are_kept(new_memory, postgres_module):
    memory = new_memory(kept_keys=3)
    for number in range(6):
        memory.append("text", idempotency_key=f"k{number}")
    assert [memory.append("text", idempotency_key=f"k{number}").already_appended for number in (3, 4, 5)] == [True] * 3
    assert not memory.append("text", idempotency_key="k0").already_appended
    with postgres_module.server.admin(DATABASE) as admin:
        query = "SELECT key FROM memoryd.append_keys WHERE agent_id = %s ORDER BY key"
        assert admin.execute(query, (memory.agent,)).fetchall() == [("k0",), ("k4",), ("k5",)]
        query = "SELECT append_keys FROM memoryd.document_states WHERE agent_id = %s"
        assert admin.execute(query, (memory.agent,)).fetchone() == (3,)


WRITES_WITH_A_KEY = {
    "append": lambda memory: memory.append("more", idempotency_key="k"),
    "create": lambda memory: memory.write("memory/new.md", b"more", expected=None, key="k", request_sha256="r"),
    "replace": lambda memory: memory.write(
        NOTE, TextReplacement(b"text", b"more"), expected=digest(b"text\n"), key="k", request_sha256="r"
    ),
    "delete": lambda memory: memory.write(
        NOTE, FileDeletion(), expected=digest(b"text\n"), key="k", request_sha256="r"
    ),
    "move": lambda memory: memory.move(NOTE, "memory/new.md", expected=digest(b"text\n"), key="k", request_sha256="r"),
}
AFTER = {
    "append": {NOTE: b"text\nmore\n"},
    "create": {NOTE: b"text\n", "memory/new.md": b"more"},
    "replace": {NOTE: b"more\n"},
    "delete": {},
    "move": {"memory/new.md": b"text\n"},
}


def check_repeated(memory, name, write, *, was_lost):
    """Repeat a write that failed, and check that it was done once."""
    before = memory.files()
    receipt = write(memory)
    already = receipt.already_appended if name == "append" else receipt.already
    assert before == (AFTER[name] if already else {NOTE: b"text\n"})
    assert memory.files() == AFTER[name]
    assert len(memory.records()) == (1 if name == "append" else 2)
    again = write(memory)
    assert again.already_appended if name == "append" else again.already
    assert memory.files() == AFTER[name]
    if not was_lost:
        assert already
    return already


@pytest.mark.parametrize("name", WRITES_WITH_A_KEY)
@pytest.mark.parametrize("action", ["lose", "lose the answer"])
def test_a_connection_that_is_lost_at_the_commit_leads_to_one_write(new_memory, lossy, name, action):
    proxy, database = lossy
    memory, write = new_memory(database=database), WRITES_WITH_A_KEY[name]
    memory.write(NOTE, b"text\n")
    seen = []

    def on_request(data):
        """Apply the action to the commit of the transaction that locks the documents."""
        if (b"document_states" in data and not seen) or (b"COMMIT" in data and len(seen) == 1):
            seen.append(data)
            return action if b"COMMIT" in data else "forward"
        return "forward"

    proxy.on_request = on_request
    with pytest.raises(IndexUnavailable, match=r"PostgreSQL server.* may be stored") as caught:
        write(memory)
    assert caught.value.retry_after_seconds
    proxy.on_request = None
    assert check_repeated(memory, name, write, was_lost=True) == (action == "lose the answer")


@pytest.mark.parametrize("name", WRITES_WITH_A_KEY)
def test_a_write_whose_session_the_server_ends_is_done_once(new_memory, lossy, postgres_module, name):
    """The server ends the session before each of the requests of which the write consists."""
    proxy, database = lossy
    write = WRITES_WITH_A_KEY[name]
    outcomes = []
    with postgres_module.server.admin(DATABASE) as admin:
        for moment in range(100):
            memory = new_memory(f"{name} {moment} {id(proxy)}", database=database)
            memory.write(NOTE, b"text\n")
            requests = []

            def on_request(data, moment=moment, requests=requests):
                requests.append(data)
                if len(requests) == moment + 1:
                    query = """SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity
                        WHERE starts_with(application_name, 'lossy ')"""
                    assert (True,) in admin.execute(query).fetchall()
                return "forward"

            proxy.on_request = on_request
            failure = None
            try:
                write(memory)
            except IndexUnavailable as error:
                failure = error.message
            proxy.on_request = None
            failed = failure is not None
            assert ("may be stored" in (failure or "")) == (failed and b"COMMIT" in requests[-1])
            outcomes.append((failed, check_repeated(memory, name, write, was_lost=failed)))
            memory.close()
            if len(requests) <= moment:
                break
    # The first request begins a transaction, and is repeated on another connection.
    assert outcomes[0] == (False, True)
    assert (True, False) in outcomes
    assert outcomes[-1] == (False, True)


def test_a_damaged_content_is_not_restored_and_is_reported(new_memory, postgres_module):
    memory = new_memory()
    memory.write(NOTE, b"one")
    version = memory.write(NOTE, b"two").version_id
    with postgres_module.server.admin(DATABASE) as admin:
        query = "UPDATE memoryd.history_contents SET data = 'x' WHERE agent_id = %s AND digest = %s"
        assert admin.execute(query, (memory.agent, digest(b"one"))).rowcount == 1
    errors = importlib.import_module("memoryd_server.errors")
    with pytest.raises(errors.VersionNotFound, match="no longer"):
        memory.restore(version)
    assert memory.data(NOTE) == b"two"
    (issue,) = memory.writer.issues()
    assert "damaged" in issue


def test_missing_tables_are_lost_documents_and_not_a_damaged_index(postgres_module, new_memory):
    url = postgres_module.server.create_database("lost_documents")
    memory = new_memory("main", database=postgres_module.database(url))
    memory.append("text")
    with postgres_module.server.admin("lost_documents") as admin:
        admin.execute("DROP SCHEMA memoryd CASCADE")
    for call in (lambda: memory.append("text"), memory.corpus.discover):
        with pytest.raises(IndexUnavailable, match="backup") as caught:
            call()
        assert type(caught.value) is IndexUnavailable


def downgrade(admin, version):
    """Make the tables of a version again from those of the present one."""
    admin.execute("DROP TABLE memoryd.replicas, memoryd.leases")
    admin.execute("ALTER TABLE memoryd.document_states DROP COLUMN edits_paused_by")
    if version < 2:
        tables = importlib.import_module("memoryd_server.postgres.document_tables").DOCUMENT_TABLES
        admin.execute(f"DROP TABLE {', '.join(f'memoryd.{table}' for table in tables)}")
    admin.execute("DELETE FROM memoryd.schema_migrations WHERE version > %s", (version,))


@pytest.mark.parametrize("version", [1, 2])
def test_tables_of_an_older_version_are_upgraded(postgres_module, new_memory, version):
    schema = importlib.import_module("memoryd_server.postgres.schema")
    name = f"upgraded_{version}"
    url = postgres_module.server.create_database(name)
    memory = new_memory("main", database=postgres_module.database(url))
    memory.append("one")
    store = postgres_module.new_store("main", memory.database)
    store.open()
    store.writer().write([document("a.md", ("heron", ""))])
    store.close()
    memory.close()
    with postgres_module.server.admin(name) as admin:
        downgrade(admin, version)
    memory = new_memory("main", database=postgres_module.database(url))
    memory.append("two")
    memory.write(NOTE, b"three")
    assert memory.files() == {NOTE: b"three"}
    assert [before for _, before in memory.records()] == [b"two\n" if version == 1 else b"one\ntwo\n"]
    store = postgres_module.new_store("main", memory.database, keeps_lease=False)
    store.open()
    with store.exclusive(never):
        store.writer().write([document("b.md", ("heron", ""))])
    with store.read() as reader:
        assert sorted(path for _, path in reader.files()) == ["a.md", "b.md"]
    store.close()
    with postgres_module.server.admin(name) as admin:
        found = admin.execute("SELECT max(version) FROM memoryd.schema_migrations").fetchone()
        assert found == (schema.SCHEMA_VERSION,)


def test_a_pause_whose_begin_may_be_stored_does_not_last(new_memory, lossy, postgres_module):
    proxy, database = lossy
    paused, other = new_memory(database=database), new_memory(database=postgres_module.database())
    seen = []

    def on_request(data):
        """Lose the answer to the commit of the transaction that begins the pause."""
        if b"SET edits_paused_by" in data or (b"COMMIT" in data and len(seen) == 1):
            seen.append(data)
        return "lose the answer" if len(seen) == 2 and data is seen[1] else "forward"

    proxy.on_request = on_request
    with pytest.raises(IndexUnavailable, match="may be stored"), paused.writer.paused():
        pass
    query = "SELECT edits_paused_by FROM memoryd.document_states WHERE agent_id = %s"
    with postgres_module.server.admin(DATABASE) as admin:
        wait_until(lambda: admin.execute(query, (paused.agent,)).fetchone() == (None,), seconds=10)
    other.write(NOTE, b"text\n")


def test_other_replicas_learn_of_a_change_of_the_index_whose_commit_was_not_answered(postgres_module, lossy, request):
    proxy, database = lossy
    agent, changed = request.node.name, threading.Event()
    store = postgres_module.new_store(agent, database, keeps_lease=False)
    other = postgres_module.new_store(agent, postgres_module.database(), keeps_lease=False)
    other.watch(changed.set)
    for each in (store, other):
        each.open()
    # The listener calls its watchers once it is connected.
    assert changed.wait(10)
    changed.clear()
    seen = []

    def on_request(data):
        """Lose the answer to the commit of the transaction that raises the revision."""
        if b"SET revision" in data or (b"COMMIT" in data and len(seen) == 1):
            seen.append(data)
        return "lose the answer" if len(seen) == 2 and data is seen[1] else "forward"

    proxy.on_request = on_request
    with pytest.raises(IndexUnavailable), store.exclusive(never):
        store.writer().write([document(NOTE, ("heron", ""))])
    assert changed.wait(10)
    with other.read() as reader:
        assert reader.files()
    for each in (store, other):
        each.close()
