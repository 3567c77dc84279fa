"""`memoryd migrate`: a home of a real daemon is copied into a database, and answers from there as before."""

import gzip
import hashlib
import itertools
import json
import shutil
import signal
import time
from contextlib import contextmanager
from pathlib import Path

import pytest

from daemon_process import begin, end, memoryd
from e2e.daemon_fixture import client, last_event
from fake_providers import embedding_server
from memoryd.client import MemorydError
from memoryd.messages import SEARCH_MODE_KEYWORD, SEARCH_MODE_VECTOR
from memoryd_server.sqlite import SqliteWriteHistory
from memoryd_server.store import WriteKind, WriteRecord
from postgres_server import missing, postgres_server  # noqa: F401 -- a fixture
from waiting import wait_until

pytestmark = [
    pytest.mark.postgres,
    pytest.mark.timeout(300),
    pytest.mark.skipif(bool(missing()), reason=missing()),
]

NUMBERS = itertools.count()
SCHEMAS = Path(__file__).parents[1] / "unit" / "sqlite" / "data"
MODEL = "words-of-a-test"
NOTES = 40
QUERIES = ("heron", "number7x", "bittern", "ferry", "harbour crane")
MESSAGE = '{{"type":"message","message":{{"role":"user","content":"the bittern booms in session {0}x"}}}}\n'
NONE = dict.fromkeys(("copied", "equal", "verified"), 0)


def sha256(text):
    return hashlib.sha256(text.encode()).hexdigest()


class Home:
    """A home with a daemon on files, and then on a database."""

    def __init__(self, daemons, provider, server):
        self.daemons = daemons
        self.provider = provider
        self.server = server
        self.name = f"migrate{next(NUMBERS)}"
        self.url = server.create_database(self.name)
        self.sessions = daemons.state / "agents" / "main" / "sessions"
        self.on_files()

    def on_files(self):
        self._configure()

    def on_database(self):
        self._configure(store={"url": self.url})

    def _configure(self, **more):
        search = {
            "provider": "openai-compatible",
            "model": MODEL,
            "remote": {"baseUrl": self.provider.url},
            "sources": ["memory", "sessions"],
            "experimental": {"sessionMemory": True},
        }
        self.daemons.configure(watch=False, search=search, writes="edit", **more)

    @contextmanager
    def serving(self):
        served = self.daemons.start()
        try:
            with client(served) as connection:
                yield connection
        finally:
            end(served.process)

    def command(self, *more):
        daemons = self.daemons
        places = ("--config", daemons.config, "--state-dir", daemons.state, "--workspace", daemons.workspace)
        return ["migrate", *map(str, places), *map(str, more)]

    def migrate(self, *more):
        return memoryd(*self.command(*more), home=self.daemons.home)

    def report(self, *more, status=0):
        done = self.migrate("--json", *more)
        assert done.returncode == status, done.stderr
        return json.loads(done.stdout)

    def rows(self, query, *values):
        with self.server.admin(self.name) as connection:
            connection.execute("SET search_path = memoryd, public")
            return connection.execute(query, values).fetchall()

    def files(self):
        """Return the bytes, the times and the modes of all files of the old home, but not of the settings."""
        found = {}
        for folder in (self.daemons.state, self.daemons.workspace):
            for file in folder.rglob("*"):
                if file.is_file() and file != self.daemons.config and not file.name.startswith("memoryd."):
                    status = file.stat()
                    found[str(file)] = (file.read_bytes(), status.st_mtime_ns, status.st_mode)
        return found

    def stored(self):
        """Return everything that a migration writes, without the versions of documents."""
        return {
            "documents": self.rows("SELECT path, sha256, mtime_ns FROM documents ORDER BY path"),
            "records": self.rows("SELECT * FROM history_records ORDER BY sequence"),
            "contents": self.rows("SELECT digest, bytes, data FROM history_contents ORDER BY digest"),
            "histories": self.rows("SELECT next_sequence, bytes FROM histories"),
            "keys": self.rows("SELECT key, path, request_sha256, start_line FROM append_keys ORDER BY version"),
            "counts": self.rows("SELECT append_keys FROM document_states"),
            "vectors": self.rows("SELECT model, hash, embedding, used_at_ms FROM cached_vectors ORDER BY hash"),
            "forgotten": self.rows("SELECT path, sha256 FROM forgotten_files ORDER BY path"),
            "forgotten sessions": self.rows("SELECT session_id FROM forgotten_sessions ORDER BY session_id"),
            "usage": self.rows("SELECT model, calls, tokens FROM provider_usage"),
            "transcripts": self.rows("SELECT name, records, size_bytes, mtime_ns FROM transcripts ORDER BY name"),
            "parts": self.rows(
                "SELECT name, string_agg(data, '' ORDER BY first_byte) FROM transcript_parts GROUP BY 1"
            ),
        }


@pytest.fixture
def provider():
    with embedding_server() as server:
        yield server


@pytest.fixture
def home(daemons, provider, postgres_server):  # noqa: F811 -- the fixture
    return Home(daemons, provider, postgres_server)


def fill(home):
    """Write the memory of a daemon on files, and return what it answers; the daemon is stopped then."""
    for number in range(NOTES):
        home.daemons.write(f"memory/note-{number}.md", f"# Note {number}\n\nthe heron waits at number{number}x\n")
    home.daemons.write("memory/harbour.md", "# Harbour\n\nthe crane lifts the ferry\n")
    home.daemons.write("memory/secret.md", "a heron that is forgotten")
    home.sessions.mkdir(parents=True)
    for number in range(3):
        (home.sessions / f"s{number}.jsonl").write_text(MESSAGE.format(number) * 2)
    with home.serving() as connection:
        connection.append(text="the ferry sails", path="memory/log.md", idempotency_key="append-1")
        connection.append(text="at dawn", path="memory/log.md", idempotency_key="append-2", heading="Evening")
        connection.write(path="memory/edited.md", content="dawn\n", idempotency_key="edit-1")
        connection.write(
            path="memory/edited.md", expected_sha256=sha256("dawn\n"), content="noon\n", idempotency_key="edit-2"
        )
        connection.move(path="memory/edited.md", new_path="memory/moved.md", expected_sha256=sha256("noon\n"))
        connection.write(path="memory/gone.md", content="a gull\n")
        connection.write(path="memory/gone.md", expected_sha256=sha256("a gull\n"), delete_file={})
        assert last_event(connection).failed_files == 0
        connection.forget(path="memory/secret.md")
        connection.forget(session_id="s2")
        assert last_event(connection).failed_files == 0
        return answers(connection)


def answers(connection):
    """Return the results of searches, and the history."""
    found = {}
    for query, mode in itertools.product(QUERIES, (SEARCH_MODE_KEYWORD, SEARCH_MODE_VECTOR)):
        results = connection.search(query=query, mode=mode, max_results=50, min_score=0.0).results
        found[query, mode] = sorted(
            (each.path, each.start_line, each.snippet, round(each.score, 4)) for each in results
        )
    return found, history(connection)


def history(connection):
    versions = connection.history(include_diffs=True, page_size=50).versions
    return [each.SerializeToString(deterministic=True) for each in versions]


def test_a_migrated_home_answers_from_the_database_as_before(home, provider):
    before = fill(home)
    files = home.files()
    home.on_database()
    report = home.report()
    assert home.files() == files
    assert (report["complete"], report["unconfigured"], report["dryRun"]) == (True, [], False)
    parts = report["agents"]["main"]
    counts = {name: (part["copied"], part["verified"], part["equal"]) for name, part in parts.items()}
    stored = home.stored()
    assert counts == {
        "forgotten": (2, 2, 0),
        "history": (5, 5, 0),
        "appendKeys": (2, 2, 0),
        "vectors": (len(stored["vectors"]), len(stored["vectors"]), 0),
        "indexVectors": (0, len(stored["vectors"]) - 3, len(stored["vectors"]) - 3),
        "providers": (1, 1, 0),
        "files": (NOTES + 4, NOTES + 4, 0),
        "transcripts": (3, 3, 0),
    }
    again = home.report()["agents"]["main"]
    assert {name: part["copied"] for name, part in again.items()} == dict.fromkeys(counts, 0)
    assert home.stored() == stored
    with home.serving() as connection:
        provider.requests.clear()
        assert last_event(connection).failed_files == 0
        assert provider.texts == []
        assert answers(connection) == before
        check_keys(connection)
        check_undo(connection)


def check_keys(connection):
    first = connection.append(text="the ferry sails", path="memory/log.md", idempotency_key="append-1")
    again = connection.append(text="at dawn", path="memory/log.md", idempotency_key="append-2", heading="Evening")
    assert (first.already_appended, again.already_appended) == (True, True)
    assert (first.start_line, again.start_line) == (1, 3)
    content = connection.get(path="memory/log.md").text
    assert content.count("the ferry sails") == 1
    with pytest.raises(MemorydError, match="was used before with other contents"):
        connection.append(text="another", path="memory/log.md", idempotency_key="append-1")
    edit = connection.write(
        path="memory/edited.md", expected_sha256=sha256("dawn\n"), content="noon\n", idempotency_key="edit-2"
    )
    assert edit.already_written


def check_undo(connection):
    deletion, _, move, noon, dawn = connection.history(page_size=50).versions
    assert connection.restore(version_id=deletion.version_id).path == "memory/gone.md"
    assert connection.get(path="memory/gone.md").text == "a gull\n"
    connection.restore(version_id=noon.version_id, path="memory/moved.md", expected_sha256=sha256("noon\n"))
    assert connection.get(path="memory/moved.md").text == "dawn\n"
    assert [each.version_id for each in connection.history(path="memory/moved.md", page_size=50).versions][1:] == [
        each.version_id for each in (move, noon, dawn)
    ]


@pytest.mark.slow
def test_the_old_home_can_be_used_again(home):
    before = fill(home)
    home.on_database()
    text = home.migrate().stdout
    assert "remove\nmemoryd.store.url from the settings" in text
    home.on_files()
    with home.serving() as connection:
        assert answers(connection) == before


def test_a_running_daemon_on_the_files_is_refused_and_a_dry_run_writes_nothing(home):
    fill(home)
    served = home.daemons.start()
    try:
        with client(served) as connection:
            connection.append(text="of a running daemon", path="memory/log.md", idempotency_key="append-3")
            connection.write(path="memory/late.md", content="late\n")
        home.on_database()
        refused = home.migrate()
        assert refused.returncode != 0
        assert f"a daemon (process {served.process.pid}), or another migration, uses" in refused.stderr
        assert "stop the daemon, then repeat the command" in refused.stderr
        dry = home.report("--dry-run")["agents"]["main"]
        assert (dry["history"]["copied"], dry["appendKeys"]["copied"], dry["transcripts"]["copied"]) == (6, 3, 3)
        assert dry["vectors"]["copied"] > NOTES
        assert not any(home.stored().values())
        assert home.migrate("--dry-run").stdout.startswith("Agent main, workspace ")
    finally:
        end(served.process)
    assert home.report()["complete"]


def test_writes_of_a_killed_daemon_are_copied(home):
    fill(home)
    served = home.daemons.start()
    with client(served) as connection:
        connection.append(text="acknowledged", path="memory/log.md", idempotency_key="append-3")
        connection.write(path="memory/late.md", content="late\n", idempotency_key="edit-3")
    end(served.process, signal.SIGKILL)
    # The rows are in the log, which only a copy of the files may apply.
    assert any(file.stat().st_size for file in (home.daemons.state / "memory").glob("*-wal"))
    files = home.files()
    home.on_database()
    report = home.report()
    assert (report["complete"], report["agents"]["main"]["history"]["copied"]) == (True, 6)
    assert home.files() == files
    with home.serving() as connection:
        again = connection.append(text="acknowledged", path="memory/log.md", idempotency_key="append-3")
        assert again.already_appended
        assert connection.write(path="memory/late.md", content="late\n", idempotency_key="edit-3").already_written


@pytest.mark.slow
def test_a_migration_that_is_killed_at_several_points_ends_with_the_same_rows(home):
    fill(home)
    home.on_database()
    assert home.report()["complete"]
    wanted = home.stored()
    # Something of each part is stored, and the next ones are not.
    tables = ("forgotten_files", "history_records", "append_keys", "cached_vectors", "documents")
    interrupted = 0
    for table in tables:
        empty(home)
        kill_when(home, lambda table=table: home.rows(f"SELECT FROM {table} LIMIT 1"))
        interrupted += home.stored() != wanted
        assert home.report()["complete"]
        assert home.stored() == wanted, table
    assert interrupted > 1


def empty(home):
    tables = home.rows("SELECT tablename FROM pg_tables WHERE schemaname = 'memoryd'")
    names = [name for (name,) in tables if name != "schema_migrations"]
    with home.server.admin(home.name) as connection:
        connection.execute("SET search_path = memoryd, public")
        for name in names:
            connection.execute(f"DELETE FROM {name}")


def kill_when(home, condition):
    process = begin(*home.command(), home=home.daemons.home)
    try:
        while process.poll() is None and not condition():
            time.sleep(0.002)
    finally:
        end(process, signal.SIGKILL)


def test_a_running_daemon_of_the_database_indexes_what_is_copied(home):
    fill(home)
    home.on_database()
    with home.serving() as connection:
        assert home.report()["complete"]
        wait_until(lambda: connection.search(query="ferry", mode=SEARCH_MODE_KEYWORD).results, 30)
        assert not connection.search(query="forgotten", mode=SEARCH_MODE_KEYWORD).results
        append = connection.append(text="the ferry sails", path="memory/log.md", idempotency_key="append-1")
        assert append.already_appended


def test_an_interrupted_edit_is_settled_by_the_daemon_and_then_copied(home):
    fill(home)
    path, draft = home.daemons.workspace / "memory" / "harbour.md", ".harbour.md.draft"
    before, after = path.read_bytes(), b"# Harbour\n\nclosed\n"
    unfinished = WriteRecord(
        version_id="interrupted",
        path="memory/harbour.md",
        kind=WriteKind.REPLACE_CONTENT,
        time_ms=time.time_ns() // 1_000_000,
        caller="tests",
        before=hashlib.sha256(before).digest(),
        before_bytes=len(before),
        after=hashlib.sha256(after).digest(),
        after_bytes=len(after),
        draft=draft,
    )
    path_of_history = home.daemons.state / "memory" / "main.history.sqlite"
    history = SqliteWriteHistory(path_of_history, max_age_seconds=1e6, max_bytes=1 << 30, now_ms=lambda: 0)
    history.begin(unfinished, before, after)
    history.close()
    path.with_name(draft).write_bytes(after)
    home.on_database()
    refused = home.migrate()
    assert refused.returncode == 1
    assert "the edit of memory/harbour.md was interrupted: start the daemon once" in refused.stderr
    assert home.report(status=1)["agents"]["main"].keys() == {"interrupted"}
    assert home.rows("SELECT FROM documents") == []
    home.on_files()
    with home.serving():
        pass
    home.on_database()
    assert home.report()["complete"]
    # The edit was not in effect.
    assert home.rows("SELECT content FROM documents WHERE path = 'memory/harbour.md'") == [(before,)]
    assert len(home.rows("SELECT FROM history_records")) == 5


def test_other_content_of_the_database_is_kept_and_listed(home):
    fill(home)
    home.on_database()
    assert home.report()["complete"]
    with home.serving() as connection:
        last_event(connection)
        content = connection.get(path="memory/moved.md").content_sha256
        connection.write(path="memory/moved.md", expected_sha256=content, content="evening\n")
        connection.append(text="later", path="memory/log.md", idempotency_key="append-3")
    before = home.stored()
    done = home.migrate()
    assert done.returncode == 1
    for words in ("memory/moved.md differs in the database and was kept", "memory/log.md differs in the database"):
        assert words in done.stderr
    assert "memory/moved.md, version " in done.stderr
    report = home.report(status=1)["agents"]["main"]
    assert sorted(report["files"]["conflicts"]) == ["memory/log.md", "memory/moved.md"]
    assert (len(report["history"]["conflicts"]), report["history"]["equal"]) == (1, 5)
    assert home.stored() == before


def test_what_is_not_copied_is_listed(home, tmp_path):
    fill(home)
    (home.sessions / "s0.jsonl.reset.2026-01-01T00-00-00.000Z").write_text(MESSAGE.format(9))
    (home.sessions / "s1.jsonl.deleted.2026-01-01T00-00-00.000Z.zst").write_bytes(b"")
    (home.daemons.state / "memory" / "main.history.sqlite").write_bytes(b"no database" * 1000)
    with (home.daemons.state / "memory" / "main.appends").open("a") as ledger:
        ledger.write("no entry\n")
    home.on_database()
    done = home.migrate()
    assert done.returncode == 1
    for words in (
        "s0.jsonl.reset.2026-01-01T00-00-00.000Z it is not the current transcript",
        "s1.jsonl.deleted.2026-01-01T00-00-00.000Z.zst is a compressed archive",
        "main.history.sqlite was not copied: it is damaged",
        "main.appends 1 of its lines cannot be read",
    ):
        assert words in done.stderr, done.stderr
    report = home.report(status=1)["agents"]["main"]
    assert (report["files"]["equal"], report["appendKeys"]["equal"]) == (NOTES + 4, 2)


@pytest.mark.parametrize("version", range(1, 7))
def test_a_home_of_memoryd_0_1_0_is_copied_and_not_upgraded(home, version):
    home.daemons.write("memory/harbour.md", "# Harbour\n\nThe crane lifts containers.\n")
    folder = home.daemons.state / "memory"
    folder.mkdir()
    (folder / "main.sqlite").write_bytes(gzip.decompress((SCHEMAS / f"schema_{version}.sqlite.gz").read_bytes()))
    (folder / "main.appends").write_text(json.dumps(first_entry("memory/harbour.md")) + "\n")
    files = home.files()
    home.on_database()
    report = home.report()
    assert (report["complete"], report["agents"]["main"]["appendKeys"]["copied"]) == (True, 1)
    assert home.files() == files
    with home.serving() as connection:
        last_event(connection)
        assert [hit.path for hit in connection.search(query="crane").results] == ["memory/harbour.md"]


def first_entry(path):
    """An entry of the first ledgers, without a checksum."""
    return {
        "key": "k",
        "path": path,
        "offset": 0,
        "length": 1,
        "block_sha256": "",
        "request_sha256": "",
        "start_line": 1,
        "end_line": 1,
        "state": "done",
    }


@pytest.mark.slow
def test_the_cache_of_memoryd_0_1_0_is_found_under_its_former_name(home, provider):
    fill(home)
    folder = home.daemons.state / "memory"
    for file in list(folder.glob("main.memoryd.*")):
        file.rename(file.with_name(file.name.replace("main.memoryd.", "main.")))
    home.on_database()
    assert home.report()["agents"]["main"]["vectors"]["copied"] > NOTES
    with home.serving() as connection:
        provider.requests.clear()
        last_event(connection)
        assert provider.texts == []


@pytest.mark.slow
def test_vectors_that_only_the_index_has_are_copied(home, provider):
    before = fill(home)
    (home.daemons.state / "memory" / "main.memoryd.embeddings.sqlite").unlink()
    home.on_database()
    report = home.report()["agents"]["main"]
    assert report["vectors"]["copied"] == 0
    assert report["indexVectors"]["copied"] == report["indexVectors"]["verified"] > NOTES
    with home.serving() as connection:
        provider.requests.clear()
        last_event(connection)
        # Of queries.
        assert not any("heron waits" in text for text in provider.texts)
        assert answers(connection) == before


@pytest.mark.slow
def test_vectors_are_listed_if_the_settings_disable_the_cache(home):
    fill(home)
    home.on_database()
    settings = json.loads(home.daemons.config.read_text())
    settings["agents"]["defaults"]["memorySearch"]["cache"] = {"enabled": False}
    home.daemons.config.write_text(json.dumps(settings))
    report = home.report(status=1)["agents"]["main"]
    for part in ("vectors", "indexVectors"):
        (reason,) = report[part]["skipped"].values()
        assert "memorySearch.cache.enabled is false" in reason
    assert home.rows("SELECT FROM cached_vectors") == []
    home.daemons.workspace.rename(home.daemons.home / "unmounted")
    assert "the workspace does not exist" in home.migrate().stderr


def test_another_home_and_one_of_its_agents_are_copied(home, tmp_path):
    fill(home)
    other = tmp_path / "other"
    shutil.copytree(home.daemons.state, other / "state")
    shutil.copytree(home.daemons.workspace, other / "state" / "workspace")
    old = {"agents": {"list": [{"id": "main", "default": True}, {"id": "former"}]}}
    (other / "state" / "memoryd.json5").write_text(json.dumps(old))
    shutil.rmtree(home.daemons.workspace)
    home.on_database()
    command = ("--config", home.daemons.config, "--state-dir", home.daemons.state, "--from", other / "state")
    done = memoryd("migrate", *command, home=home.daemons.home)
    assert done.returncode == 1
    assert f"the agent former of {other / 'state'} is not configured, and was not copied" in done.stderr
    one = memoryd("migrate", *command, "--agent", "main", "--json", home=home.daemons.home)
    assert one.returncode == 0, one.stderr
    report = json.loads(one.stdout)
    assert (report["from"], report["agents"]["main"]["files"]["equal"]) == (str(other / "state"), NOTES + 4)
    nobody = memoryd("migrate", *command, "--agent", "nobody", home=home.daemons.home)
    assert nobody.returncode == 3


def test_settings_without_a_database_are_refused(home):
    done = home.migrate()
    assert done.returncode != 0
    assert "set memoryd.store.url" in done.stderr
    assert list(home.daemons.state.iterdir()) == []
