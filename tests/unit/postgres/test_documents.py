"""Documents, transcripts and forgotten sources of an agent: found, read in ranges, and kept apart from other agents."""

import importlib
import json

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from memoryd_server.errors import FileNotFound, IndexUnavailable, PathNotAllowed, TranscriptChanged
from memoryd_server.model import Source, settled
from memoryd_server.sources import START, FileTooLarge, ForgottenSources, IgnoreFileUnusable
from memoryd_server.writing import FileDeletion, SeenFile
from postgres_server import DATABASE
from properties import examples
from unit.writing.written_memory import LIMIT, NOW_MS, digest

pytestmark = pytest.mark.postgres

HOSTILE = [
    "a'; DROP TABLE memoryd.documents; --",
    "%s %(agent)s %(path)s {} a\\b",
    "\"quoted\" $1 $$ E'\\x00'",
    "ünï-\u202e-\U0001f600",
    "*_%",
]


def message(text, role="user"):
    return json.dumps({"type": "message", "message": {"role": role, "content": text}}).encode()


def stream_of(memory, session):
    module = importlib.import_module("memoryd_server.postgres.transcripts")
    return module.TranscriptStream(memory.documents, f"{session}.jsonl")


def test_every_version_of_a_document_has_a_stat_of_its_own(new_memory):
    memory = new_memory()
    place, stats = memory.corpus.resolve("memory/a.md"), []
    for content in (b"one", b"two", b"one"):
        memory.write("memory/a.md", content)
        (file,) = memory.corpus.discover().files
        assert file.stat == memory.corpus.stat_file(place) == memory.corpus.read(place, LIMIT)[1]
        assert (file.stat.size_bytes, file.stat.mtime_ns) == (3, NOW_MS * 1_000_000)
        assert settled(file.stat, NOW_MS * 1_000_000) == file.stat
        stats.append(file.stat)
    assert len(set(stats)) == 3
    assert not memory.corpus.is_deleted(place, 0)
    assert memory.corpus.is_deleted(memory.corpus.resolve("memory/b.md"), 0)


def test_a_moved_document_keeps_its_time_and_has_a_new_version(new_memory):
    memory = new_memory()
    memory.write("memory/a.md", b"one")
    with memory.documents.write() as rows:
        # As an import stores several files in one transaction.
        document_rows = importlib.import_module("memoryd_server.postgres.document_rows")
        version = rows.lock_documents()
        for path in ("memory/a.md", "memory/b.md"):
            document_rows.DocumentRows(rows).put(path, path[-4:-3].encode(), version, 7)
    stats = [file.stat for file in memory.corpus.discover().files]
    memory.write("memory/b.md", FileDeletion())
    memory.move("memory/a.md", "memory/b.md")
    (after,) = memory.corpus.discover().files
    assert (after.path, after.stat.mtime_ns) == ("memory/b.md", 7)
    assert after.stat not in stats


def test_a_file_that_is_missing_or_too_large_is_not_read(new_memory):
    memory = new_memory()
    place = memory.corpus.resolve("memory/a.md")
    with pytest.raises(FileNotFound):
        memory.corpus.read(place, LIMIT)
    memory.write("memory/a.md", b"four")
    with pytest.raises(FileTooLarge, match="4 bytes"):
        memory.corpus.read(place, 3)
    assert memory.corpus.read(place, 4)[0] == b"four"


def test_stats_are_in_the_order_of_the_locations(new_memory):
    memory = new_memory()
    memory.write("memory/a.md", b"one")
    memory.transcripts.append("s", [b"{}"])
    paths = ["sessions/none.jsonl", "memory/a.md", "sessions/s.jsonl", "memory/none.md"]
    stats = memory.corpus.stat([memory.corpus.resolve(path) for path in paths])
    assert [stat and stat.size_bytes for stat in stats] == [None, 3, 3, None]


def test_a_discovery_reads_no_content(new_memory, postgres_module):
    memory = new_memory()
    memory.write("memory/a.md", b"one")
    with postgres_module.server.admin(DATABASE) as admin:
        query = "UPDATE memoryd.documents SET size_bytes = 1 << 30 WHERE agent_id = %s"
        assert admin.execute(query, (memory.agent,)).rowcount == 1
    (file,) = memory.corpus.discover().files
    assert file.stat.size_bytes == 1 << 30
    with pytest.raises(FileTooLarge):
        memory.corpus.read(file, LIMIT)


@pytest.mark.parametrize("content", [b"x" * 70_000, b"a\n" * 501])
def test_an_ignore_file_that_cannot_be_used_hides_the_memory(new_memory, content):
    memory = new_memory()
    memory.write("memory/a.md", b"one")
    memory.put(".memoryignore", content)
    found = memory.corpus.discover()
    assert found.files == ()
    assert [failure.path for failure in found.failures] == [".memoryignore"]
    assert [place.would_hold("memory/a.md") for place in found.unseen] == [True]
    assert memory.corpus.excluded() == memory.corpus.notes(lambda _: True) == []
    place = memory.corpus.resolve("memory/a.md")
    assert not memory.corpus.is_discoverable(place)
    with pytest.raises(IgnoreFileUnusable):
        memory.corpus.ignoring_rule(place)


def test_dreams_can_be_read_and_are_not_discovered(new_memory):
    memory = new_memory()
    memory.put("DREAMS.md", b"dream")
    (place,) = memory.corpus.locations_for_reading("DREAMS.md")
    assert memory.corpus.read(place, LIMIT)[0] == b"dream"
    assert memory.corpus.discover().files == ()
    with pytest.raises(PathNotAllowed):
        memory.corpus.resolve("DREAMS.md")


def test_records_are_appended_and_read_as_messages(new_memory):
    memory = new_memory()
    first = memory.transcripts.append("s", [message("one"), message("two", "assistant")], 0)
    assert (first.path, first.records, first.already_appended) == ("sessions/s.jsonl", 2, False)
    second = memory.transcripts.append("s", [message("three")])
    assert (second.records, second.size_bytes) == (3, len(stream_of(memory, "s").readall()))
    (file,) = memory.corpus.discover().files
    assert (file.path, file.source, file.stat.size_bytes) == (second.path, Source.SESSIONS, second.size_bytes)
    with memory.corpus.open_transcript(file) as reader:
        assert [line.message.text for line in reader.lines(START)] == ["one", "two", "three"]
        assert reader.stat == file.stat
    session, messages = memory.corpus.last_messages("s", 2, lambda _: True)
    assert (session, [each.text for each in messages]) == ("s", ["two", "three"])
    assert [each.path for each in memory.corpus.list_transcripts()] == [file.path]


def test_the_identity_of_a_transcript_stays_while_it_grows(new_memory):
    memory = new_memory()
    stats = []
    for _ in range(2):
        memory.transcripts.append("s", [b"{}"])
        stats += [file.stat for file in memory.corpus.list_transcripts()]
    memory.transcripts.delete_session("s")
    memory.transcripts.append("s", [b"{}"])
    stats += [file.stat for file in memory.corpus.list_transcripts()]
    assert stats[0].inode == stats[1].inode != stats[2].inode
    assert [stat.size_bytes for stat in stats] == [3, 6, 3]


def test_records_are_appended_only_where_the_caller_expects(new_memory):
    memory = new_memory()
    records = [b'{"n": %d}' % number for number in range(5)]
    memory.transcripts.append("s", records[:3], 0)
    for expected in (0, 1, 2, 4, 100):
        with pytest.raises(TranscriptChanged) as caught:
            memory.transcripts.append("s", records[3:], expected)
        assert caught.value.metadata["records"] == "3"
    assert memory.transcripts.append("s", records[3:], 3).records == 5
    for start in range(5):
        for end in range(start + 1, 6):
            again = memory.transcripts.append("s", records[start:end], start)
            assert (again.already_appended or start == 5, again.records) == (True, 5)
    with pytest.raises(TranscriptChanged):
        memory.transcripts.append("s", [*records[3:], b"{}"], 3)
    assert stream_of(memory, "s").readall() == b"".join(record + b"\n" for record in records)


@pytest.mark.parametrize("session", ["", "a/b", "a\0", "a.jsonl.reset.1", "x" * 201, "a\nb"])
def test_a_session_id_that_cannot_name_a_file_is_refused(new_memory, session):
    with pytest.raises(PathNotAllowed):
        new_memory().transcripts.append(session, [b"{}"])


def test_a_session_is_deleted_with_its_parts_and_no_other(new_memory, postgres_module):
    memory = new_memory()
    for session in ("s", "s-topic-1", "s%", "S"):
        memory.transcripts.append(session, [b"x" * 600_000, b"{}"])
    stream = stream_of(memory, "s")
    assert memory.transcripts.delete_session("s") == 1
    assert memory.transcripts.delete_session("s") == 0
    assert [file.parts[-1] for file in memory.corpus.list_transcripts()] == ["S.jsonl", "s%.jsonl", "s-topic-1.jsonl"]
    with pytest.raises(FileNotFound):
        stream.read(1)
    memory.transcripts.append("s", [b"{}"])
    with pytest.raises(FileNotFound, match="replaced"):
        stream.read(1)
    with postgres_module.server.admin(DATABASE) as admin:
        query = "SELECT count(*) FROM memoryd.transcript_parts WHERE agent_id = %s AND name = 's.jsonl'"
        assert admin.execute(query, (memory.agent,)).fetchone() == (1,)


def test_many_small_appends_make_few_parts(new_memory, postgres_module):
    memory = new_memory()
    for _ in range(60):
        memory.transcripts.append("s", [b"x" * 1_000])
    with postgres_module.server.admin(DATABASE) as admin:
        query = "SELECT count(*), max(octet_length(data)) FROM memoryd.transcript_parts WHERE agent_id = %s"
        count, largest = admin.execute(query, (memory.agent,)).fetchone()
    assert count == 4
    assert largest < 20_000


sizes = st.integers(0, 40) | st.integers(0, 700_000)
appends = st.lists(st.lists(sizes, min_size=1, max_size=4), min_size=1, max_size=6)


@settings(
    max_examples=examples(25),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(appends=appends, ranges=st.lists(st.tuples(st.floats(0, 1), st.integers(0, 2_000_000)), max_size=5))
def test_a_transcript_of_any_records_is_read_in_any_ranges(new_memory, appends, ranges):
    memory = new_memory()
    memory.transcripts.delete_session("s")
    written, count = b"", 0
    for lengths in appends:
        records = [bytes([97 + (count + at) % 26]) * length for at, length in enumerate(lengths)]
        memory.transcripts.append("s", records, count)
        assert memory.transcripts.append("s", records, count).already_appended
        written += b"".join(record + b"\n" for record in records)
        count += len(records)
    stream = stream_of(memory, "s")
    assert stream.readall() == written
    for place, length in ranges:
        start = stream.seek(int(place * len(written)))
        data = stream.read(length)
        assert data == written[start : start + min(length, 1 << 20)]
        assert stream.tell() == start + len(data)


def test_forgotten_sources_are_stored(new_memory):
    memory = new_memory()
    forgotten = ForgottenSources(memory.forgotten)
    forgotten.load()
    assert forgotten.problem == ""
    forgotten.add_file("memory/a.md", digest(b"one"))
    forgotten.add_file("memory/a.md", digest(b"two"))
    forgotten.add_file("memory/b.md", digest(b"one"))
    for session in ("s", "s", HOSTILE[0]):
        forgotten.add_session(session)
    memory.close()
    memory.open()
    again = ForgottenSources(memory.forgotten)
    again.load()
    assert again.excludes("memory/a.md", digest(b"two"))
    assert not again.check_excluded("memory/b.md", digest(b"changed"))
    entries = memory.forgotten.load()
    assert entries.files == {"memory/a.md": digest(b"two").hex()}
    assert entries.sessions == {"s", HOSTILE[0]}


def test_forgotten_sources_that_cannot_be_read_are_not_taken_for_none(postgres_module, new_memory, tmp_path):
    memory = new_memory(database=postgres_module.database(f"postgresql://u@/d?host={tmp_path}"))
    for call in (memory.forgotten.load, lambda: memory.forgotten.add_session("s")):
        with pytest.raises(IndexUnavailable, match="PostgreSQL server"):
            call()


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_texts_are_values_and_agents_do_not_see_each_other(new_memory, text):
    memory, other = new_memory(f"{text}1"), new_memory(f"{text}2")
    path, moved = f"memory/{text}/{text}.md", f"memory/{text}.md"
    other.append("other", path, idempotency_key=text)
    other.write(moved, b"other", caller=text, key=text, request_sha256="r")
    other.transcripts.append("s", [b"other"])
    other.forgotten.add_file(path, digest(b"other").hex())
    version = other.records()[0][0].version_id
    others = other.files()

    assert memory.files() == {}
    assert memory.records() == []
    assert memory.corpus.list_transcripts() == ()
    assert memory.forgotten.load().files == {}
    assert memory.history.get(version) is memory.history.with_key(text) is None

    memory.append(text, path, heading=text, idempotency_key=text)
    content = f"## {text}\n\n{text}\n".encode()
    assert memory.append(text, path, heading=text, idempotency_key=text).already_appended
    memory.write(path, content + b"\0\xff", caller=text, key=text, request_sha256="r")
    memory.move(path, moved)
    assert memory.files() == {moved: content + b"\0\xff"}
    assert memory.records(moved)[0][0].caller == text
    memory.put(".memoryignore", text.encode())
    assert {file.source for file in memory.corpus.discover().files} <= {Source.MEMORY}
    memory.put(".memoryignore", b"")
    session = text.replace("/", "")
    if all(character.isprintable() for character in session):
        memory.transcripts.append(session, [text.encode()], 0)
        assert stream_of(memory, session).readall() == text.encode() + b"\n"
        assert memory.transcripts.delete_session(session) == 1
    place = memory.corpus.resolve(moved)
    assert memory.writer.delete(place, SeenFile(memory.corpus.stat_file(place)))
    memory.history.forget_path(moved)
    assert (memory.files(), memory.records()) == ({}, [])

    assert other.files() == others
    assert len(other.records()) == 1
    assert stream_of(other, "s").readall() == b"other\n"


def test_a_forgotten_document_is_in_no_table(new_memory, postgres_module):
    memory = new_memory()
    secret = "the-secret-text"
    memory.append(secret, idempotency_key="k")
    memory.write("memory/note.md", secret.encode() + b" 2")
    place = memory.corpus.resolve("memory/note.md")
    with memory.writer.paused():
        data, stat = memory.corpus.read(place, LIMIT)
        assert memory.writer.delete(place, SeenFile(stat, digest(data)))
        assert memory.history.forget_path("memory/note.md") == 2
    with postgres_module.server.admin(DATABASE) as admin:
        for table in ("documents", "history_records", "history_contents"):
            rows = admin.execute(f"SELECT count(*) FROM memoryd.{table} WHERE agent_id = %s", (memory.agent,))
            assert rows.fetchone() == (0,)
        keys = admin.execute("SELECT append_keys::text FROM memoryd.append_keys WHERE agent_id = %s", (memory.agent,))
        assert all(secret not in row[0] for row in keys)
