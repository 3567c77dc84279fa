"""The columns of schema 5 are filled for an index of schema 4 without embedding a text that has not changed."""

import dataclasses
import gzip
import hashlib
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import apsw
import numpy as np
import pytest

from embedding_fixture import EmbeddingFixture
from index_fixture import OTHER_IDENTITY, SOUND, ids_of
from memoryd_server.errors import SyncCancelled
from memoryd_server.model import Annotations, Chunk, Origin, Source
from memoryd_server.sqlite.kept_vectors import KeptVectors
from memoryd_server.sqlite.vector_rows import STORED
from memoryd_server.store.identity import VectorIdentity
from memoryd_server.sync.progress import SyncMode
from old_schema import downgrade, filled, vectors
from transcript_fixture import HEAD, TranscriptFixture, assistant, record, user

TESTS = Path(__file__).parents[2]
CHILD = Path(__file__).with_name("refill_child.py")
# Written by the last memoryd of schema 4, from these files, with a vector for each of the three chunks.
SCHEMA_4 = Path(__file__).parent / "data" / "schema_4_curated.sqlite.gz"
FILES = {
    "MEMORY.md": (
        "# Memory\n\n## Deploys\n\n"
        "- The harbour crane is deployed on Fridays. <!-- importance: 9 -->\n"
        "- Gulls circle over pier seven. <!-- trigger: gulls, pier --> <!-- project: github.com/acme/pier -->\n\n"
        "## People\n\nMarta repairs the lighthouse.\n"
    ),
    "memory/2026-03-01.md": "# Notes\n\nThe heron stands in the reeds.\n",
    "memory/projects.md": (
        "# Projects\n\nThe kestrel service uses port 7070. <!-- project: github.com/acme/kestrel -->\n"
    ),
}
CHANGED = {
    "- The harbour crane is deployed on Fridays.",
    "- Gulls circle over pier seven.",
    "## People\n\nMarta repairs the lighthouse.",
    "# Projects\n\nThe kestrel service uses port 7070.\n",
}
NOTE = "# Notes\n\nThe heron stands in the reeds.\n"
IDENTITY = VectorIdentity("words", "m", "", 4, "", "")
FEWEST_STEPS = 74
# In the upgrade, in the first transaction of the transcript, between it and the next one, and in the last one.
FAST_STEPS = (29, 62, 70, 72)


@pytest.fixture
def upgraded(tmp_path):
    """An index of schema 4 with its files, before the first sync, and without a cache of vectors."""
    embedding = EmbeddingFixture(tmp_path)
    identity = embedding.index.identity
    for path, text in FILES.items():
        embedding.index.write(path, text)
    embedding.index.close()
    embedding.index.path.write_bytes(gzip.decompress(SCHEMA_4.read_bytes()))
    embedding.open(identity)
    yield embedding
    embedding.close()


def rows_by_text(index):
    with index.store.read() as reader:
        rows = reader.chunks(ids_of(reader, *Source))
    return {row.text: row for row in rows.values()}


def test_only_the_chunks_whose_text_has_changed_are_embedded(upgraded):
    before = upgraded.vectors()
    outcome = upgraded.sync()
    assert set(upgraded.provider.texts) == CHANGED
    assert len(upgraded.provider.texts) == len(CHANGED)
    assert (outcome.indexed_files, outcome.unchanged_files, outcome.pending_embeddings) == (0, 3, 0)
    after = upgraded.vectors()
    assert after.keys() == CHANGED | {NOTE}
    assert np.array_equal(after[NOTE], before[NOTE])
    assert upgraded.sync().revision == outcome.revision
    assert len(upgraded.provider.texts) == len(CHANGED), "the second sync embeds nothing"


def test_an_upgraded_index_equals_one_that_is_built_from_scratch(upgraded):
    upgraded.sync()
    upgraded.index.close()
    after = filled(upgraded.index.path)
    upgraded.open(upgraded.index.identity)
    upgraded.sync(SyncMode.FULL)
    upgraded.index.close()
    assert after == filled(upgraded.index.path)


def test_hits_have_their_origin_before_the_first_sync_and_their_annotations_after_it(upgraded):
    rows = rows_by_text(upgraded.index)
    assert {row.origin for row in rows.values()} == {Origin.AGENT}
    assert upgraded.index.found("heron") == ["memory/2026-03-01.md"]
    upgraded.sync()
    rows = rows_by_text(upgraded.index)
    assert rows["- The harbour crane is deployed on Fridays."].annotations == Annotations(9)
    pier = rows["- Gulls circle over pier seven."]
    assert pier.annotations == Annotations(None, ("gulls", "pier"), ("github.com/acme/pier",))
    assert (pier.start_line, pier.end_line) == (6, 6)
    with upgraded.index.store.read() as reader:
        assert reader.counts().annotated
    upgraded.index.close()
    assert ("memory/2026-03-01.md", "2026-03-01", 1, "2026-03-01") in filled(upgraded.index.path)[1]


def test_while_a_rebuild_waits_outdated_files_are_not_split_into_chunks_of_the_new_size(upgraded):
    upgraded.index.close()
    upgraded.open(OTHER_IDENTITY)
    engine = upgraded.engine()
    assert engine.compare().plan.doubtful == ()
    upgraded.index.close()
    upgraded.open(upgraded.index.identity)


def test_a_changed_file_keeps_the_vectors_of_its_unchanged_entries(upgraded):
    upgraded.sync()
    before = upgraded.vectors()
    done = len(upgraded.provider.texts)
    upgraded.cache.forget(hashlib.sha256(text.encode()).digest() for text in CHANGED)
    upgraded.index.write("MEMORY.md", "- A new entry.\n" + FILES["MEMORY.md"])
    upgraded.sync()
    assert upgraded.provider.texts[done:] == ["- A new entry."]
    assert np.array_equal(
        upgraded.vectors()["- Gulls circle over pier seven."], before["- Gulls circle over pier seven."]
    )
    assert ("MEMORY.md", 1.0) in upgraded.nearest("- Gulls circle over pier seven.")


OWNER = {"__openclaw": {"senderIsOwner": True}}
TALK = [
    line
    for number in range(120)
    for line in (
        record("user", f"What does heron {number} eat?", **(OWNER if number < 60 else {})),
        assistant(f"Heron {number} eats fish, and sometimes frogs from the weir near the mill."),
    )
]


@pytest.fixture
def talk(tmp_path):
    """An index of schema 4 with a transcript of several parts, and a vector for each chunk."""
    index = TranscriptFixture(tmp_path)
    index.part_chars = 2_000
    index.say("s1.jsonl", HEAD, *TALK)
    index.write("memory/a.md", "a note")
    index.open().sync()
    writer = index.store.writer()
    writer.begin_vectors(IDENTITY)
    ids = [chunk.chunk_id for chunk in writer.pending_chunks(0, 1_000, everything=True)]
    writer.put_vectors({chunk_id: np.float32([chunk_id, 1, 2, 3]).tobytes() for chunk_id in ids})
    index.close()
    index.expected = filled(index.path)
    downgrade(index.path)
    yield index
    index.close()


def test_the_origins_of_a_long_transcript_are_filled_and_its_vectors_and_texts_stay(talk):
    before = vectors(talk.path)
    assert len(before) > 5
    outcome = talk.open().sync()
    assert (outcome.indexed_files, outcome.unchanged_files) == (0, 2)
    assert talk.integrity() == SOUND
    talk.close()
    assert vectors(talk.path) == before
    assert filled(talk.path) == talk.expected
    origins = [row[4] for row in talk.expected[0] if row[0].startswith("sessions/")]
    assert set(origins) == {"agent", "untrusted"}, "an owner's messages are in chunks with the agent's"


def test_a_transcript_that_has_grown_since_is_filled_and_continued(talk, tmp_path):
    before = vectors(talk.path)
    talk.say("s1.jsonl", user("And heron 121?"), assistant("Also fish."))
    outcome = talk.open().sync()
    assert outcome.indexed_files == 1
    talk.close()
    kept = vectors(talk.path)
    assert len(before.keys() - kept.keys()) <= 1, "only the last chunk is replaced"
    after = filled(talk.path)
    talk.open().sync(SyncMode.FULL)
    talk.close()
    assert after == filled(talk.path)


def test_a_transcript_that_was_read_before_as_text_of_other_senders_is_untrusted_until_it_is_filled(talk):
    talk.open()
    assert {row.origin for row in rows_by_text(talk).values() if row.path.startswith("sessions/")} == {Origin.UNTRUSTED}


@pytest.mark.parametrize("part_chars", [2_000, 1 << 20], ids=["in several transactions", "in one"])
def test_a_transcript_that_is_read_again_from_its_beginning_keeps_the_vectors_of_its_texts(talk, part_chars):
    talk.open().sync()
    talk.close()
    before = vectors_by_text(talk.path)
    talk.part_chars = part_chars
    file = talk.sessions / "s1.jsonl"
    file.write_text(file.read_text().replace("heron 70 ", "stork 70 "))
    talk.open().sync()
    assert talk.integrity() == SOUND
    talk.close()
    after = vectors_by_text(talk.path)
    changed = [text for text in before if "heron 70 " in text]
    assert 1 <= len(changed) <= 2
    assert after == {text: vector for text, vector in before.items() if text not in changed}


def test_kept_vectors_are_not_used_for_another_identity(talk):
    talk.open().sync()
    writer = talk.store.writer()
    kept = KeptVectors(talk.connection)
    ((file_id,),) = talk.sql("SELECT id FROM files WHERE path LIKE 'sessions/%'")
    chunk_ids = [row[0] for row in talk.sql("SELECT id FROM chunks WHERE file_id = ? ORDER BY id", (file_id,))]
    chunks = [
        Chunk("", 1, 1, row[0]) for row in talk.sql("SELECT content_hash FROM chunks WHERE file_id = ?", (file_id,))
    ]
    kept.keep("a", file_id, (STORED,), None)
    assert kept.insert("another file", chunk_ids[0], chunks) == {}
    writer.begin_vectors(dataclasses.replace(IDENTITY, model="another"))
    assert kept.insert("a", chunk_ids[0], chunks) == {}
    assert talk.sql("SELECT count(*) FROM vectors") == [(0,)]


def test_only_a_bounded_amount_of_vectors_is_kept(talk):
    talk.open().sync()
    kept = KeptVectors(talk.connection, max_bytes=3 * 16)
    ((file_id,),) = talk.sql("SELECT id FROM files WHERE path LIKE 'sessions/%'")
    rows = talk.sql("SELECT id, content_hash FROM chunks WHERE file_id = ? ORDER BY id", (file_id,))
    kept.keep("a", file_id, (STORED,), None)
    talk.store.writer().write((), [row for row in talk.store.writer().files().values() if row.id == file_id])
    talk.sql("INSERT INTO unembedded SELECT value FROM json_each(?)", (json.dumps([row[0] for row in rows]),))
    assert len(kept.insert("a", rows[0][0], [Chunk("", 1, 1, row[1]) for row in rows])) == 3


def vectors_by_text(path):
    connection = apsw.Connection(str(path))
    try:
        return dict(connection.execute("SELECT text, embedding FROM chunks JOIN vectors ON chunk_id = id").fetchall())
    finally:
        connection.close()


def test_a_cancelled_run_is_completed_by_the_next_one(talk):
    before = vectors(talk.path)
    talk.open()
    calls = iter(range(1_000))
    with pytest.raises(SyncCancelled):
        talk.sync(should_stop=lambda: next(calls) > 1)
    talk.sync()
    talk.close()
    assert (vectors(talk.path), filled(talk.path)) == (before, talk.expected)


def steps(count):
    """Every step of the tests of the long tier, and some in the fast tier."""
    return [pytest.param(step, marks=() if step in FAST_STEPS else pytest.mark.slow) for step in range(1, count)]


@pytest.mark.faults
@pytest.mark.parametrize("step", steps(FEWEST_STEPS))
def test_a_kill_before_any_statement_leaves_an_index_that_the_next_start_completes(talk, step):
    before = vectors(talk.path)
    environment = {**os.environ, "PYTHONPATH": f"{TESTS}:{os.environ.get('PYTHONPATH', '')}"}
    command = [sys.executable, str(CHILD), str(talk.path.parents[1]), str(step)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == -signal.SIGKILL, done.stderr
    talk.open()
    assert talk.integrity() == SOUND
    talk.sync()
    assert talk.integrity() == SOUND
    talk.close()
    assert (vectors(talk.path), filled(talk.path)) == (before, talk.expected)
