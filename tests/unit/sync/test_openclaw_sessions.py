"""Sessions in OpenClaw's database: what is found of them, how they grow, and what ends in no index."""

import hashlib
import io
import itertools
import json
import shutil

import pytest
from hypothesis import given
from hypothesis import strategies as st

from index_fixture import RecordingObserver, ids_of
from memoryd_server.agent.files import read_range
from memoryd_server.errors import FileNotFound, PathNotAllowed
from memoryd_server.model import FileStat, Source
from memoryd_server.sources.archive_reader import ColdReader
from memoryd_server.sources.compression import zstd
from memoryd_server.sources.folder_corpus import discover_transcripts
from memoryd_server.sources.session_source import open_transcript
from memoryd_server.sources.transcripts import START
from memoryd_server.store import VectorIdentity
from openclaw_home import ARCHIVED, COLD, EXPECTED, MAIN, MIXED, REWOUND, OpenClawIndex, path_of
from transcript_fixture import user

MOST_BYTES = 1 << 20


@pytest.fixture
def index(tmp_path):
    index = OpenClawIndex(tmp_path).open()
    yield index
    index.close()


def lines_of(index, path, count=100):
    """The messages of a transcript by their line, as MemoryGet returns them."""
    text = read_range(index.corpus, path, 1, count, MOST_BYTES).text
    return {number: line for number, line in enumerate(text.split("\n"), 1) if line}


def expected_lines(session):
    """The messages of a session by their line. OpenClaw wraps a message, and repeats its label."""
    found = {}
    for number, group in itertools.groupby(
        zip(session["lineMap"], session["content"].split("\n"), strict=False), key=lambda pair: pair[0]
    ):
        first, *rest = [line for _, line in group]
        found[number] = " ".join([first, *(line.partition(": ")[2] for line in rest)])
    return found


# Where memoryd differs from what OpenClaw's own memory makes of the fixture, by session: the lines that it leaves out.
DEVIATIONS = {
    # The user has taken back this answer, and the model does not see it any more.
    REWOUND: {3: "Assistant: ABANDONED: port 1111."},
    # The prompt of an older heartbeat. OpenClaw does not recognize it any more.
    "77777777-7777-4777-8777-777777777777": {
        2: "User: Read HEARTBEAT.md if it exists. If nothing needs attention, reply HEARTBEAT_OK."
    },
}


@pytest.mark.parametrize("session", EXPECTED, ids=[session["sessionId"][:4] for session in EXPECTED])
def test_the_lines_of_each_session_are_those_of_openclaw_except_for_the_listed_deviations(index, session):
    left_out = DEVIATIONS.get(session["sessionId"], {})
    wanted = expected_lines(session)
    assert left_out.items() <= wanted.items()
    found = {file.path: file for file in index.corpus.discover().files if file.source is Source.SESSIONS}
    if session["generatedByCronRun"]:
        assert session["path"] not in found
        return
    assert session["path"] in found
    assert lines_of(index, session["path"]) == {line: text for line, text in wanted.items() if line not in left_out}


def test_every_session_is_found_by_its_text_under_the_path_of_openclaw(index):
    index.sync()
    assert index.found_paths("orion-staging") == [path_of(MAIN)]
    assert index.found_paths("subsystem 623") == [path_of(MAIN)]
    assert index.found_paths("Vertrag") == [path_of("22222222-2222-4222-8222-222222222222")]
    assert index.found_paths("bicycle") == [path_of(COLD)]
    assert [path.partition(".jsonl")[0] for path in index.found_paths("blue pot")] == [f"sessions/main/{ARCHIVED}"]
    assert index.found_paths("ABANDONED") == index.found_paths("nightly") == index.found_paths("heartbeat turn") == []


def test_a_session_in_the_database_and_in_a_file_is_indexed_once(index):
    index.say(f"{MAIN}.jsonl", '{"type":"message","message":{"role":"user","content":"Only in the quince file."}}\n')
    index.sync()
    assert index.found_paths("orion-staging") == [path_of(MAIN)]
    assert index.found_paths("quince") == []


def test_another_session_in_a_file_is_indexed_as_before(index):
    index.say("other.jsonl", '{"type":"message","message":{"role":"user","content":"A file about herons."}}\n')
    index.sync()
    assert index.found_paths("herons") == ["sessions/other.jsonl"]


@pytest.mark.parametrize("path", [f"sessions/{MAIN}.jsonl", path_of(MAIN)])
def test_old_and_new_citations_of_a_session_read_the_same_lines(index, path):
    assert lines_of(index, path)[2] == "User: The staging database is called orion-staging. Please remember it."


def test_a_citation_of_a_file_by_the_new_path_is_read(index):
    index.say("other.jsonl", '{"type":"message","message":{"role":"user","content":"A file about herons."}}\n')
    assert lines_of(index, path_of("other")) == {1: "User: A file about herons."}


def test_a_part_of_a_session_has_the_lines_of_the_whole(index):
    part = read_range(index.corpus, path_of(MIXED), 6, 3, MOST_BYTES)
    assert (part.text, part.start_line, part.end_line, part.total_lines) == ("\n\n", 6, 8, 10)
    assert read_range(index.corpus, path_of(REWOUND), 3, 2, MOST_BYTES).text == "\nAssistant: ACTIVE: port 9464."


def test_a_path_of_another_agent_and_of_a_missing_session_are_refused(index):
    with pytest.raises(PathNotAllowed):
        read_range(index.corpus, f"sessions/other/{MAIN}.jsonl", 1, 1, MOST_BYTES)
    with pytest.raises(FileNotFound):
        read_range(index.corpus, path_of("unknown"), 1, 1, MOST_BYTES)


def test_only_the_new_events_of_a_session_are_read(index):
    index.sync()
    before = {path: text for path, text, _ in index.chunks()}
    with index.writer() as writer:
        writer.say(MAIN, "The quince is ripe.")
        writer.say(MAIN, "The weir is closed. " * 400, "assistant", compressed=True)
        assert index.sync().indexed_files == 1
        assert index.found_paths("quince") == [path_of(MAIN)]
        assert index.found_paths("weir") == [path_of(MAIN)]
    assert {path for path, _, _ in index.chunks()} == set(before)
    assert lines_of(index, path_of(MAIN))[15] == "User: The quince is ripe."


def test_an_unchanged_session_is_not_read_again(index):
    index.sync()
    assert index.sync().indexed_files == 0


def test_a_rewind_removes_the_abandoned_text(index):
    with index.writer() as writer:
        first = writer.say(MAIN, "Keep the herons.")
        writer.say(MAIN, "Forget the quinces.")
        index.sync()
        assert index.found_paths("quinces") == [path_of(MAIN)]
        writer.say(MAIN, "Instead, the medlars.", parent=first)
        index.sync()
    assert index.found_paths("quinces") == []
    assert index.found_paths("herons") == index.found_paths("medlars") == [path_of(MAIN)]


def test_a_rewritten_session_is_read_again(index):
    index.sync()
    with index.writer() as writer:
        writer.rewrite(MAIN, 1, "The staging database is called vega-staging.")
        index.sync()
    assert index.found_paths("orion") == [path_of(MAIN)]
    assert index.found_paths("vega") == [path_of(MAIN)]
    assert not any("is called orion" in text for _, text, _ in index.chunks())


def test_damaged_events_are_counted_until_the_session_is_rewritten(index):
    def skipped():
        index.sync()
        with index.store.read() as reader:
            return reader.files()[Source.SESSIONS, path_of("s")].skipped

    with index.writer() as writer:
        writer.execute("PRAGMA ignore_check_constraints = ON")
        writer.create("s", "agent:main:webchat:direct:99")
        writer.say("s", "The quince is ripe.")
        assert skipped() == 0
        for expected in (1, 2):
            writer.say("s", "A damaged message. " * 100, compressed=True)
            writer.execute(
                "UPDATE transcript_events SET event_zstd = x'00112233' WHERE session_id = 's' AND seq ="
                " (SELECT max(seq) FROM transcript_events WHERE session_id = 's')"
            )
            assert skipped() == expected
        writer.say("s", "The quince is eaten.")
        assert skipped() == 2
        writer.execute("DELETE FROM transcript_events WHERE session_id = 's' AND seq = 2")
        writer.rewrite("s", 1, "The medlar is ripe.")
        assert skipped() == 1


def test_a_deleted_session_is_found_in_its_archive_row(index):
    index.sync()
    name = f"{MAIN}.jsonl.deleted.2026-11-23T10-00-00.000Z.0123456789abcdef0123456789abcdef.zst"
    data = b'{"type":"message","id":"a","parentId":null,"message":{"role":"user","content":"The quince."}}\n'
    with index.writer() as writer:
        writer.delete(MAIN, name, data)
        index.sync()
    assert index.found_paths("orion") == []
    assert index.found_paths("quince") == [f"sessions/main/{name}"]
    assert lines_of(index, f"sessions/main/{name}") == {1: "User: The quince."}


def vectors_of(index):
    """The vector of each text that has one."""
    with index.store.read() as reader:
        rows = reader.chunks(ids_of(reader, Source.SESSIONS))
        found = dict(reader.embeddings_after(0, len(rows) + 1))
    return {row.text: found[number] for number, row in rows.items() if number in found}


def test_texts_of_a_file_keep_their_vectors_when_the_session_moves_into_the_database_and_into_an_archive(index):
    path = index.say("s.jsonl", *(user(f"Remark {number} on herons and weirs. " * 9) for number in range(40)))
    index.sync()
    writer = index.store.writer()
    writer.begin_vectors(VectorIdentity("test", "model", "", 1, "", ""))
    chunks = writer.pending_chunks(0, 10_000, everything=True)
    writer.put_vectors({chunk.chunk_id: bytes([chunk.chunk_id % 256, 0, 0, 0]) for chunk in chunks})
    before = vectors_of(index)
    assert len(before) > 10
    events = path.read_bytes()
    with index.writer() as host:
        host.create("s", "agent:main:webchat:direct:99")
        for line in events.splitlines():
            host.say("s", json.loads(line)["message"]["content"])
        path.unlink()
        index.part_chars = 2000
        index.sync(chars_per_transaction=1000)
        assert "sessions/s.jsonl" not in index.paths()
        assert vectors_of(index) == before
        name = "s.jsonl.deleted.2026-11-23T10-00-00.000Z.0123456789abcdef0123456789abcdef.zst"
        host.delete("s", name, events)
        index.sync()
    assert path_of("s") not in index.paths()
    assert f"sessions/main/{name}" in index.paths()
    assert vectors_of(index) == before


def test_a_session_that_openclaw_has_forgotten_is_neither_found_nor_read(index):
    index.sync()
    with index.writer() as writer:
        writer.execute("INSERT INTO memory_session_tombstones VALUES(?,?,?,?)", MAIN, "main", "user", 1)
        writer.execute("INSERT INTO memory_session_tombstones VALUES(?,?,?,?)", ARCHIVED, "main", "user", 1)
    index.sync()
    assert index.found_paths("orion") == index.found_paths("blue pot") == []
    with pytest.raises(FileNotFound):
        read_range(index.corpus, path_of(MAIN), 1, 1, MOST_BYTES)


ARCHIVE = f"{ARCHIVED}.jsonl.deleted.2026-11-22T10-51-53.498Z.87bab2ebda3e4ad0bb69c04466cdf505.zst"
RESET = f"{ARCHIVED}.jsonl.reset.2026-11-23T10-00-00Z"


@pytest.mark.parametrize(
    "path",
    [f"sessions/main/{ARCHIVE}", path_of(ARCHIVED), f"sessions/{ARCHIVED}.jsonl", f"sessions/{RESET}"],
)
def test_a_file_of_a_session_that_openclaw_has_forgotten_is_not_read(index, path):
    for name in (f"{ARCHIVED}.jsonl", RESET):
        index.say(name, user("The blue pot."))
    assert "blue pot" in read_range(index.corpus, path, 1, 9, MOST_BYTES).text
    with index.writer() as writer:
        writer.execute("INSERT INTO memory_session_tombstones VALUES(?,?,?,?)", ARCHIVED, "main", "user", 1)
    with pytest.raises(FileNotFound, match="forgotten"):
        read_range(index.corpus, path, 1, 9, MOST_BYTES)


def test_files_are_not_read_while_it_is_unknown_which_sessions_openclaw_has_forgotten(index):
    path = f"sessions/main/{ARCHIVE}"
    index.database.write_bytes(b"not a database")
    with pytest.raises(PathNotAllowed, match="not a database"):
        read_range(index.corpus, path, 1, 9, MOST_BYTES)
    shutil.rmtree(index.database.parent)
    assert "blue pot" in read_range(index.corpus, path, 1, 9, MOST_BYTES).text


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("spawned_by", "agent:main:cron:1:run:1"),
        ("session_key", "agent:main:CRON:1:run:1"),
        ("parent_session_key", "agent:main:cron:1:run:1"),
        ("entry_json", '{"spawnedBy": "agent:main:dreaming-narrative-1"}'),
        ("entry_json", '{"heartbeatIsolatedBaseSessionKey": "agent:main:main"}'),
        ("session_key", "agent:main:dreaming-narrative-7"),
    ],
)
def test_sessions_that_no_user_began_are_left_out(index, column, value):
    with index.writer() as writer:
        writer.create("s", "agent:main:subagent:1")
        writer.say("s", "The quince is ripe.")
        index.sync()
        assert index.found_paths("quince") == [path_of("s")]
        writer.execute("PRAGMA foreign_keys = OFF")
        writer.execute(f"UPDATE session_nodes SET {column} = ? WHERE current_session_id = 's'", value)
        index.sync()
    assert index.found_paths("quince") == []


def test_the_archive_of_a_session_that_a_scheduled_run_began_is_left_out(index):
    with index.writer() as writer:
        writer.create("s", "agent:main:subagent:1")
        writer.execute("UPDATE session_nodes SET spawned_by = 'agent:main:cron:1:run:1' WHERE current_session_id = 's'")
        writer.execute(
            "UPDATE session_transcript_archives SET session_key = 'agent:main:subagent:1' WHERE session_id = ?",
            ARCHIVED,
        )
        index.sync()
    assert index.found_paths("blue pot") == []


def test_the_list_of_sessions_in_a_file_leaves_out_compressed_archives_and_is_reported_if_damaged(index):
    store = index.sessions / "sessions.json"
    store.write_text(json.dumps({"agent:main:cron:1:run:1": {"sessionId": ARCHIVED}}))
    (index.sessions / f"{ARCHIVED}.jsonl").write_text('{"type":"message"}\n')
    assert not any(ARCHIVED in file.path for file in discover_transcripts(index.sessions, "main").files)
    store.write_text("{:cron:")
    assert any(str(store) in issue for issue in index.corpus.discover().issues)


@pytest.mark.parametrize("version", [0, 4, 22, 24])
def test_another_schema_version_is_reported_and_nothing_is_read(index, version):
    (index.workspace / "MEMORY.md").write_text("A note about herons.")
    with index.writer() as writer:
        writer.execute(f"PRAGMA user_version = {version}")
    discovery = index.corpus.discover()
    assert f"schema version {version}," in discovery.failures[0].error
    index.sync()
    assert index.found_paths("herons") == ["MEMORY.md"]
    assert index.found_paths("orion") == []
    assert [place.place for place in index.engine().compare().plan.skipped] == ["sessions/main"]


def test_what_is_indexed_stays_while_the_database_cannot_be_read(index):
    index.sync()
    index.database.write_bytes(b"not a database")
    index.sync()
    assert index.found_paths("orion") == [path_of(MAIN)]
    assert index.found_paths("blue pot")


def test_a_file_replaces_no_session_that_is_indexed_while_the_database_cannot_be_read(index):
    index.sync()
    index.database.write_bytes(b"not a database")
    index.say(f"{MAIN}.jsonl", user("The quince is ripe."))
    index.sync()
    assert index.found_paths("quince") == [f"sessions/{MAIN}.jsonl"]
    assert index.found_paths("orion") == [path_of(MAIN)]


@pytest.mark.parametrize("damage", ["empty", "truncated", "garbage", "folder", "link"])
def test_a_damaged_database_never_ends_a_sync_of_notes(index, damage):
    (index.workspace / "MEMORY.md").write_text("A note about herons.")
    data = index.database.read_bytes()
    if damage in {"folder", "link"}:
        index.database.unlink()
        index.database.mkdir() if damage == "folder" else index.database.symlink_to("/etc/passwd")
    else:
        index.database.write_bytes({"empty": b"", "truncated": data[:200_000], "garbage": bytes(9000)}[damage])
    outcome = index.sync()
    assert index.found_paths("herons") == ["MEMORY.md"]
    assert outcome.failed_files >= 1


def test_a_missing_database_is_no_failure(index):
    shutil.rmtree(index.database.parent)
    assert index.sync().failed_files == 0
    assert index.found_paths("blue pot")


def test_a_cold_file_with_another_hash_is_reported(index):
    (cold,) = (index.sessions / "cold").iterdir()
    cold.write_bytes(cold.read_bytes()[:-1] + b"x")
    observer = RecordingObserver()
    index.sync(observer=observer)
    assert "SHA-256" in observer.errors()[path_of(COLD)]


def test_a_cold_file_outside_its_folder_is_not_read(index):
    with index.writer() as writer:
        writer.execute("PRAGMA ignore_check_constraints = ON")
        writer.execute("UPDATE session_transcript_cold_archives SET archive_name = '../secret'")
    (index.sessions / "secret").write_bytes(next((index.sessions / "cold").iterdir()).read_bytes())
    observer = RecordingObserver()
    index.sync(observer=observer)
    assert "name of the cold file" in observer.errors()[path_of(COLD)]


@given(
    st.lists(
        st.one_of(
            st.binary(max_size=40),
            st.builds(
                lambda kind, number, event: json.dumps(
                    {"kind": kind, "row": {"seq": number, "event_json": event}}
                ).encode(),
                st.sampled_from(["event", "header", "active"]),
                st.one_of(st.integers(-2, 9), st.text(max_size=3), st.just(1 << 70)),
                st.one_of(st.just(json.dumps({"type": "message", "id": "1", "message": {"role": "user"}})), st.text()),
            ),
        ),
        max_size=12,
    )
)
def test_a_cold_file_of_any_lines_is_read_in_order(lines):
    stream = io.BytesIO(zstd.compress(b"\n".join(lines)))
    with ColdReader(stream, FileStat(10, 1, 1, 1, 1), "s") as reader:
        places = [line.after.lines for line in reader.lines(START)]
    assert places == sorted(set(places))


def test_a_key_that_is_not_utf8_is_reported(index):
    (index.workspace / "MEMORY.md").write_text("A note about herons.")
    with index.writer() as writer:
        writer.execute("PRAGMA foreign_keys = OFF")
        writer.execute(
            "UPDATE session_nodes SET session_key = CAST(x'ff00' AS TEXT) WHERE current_session_id = ?", MAIN
        )
    outcome = index.sync()
    assert index.found_paths("herons") == ["MEMORY.md"]
    assert outcome.failed_files == 1


def test_polls_and_syncs_leave_the_bytes_of_the_database_unchanged(index):
    before = hashlib.sha256(index.database.read_bytes()).digest()
    index.sync()
    for _ in range(20):
        index.corpus.discover()
    assert hashlib.sha256(index.database.read_bytes()).digest() == before


def test_the_archive_of_a_session_keeps_only_its_active_branch(index):
    events = [
        {"type": "message", "id": "1", "parentId": None, "message": {"role": "user", "content": "The question."}},
        {"type": "message", "id": "2", "parentId": "1", "message": {"role": "assistant", "content": "The quince."}},
        {"type": "message", "id": "3", "parentId": "1", "message": {"role": "assistant", "content": "The medlar."}},
    ]
    data = "".join(f"{json.dumps(event)}\n" for event in events).encode()
    name = "s.jsonl.reset.2026-11-23T10-00-00Z.zst"
    (index.sessions / name).write_bytes(zstd.compress(data))
    assert lines_of(index, f"sessions/main/{name}") == {1: "User: The question.", 3: "Assistant: The medlar."}


def test_the_listed_stat_of_a_transcript_is_that_of_the_open_one_and_of_a_hit(index):
    files = [file for file in index.corpus.discover().files if file.source is Source.SESSIONS]
    for file in files:
        with open_transcript(file) as reader:
            assert reader.stat == file.stat, file.path
    assert index.corpus.stat([index.corpus.resolve(file.path) for file in files]) == [file.stat for file in files]
