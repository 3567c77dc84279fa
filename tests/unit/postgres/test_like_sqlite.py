"""The PostgreSQL driver answers as the SQLite driver does: filters, transcripts, and random changes of files."""

import hashlib
import random
from dataclasses import replace
from datetime import date

import numpy as np
import pytest

from filter_fixture import DIMENSIONS, index_of, random_filter, random_notes, store_vectors
from memoryd_server.errors import SyncCancelled
from memoryd_server.model import Annotations, Chunk, FileStat, Origin, Source
from memoryd_server.sources import ReadPosition
from memoryd_server.store.filters import ALL_CHUNKS
from memoryd_server.store.identity import VectorIdentity
from memoryd_server.store.rows import PreparedFile, TranscriptPart
from memoryd_server.text.terms import QueryTerm, TermKind
from unit.store import sqlite_child

pytestmark = pytest.mark.postgres

TERMS = [QueryTerm("word1"), QueryTerm("word40"), QueryTerm("word3", prefix=True), QueryTerm("common")]
MANY = 1_000


@pytest.fixture(scope="module")
def pair(postgres_module, tmp_path_factory):
    """The same notes in a SQLite store and in a PostgreSQL store; the chunks have the same ids."""
    notes = random_notes(300)
    folder = tmp_path_factory.mktemp("pair")
    with index_of(notes, folder) as expected:
        store = postgres_module.new_store(folder)
        store.open()
        store.writer().write([note.prepared() for note in notes])
        store_vectors(store.writer())
        yield expected, store
        store.close()


def test_filters_leave_the_same_chunks(pair):
    query = np.random.default_rng(7).standard_normal(DIMENSIONS).astype(np.float32)
    first, last = date(2023, 5, 1), date(2026, 5, 28)
    selective = 0
    for seed in range(60):
        among = random_filter(seed)
        answers = []
        for store in pair:
            with store.read() as reader:
                found = reader.keyword_hits(TERMS, among, 40)
                near = reader.vector_hits(query, 20, among)
                answers.append(
                    (
                        reader.has_chunks(among),
                        reader.matching_files(among),
                        [hit.chunk_id for hit in found],
                        [hit.chunk_id for hit in near],
                        reader.dated_chunks(first, last, among, 30),
                    )
                )
                scores = [hit.bm25 for hit in found], [hit.cosine for hit in near]
                if len(answers) == 1:
                    expected = scores
        assert answers[0] == answers[1], among
        for measured, exact in zip(scores, expected, strict=True):
            assert measured == pytest.approx(exact, rel=1e-6)
        selective += 0 < len(answers[0][2]) < 40
    assert selective > 5


def test_words_and_names_are_counted_alike(pair):
    guesses = [QueryTerm(f"word{number}", kind=TermKind.GUESS) for number in (3, 1999, 5000)]
    terms = [*TERMS, QueryTerm("absent"), QueryTerm("wor", prefix=True), *guesses]
    answers = []
    for store in pair:
        with store.read() as reader:
            answers.append(
                (
                    reader.frequencies(terms),
                    reader.names_containing("rd19", 500),
                    reader.counts().languages,
                    reader.counts().files,
                    reader.keyword_chunks(),
                )
            )
    assert answers[0] == answers[1]


def chunk(text, line, **fields):
    return Chunk(text, line, line + text.count("\n"), hashlib.sha256(text.encode()).digest(), **fields)


class Changes:
    """Random changes that are made to both stores."""

    def __init__(self, seed):
        self.chance = random.Random(seed)
        self.lines = {}

    def text(self):
        words = ["heron", "weir", "index_manager", "v2", "otter", "été", "x" * 400]
        return " ".join(self.chance.choices(words, k=self.chance.randint(0, 6)))

    def stat(self):
        return FileStat(self.chance.randint(0, 1 << 40), self.chance.randint(0, 1 << 60), 2, 3, 1 << 63)

    def note(self):
        texts = [self.text() for _ in range(self.chance.randint(0, 4))]
        path = f"n{self.chance.randint(0, 4)}.md"
        chunks = [
            chunk(text, line, breadcrumb=f"A > {line}", annotations=Annotations(line, ("t",), ("p/é",)))
            for line, text in enumerate(texts, 1)
        ]
        return PreparedFile(
            path,
            Source.MEMORY,
            self.stat(),
            hashlib.sha256(repr(texts).encode()).digest(),
            chunks,
            [(text, f"{path} A") for text in texts],
            {"tags": ["a", "A "], "title": "é"},
            "en",
            self.chance.choice([None, None, None, "cannot be read"]),
            Origin.AGENT,
            "2026-05-01",
        )

    def part(self):
        """The next part of a transcript, of which the first and those after a rewrite replace all."""
        number = self.chance.randint(0, 1)
        path, lines = self.lines.get(number, ("", 0))
        rewritten = not path or self.chance.random() < 0.2
        lines = 0 if rewritten else lines
        new_path = f"sessions/{number}-{self.chance.randint(0, 1)}.jsonl"
        texts = [self.text() or "empty" for _ in range(self.chance.randint(1, 3))]
        chunks = [
            chunk(text, lines + at, line_numbers=(lines + at,), line_origins=(self.chance.choice(list(Origin)),))
            for at, text in enumerate(texts, 1)
        ]
        self.lines[number] = new_path, lines + len(texts)
        return TranscriptPart(
            new_path,
            self.stat(),
            bytes([number]) * 32,
            "1",
            ReadPosition(lines * 100, lines),
            chunks,
            [(text, "") for text in texts],
            "en",
            replaces_all=rewritten,
            replaces_last=not rewritten and self.chance.random() < 0.5,
            moved_from="" if path in ("", new_path) else path,
            skipped=self.chance.randint(0, 2),
        )


def contents(store):
    """Everything that a store holds, without the ids."""
    # SQLite's names may be some milliseconds old.
    store.release_memory()
    with store.read() as reader:
        ids = [row.chunk_id for row in reader.pending_chunks(0, MANY, everything=True)]
        rows = reader.chunks(ids)
        files = reader.files()
        held = {
            "files": sorted(str(replace(row, id=0)) for row in files.values()),
            "chunks": sorted(str(row._replace(id=0)) for row in rows.values()),
            "heads": sorted(str(head._replace(id=0)) for head in reader.heads(ids).values()),
            "annotated": reader.counts().annotated,
            "words": reader.frequencies([QueryTerm(word) for word in ("heron", "v2", "index_manager", "a")]),
            "names": reader.names_containing("2", 10),
            "pending": sorted(reader.pending_hashes()),
        }
        hits = reader.keyword_hits([QueryTerm("heron"), QueryTerm("v", prefix=True)], ALL_CHUNKS, MANY)
        held["scores"] = sorted((rows[hit.chunk_id].path, round(hit.bm25, 9)) for hit in hits)
        staged = reader.staged()
        held["vectors"] = sorted(row[1:] for row in reader.stored_vectors(0, MANY))
        held["staged"] = None if staged is None else sorted(row[1:] for row in staged.stored_vectors(0, MANY))
    writer = store.writer()
    held["transcripts"] = sorted(str(writer.transcript(row.id)) for row in files.values())
    return held


@pytest.mark.parametrize("seed", range(4))
def test_random_changes_leave_the_same_rows(postgres_module, tmp_path, seed):
    changes = Changes(seed)
    stores = [sqlite_child.new_store(tmp_path), postgres_module.new_store(tmp_path)]
    for store in stores:
        store.open()
    for _ in range(25):
        documents = [changes.part() if changes.chance.random() < 0.4 else changes.note() for _ in range(3)]
        removal = changes.chance.random() < 0.2
        step = changes.chance.choice(["", "vectors", "stage", "promote", "discard"])
        for store in stores:
            writer = store.writer()
            writer.write(documents, [writer.files()[Source.MEMORY, "n0.md"]] if removal and gone(writer) else [])
            apply(store, step)
        expected, found = map(contents, stores)
        assert found == expected
    for store in stores:
        store.close()


def gone(writer):
    return (Source.MEMORY, "n0.md") in writer.files()


def apply(store, step):
    writer = store.writer()
    if step == "vectors" and writer.vector_identity() is None:
        writer.begin_vectors(VectorIdentity("p", "first", "", 2, "", ""))
    if step == "stage":
        writer.stage_vectors(VectorIdentity("p", "second", "", 2, "", ""))
    if step == "promote" and writer.staged() is not None:
        writer.promote_staged()
    if step == "discard":
        writer.discard_staged()
    for each in (writer, writer.staged()):
        if each is not None and step in {"vectors", "stage"}:
            pending = each.pending_chunks(0, MANY, everything=False)
            # The same vector for the same text.
            each.put_vectors({row.chunk_id: row.content_hash[:8].replace(b"\x7f", b"\0") for row in pending[::2]})


def test_columns_of_an_older_version_are_filled_alike(postgres_module, tmp_path):
    changes = Changes(1)
    stores = [sqlite_child.new_store(tmp_path), postgres_module.new_store(tmp_path)]
    for store in stores:
        store.open()
    notes = [replace(changes.note(), path=f"n{number}.md", error=None) for number in range(3)]
    part = replace(changes.part(), replaces_all=False, moved_from="")
    # The first note has other chunks, so it is replaced; the others are filled.
    other = replace(notes[0], chunks=[chunk("crane", 1)], tokens=[("crane", "")], same_bytes=True)
    filled = [replace(note, same_bytes=True, day="2027-01-02", origin=Origin.UNTRUSTED) for note in notes[1:]]
    filled[0] = replace(filled[0], metadata={"tags": "z", "date": "2027-01-03"})
    lines = [replace(each, line_origins=(Origin.AGENT,), day="2027-01-04") for each in part.chunks]
    for store in stores:
        writer = store.writer()
        writer.write([*notes, part])
        vectors = {row.chunk_id: row.content_hash[:8] for row in writer.pending_chunks(0, MANY, everything=True)}
        writer.put_vectors(vectors)
        assert writer.outdated_transcripts("1") == frozenset()
        (outdated,) = writer.outdated_transcripts("2")
        writer.write([other, *filled])
        (row,) = [row for row in writer.files().values() if row.id == outdated]
        with pytest.raises(SyncCancelled):
            writer.refill_transcript(row, lines, lambda: True)
        writer.refill_transcript(row, lines, lambda: False)
    expected, found = map(contents, stores)
    assert found == expected
    assert found["vectors"]
    for store in stores:
        with store.read() as reader:
            day = (date(2027, 1, 2), date(2027, 1, 4))
            assert len(reader.dated_chunks(*day, ALL_CHUNKS, MANY)) > len(part.chunks)
        store.close()
