"""The PostgreSQL server, the daemon and copies are killed under load: no acknowledged write is lost or stored twice."""

import itertools
import json
import random
import signal
import threading
import time

import pytest

from daemon_process import begin, end, memoryd
from e2e.crash_fixture import ends, kill, points
from e2e.daemon_fixture import client, last_event
from e2e.store_checks import check_index, check_writes
from e2e.store_workers import wait_for_progress, working
from memoryd.client import connect
from memoryd.messages import ON_CONFLICT_WAIT, SYNC_MODE_FULL
from postgres_server import missing, running_server
from waiting import wait_until

pytestmark = [
    pytest.mark.postgres,
    pytest.mark.faults,
    pytest.mark.slow,
    pytest.mark.timeout(300),
    pytest.mark.skipif(bool(missing()), reason=missing()),
]

SEED = 27
NUMBERS = itertools.count()


@pytest.fixture(scope="module")
def server():
    """A server of this file alone, whose commits survive its kills."""
    with running_server(durable=True) as server:
        yield server


@pytest.fixture
def database(server):
    """The name of an empty database."""
    name = f"kills{next(NUMBERS)}"
    server.create_database(name)
    return name


@pytest.fixture
def rows(server, database):
    """A function that returns the rows of a query of the superuser, who sees all agents."""

    def rows(query, *values):
        with server.admin(database) as connection:
            connection.execute("SET search_path = memoryd, public")
            return connection.execute(query, values).fetchall()

    return rows


def configure(daemons, server, database):
    """Keep everything of the daemon in the database."""
    sessions = {"sources": ["memory", "sessions"], "experimental": {"sessionMemory": True}}
    daemons.configure(search=sessions, writes="edit", store={"url": server.url_of(database)})


def test_a_daemon_outlives_kills_of_the_database_and_loses_no_write(daemons, server, database, rows):
    configure(daemons, server, database)
    served = daemons.start()
    with working(served.address) as workers:
        for seconds in points(3, 0.5, SEED):
            wait_for_progress(workers)
            time.sleep(seconds)
            server.kill()
            # Calls fail until the server answers again.
            time.sleep(seconds / 2)
            server.start()
        wait_for_progress(workers)
    assert served.process.poll() is None
    check_writes(workers, rows)
    with client(served) as connection:
        check_index(connection, rows, workers)
    assert end(served.process) == 0


def test_a_daemon_that_is_killed_while_it_appends_and_indexes_loses_nothing(daemons, server, database, rows):
    configure(daemons, server, database)
    write_notes(daemons.workspace, 300)
    assert import_folder(daemons).returncode == 0
    served = daemons.start()
    served, seconds = indexed(daemons, served)
    assert seconds > 0.2
    with working(served.address) as workers:
        interrupted = 0
        for delay in points(5, seconds, SEED):
            wait_for_progress(workers)
            sync = threading.Thread(target=sync_all, args=(served.address,))
            sync.start()
            wait_until(lambda: len(rows("SELECT generation FROM generations")) > 1)
            kill(served, delay)
            sync.join(60)
            interrupted += len(rows("SELECT generation FROM generations")) > 1
            served = daemons.start()
        wait_for_progress(workers)
    assert interrupted, "no kill came during a rebuild"
    with client(served) as connection:
        assert last_event(connection).failed_files == 0
    check_writes(workers, rows)
    with client(served) as connection:
        check_index(connection, rows, workers)
    assert len(rows("SELECT generation FROM generations")) == 1
    end(served.process)


def write_notes(folder, count):
    for number in range(count):
        file = folder / "memory" / str(number % 7) / f"note-{number}.md"
        file.parent.mkdir(parents=True, exist_ok=True)
        body = "\n".join(f"Line {line} of the reeds, number{number}z at {line * number % 97}." for line in range(40))
        file.write_text(f"# Note {number}\n\n{body}\n")


def command(daemons, verb, folder, *more):
    return [verb, "folder", str(folder), "--config", str(daemons.config), "--state-dir", str(daemons.state), *more]


def import_folder(daemons, *more):
    return memoryd(*command(daemons, "import", daemons.workspace, *more), home=daemons.home)


def indexed(daemons, served):
    """Return the daemon, and how long a rebuild of its index takes."""
    with client(served) as connection:
        assert last_event(connection).failed_files == 0
        began = time.monotonic()
        assert last_event(connection, mode=SYNC_MODE_FULL).failed_files == 0
        return served, time.monotonic() - began


def sync_all(address):
    with connect(address) as connection:
        # Appends start runs, too.
        ends(connection.sync(mode=SYNC_MODE_FULL, on_conflict=ON_CONFLICT_WAIT, timeout=60))


FILES = 500


def test_an_import_that_is_killed_repeatedly_copies_each_file_once(daemons, server, database, rows):
    configure(daemons, server, database)
    first = write_files(daemons.workspace, "first")
    began = time.monotonic()
    assert import_folder(daemons, "--dry-run").returncode == 0
    seconds = time.monotonic() - began
    for delay in points(6, 1.5 * seconds, SEED):
        copy = begin(*command(daemons, "import", daemons.workspace), home=daemons.home)
        kill_when(copy, after(delay))
        assert documents_of(rows).items() <= first.items()
    assert import_folder(daemons).returncode == 0
    assert documents_of(rows) == first
    assert not rows("SELECT FROM history_records")


def test_an_import_that_is_killed_between_two_batches_continues(daemons, server, database, rows):
    configure(daemons, server, database)
    files = write_files(daemons.workspace, "first")
    # It creates the tables.
    assert import_folder(daemons, "--dry-run").returncode == 0
    copy = begin(*command(daemons, "import", daemons.workspace), home=daemons.home)
    assert kill_when(copy, lambda: rows("SELECT FROM documents LIMIT 1"))
    stored = documents_of(rows)
    assert 0 < len(stored) < FILES
    assert stored.items() <= files.items()
    report = json.loads(import_folder(daemons, "--json").stdout)["files"]
    assert (report["copied"], report["equal"], report["verified"]) == (FILES - len(stored), len(stored), FILES)
    assert documents_of(rows) == files


def test_a_killed_replacement_of_documents_is_in_the_history_once(daemons, server, database, rows):
    configure(daemons, server, database)
    first = write_files(daemons.workspace, "first")
    assert import_folder(daemons).returncode == 0
    second = write_files(daemons.workspace, "second")
    chance = random.Random(SEED)

    def replaced():
        return sorted(path for (path,) in rows("SELECT path FROM history_records"))

    for _ in range(4):
        goal = len(replaced()) + chance.randrange(1, FILES // 5)
        copy = begin(*command(daemons, "import", daemons.workspace, "--replace"), home=daemons.home)
        assert kill_when(copy, lambda goal=goal: len(replaced()) >= goal)
        done = replaced()
        assert documents_of(rows) == {**first, **{path: second[path] for path in done}}
    assert import_folder(daemons, "--replace").returncode == 0
    assert documents_of(rows) == second
    assert replaced() == sorted(second)


def test_an_export_that_is_killed_repeatedly_leaves_no_partial_file(daemons, server, database):
    configure(daemons, server, database)
    first = write_files(daemons.workspace, "first")
    assert import_folder(daemons).returncode == 0
    out, chance = daemons.home / "out", random.Random(SEED)
    for _ in range(3):
        kill_export(daemons, out, chance.randrange(1, FILES // 5))
        assert markdown_of(out).items() <= first.items()
    assert memoryd(*command(daemons, "export", out), home=daemons.home).returncode == 0
    # No temporary file is left.
    assert files_of(out) == first
    second = write_files(daemons.workspace, "second")
    assert import_folder(daemons, "--replace").returncode == 0
    for _ in range(3):
        kill_export(daemons, out, chance.randrange(1, FILES // 5), "--replace")
        found = markdown_of(out)
        assert found == {path: second[path] if found[path] == second[path] else first[path] for path in first}
    assert memoryd(*command(daemons, "export", out, "--replace"), home=daemons.home).returncode == 0
    assert files_of(out) == second


def kill_export(daemons, out, count, *more):
    """Kill an export when it has written some more files."""
    before = inodes(out)
    copy = begin(*command(daemons, "export", out, *more), home=daemons.home)
    assert kill_when(copy, lambda: len(inodes(out).items() - before.items()) >= count)


def inodes(folder):
    return {file: file.stat().st_ino for file in folder.rglob("*.md")}


def write_files(folder, version):
    """Write memory files with some kilobytes of random bytes each, and return their contents."""
    chance = random.Random(version)
    for number in range(FILES):
        file = folder / "memory" / str(number % 9) / f"file {number}.md"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(f"{version} {number} ".encode() + chance.randbytes(chance.randrange(20_000)))
    return files_of(folder)


def files_of(folder):
    return {str(file.relative_to(folder)): file.read_bytes() for file in folder.rglob("*") if file.is_file()}


def markdown_of(folder):
    return {path: data for path, data in files_of(folder).items() if path.endswith(".md")}


def documents_of(rows):
    return {path: bytes(content) for path, content in rows("SELECT path, content FROM documents")}


def after(seconds):
    until = time.monotonic() + seconds
    return lambda: time.monotonic() >= until


def kill_when(process, condition):
    """Kill a process as soon as the condition is true; return whether it was still running then."""
    try:
        while process.poll() is None and not condition():
            time.sleep(0.005)
    finally:
        code = end(process, signal.SIGKILL)
    return code == -signal.SIGKILL
