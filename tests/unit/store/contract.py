"""The contract of every driver of `store.protocol`. A driver's test module has a subclass of `StoreContract`.

The scores are compared with computations of their own: BM25 as SQLite documents it, and cosines in float64.
"""

import hashlib
import itertools
import math
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from datetime import date
from pathlib import Path

import numpy as np
import pytest

from memoryd_server.errors import DeadlineTooShort, SyncCancelled
from memoryd_server.model import NO_ANNOTATIONS, Annotations, Chunk, FileStat, Origin, Source
from memoryd_server.store.filters import ALL_CHUNKS, ChunkFilter
from memoryd_server.store.identity import VectorIdentity
from memoryd_server.store.protocol import Store
from memoryd_server.store.rows import PreparedFile
from memoryd_server.text.analyzer import Analyzer
from memoryd_server.text.terms import QueryTerm, TermKind
from waiting import wait_until

TESTS = Path(__file__).parents[2]

DIMENSIONS = 16
WORDS = [f"word{number}" for number in range(60)]
TWO_MODELS = [VectorIdentity("provider", model, "", DIMENSIONS, "", "") for model in ("first", "second")]

# Column weights of body and context, and SQLite's constants (fts5_aux.c).
WEIGHTS = (1.0, 0.5)
K1, B = 1.2, 0.75
LEAST_IDF = 1e-6


def never():
    return False


def document(path, *chunks, source=Source.MEMORY):
    """A file with these chunks, each the (body, context) words of the keyword index."""
    texts = [body for body, _ in chunks]
    stat = FileStat(sum(map(len, texts)), 1, 2, 3, 4)
    made = [Chunk(text, number, number, hashlib.sha256(text.encode()).digest()) for number, text in enumerate(texts, 1)]
    return PreparedFile(path, source, stat, hashlib.sha256(repr(chunks).encode()).digest(), made, chunks)


def library(count, seed=0):
    """Documents of one to four chunks each, of both sources, some of whose words are common and some rare."""
    chance = random.Random(seed)

    def words(most):
        return " ".join(chance.choice(WORDS[: chance.choice([5, 60])]) for _ in range(chance.randint(1, most)))

    for number in range(count):
        source = Source.SESSIONS if number % 4 == 3 else Source.MEMORY
        chunks = [(words(80), words(4)) for _ in range(chance.randint(1, 4))]
        yield document(f"notes/{number}.md", *chunks, source=source)


def vectors(ids, seed=1):
    chance = np.random.default_rng(seed)
    made = {number: chance.standard_normal(DIMENSIONS) for number in ids}
    return {number: (vector / np.linalg.norm(vector)).astype("<f4") for number, vector in made.items()}


def blobs(made):
    return {number: vector.tobytes() for number, vector in made.items()}


def chunk_ids(store):
    with store.read() as reader:
        return sorted(row.chunk_id for row in reader.pending_chunks(0, 10_000, everything=True))


def bodies(reader):
    """The text of every chunk by path and line: all that a snapshot holds."""
    ids = [row.chunk_id for row in reader.pending_chunks(0, 10_000, everything=True)]
    return {(row.path, row.start_line): row.text for row in reader.chunks(ids).values()}


class Reference:
    """BM25 of the terms, from the words that the chunks were written with; `chunks` are (body, context) by id."""

    def __init__(self, chunks):
        self._counts = {number: [Counter(column.split()) for column in columns] for number, columns in chunks.items()}
        lengths = {number: sum(len(column.split()) for column in columns) for number, columns in chunks.items()}
        self._mean = sum(lengths.values()) / len(lengths)
        self._lengths = lengths

    def matches(self, term, word):
        return word.startswith(term.text) if term.prefix else word == term.text

    def frequency(self, term):
        return sum(
            any(self.matches(term, word) for column in columns for word in column) for columns in self._counts.values()
        )

    def score(self, terms, number):
        total = 0.0
        for term in terms:
            holding = self.frequency(term)
            idf = max(math.log((len(self._counts) - holding + 0.5) / (holding + 0.5)), LEAST_IDF) if holding else 0.0
            found = sum(
                weight * sum(count for word, count in column.items() if self.matches(term, word))
                for weight, column in zip(WEIGHTS, self._counts[number], strict=True)
            )
            length = self._lengths[number] / self._mean
            total += idf * found * (K1 + 1) / (found + K1 * (1 - B + B * length))
        return -total

    def best(self, terms, among):
        scored = {number: self.score(terms, number) for number in among}
        return sorted((score, number) for number, score in scored.items() if score < 0)


class StoreContract:
    """Test methods that use `new_store` alone. A subclass defines it, and `child` for the kill test."""

    # A module that, run with a folder, opens the store in it and calls `write_for_ever`.
    child: str

    def new_store(self, folder: Path) -> Store:
        """A store in `folder`, which is not open; of the same identity each time."""
        raise NotImplementedError

    @pytest.fixture
    def store(self, tmp_path) -> Iterator[Store]:
        store = self.new_store(tmp_path)
        store.open()
        yield store
        store.close()

    @pytest.fixture
    def filled(self, store):
        store.writer().write([*library(40)])
        return store

    @pytest.fixture
    def reference(self, filled):
        """The same chunks, by their ids in the store."""
        words = {}
        for each in library(40):
            words |= {(each.path, number): columns for number, columns in enumerate(each.tokens, 1)}
        with filled.read() as reader:
            rows = reader.chunks(chunk_ids(filled)).values()
        self.sources = {row.id: row.source for row in rows}
        return Reference({row.id: words[row.path, row.start_line] for row in rows})

    # Snapshots and revisions

    def test_a_snapshot_does_not_change_when_a_transaction_commits(self, filled):
        with filled.read() as before:
            seen, revision = bodies(before), before.revision
            writer = filled.writer()
            writer.write([document("notes/0.md", ("heron", ""))], [*writer.files().values()][5:])
            with filled.read() as after:
                assert bodies(after) != seen
                assert after.revision > revision
            assert (bodies(before), before.revision) == (seen, revision)
            assert len(before.files()) == 40

    def test_a_snapshot_finds_the_words_and_vectors_that_it_holds(self, filled):
        writer = filled.writer()
        made = vectors(chunk_ids(filled))
        writer.put_vectors(blobs(made))
        with filled.read() as before:
            ids = {hit.chunk_id for hit in before.keyword_hits([QueryTerm("word0")], ALL_CHUNKS, 1_000)}
            writer.write([], writer.files().values())
            assert (
                {hit.chunk_id for hit in before.keyword_hits([QueryTerm("word0")], ALL_CHUNKS, 1_000)} == ids != set()
            )
            assert before.cosines([min(made)], made[min(made)])[min(made)] == pytest.approx(1.0, abs=1e-6)
        with filled.read() as after:
            assert after.keyword_hits([QueryTerm("word0")], ALL_CHUNKS, 1_000) == []
            assert after.vector_hits(made[min(made)], 10, ALL_CHUNKS) == []

    def test_every_change_of_rows_raises_the_revision_and_nothing_lowers_it(self, store, tmp_path):
        def revision():
            with store.read() as reader:
                return reader.revision

        seen = [revision()]
        writer = store.writer()
        assert writer.write([document("a.md", ("heron", ""))]) == revision()
        seen.append(revision())
        writer.put_vectors(blobs(vectors(chunk_ids(store))))
        seen.append(revision())
        writer.write([], writer.files().values())
        seen.append(revision())
        with store.rebuild() as beside:
            beside.write([document("a.md", ("heron", ""))])
        seen.append(revision())
        assert seen == sorted(set(seen))
        writer = store.writer()
        writer.touch([(row, FileStat(9, 9, 9, 9, 9)) for row in writer.files().values()])
        writer.record_sync(7)
        assert revision() == writer.revision() == seen[-1]
        store.close()
        again = self.new_store(tmp_path)
        again.open()
        with again.read() as reader:
            assert (reader.revision, reader.last_sync_ms()) == (seen[-1], 7)
        again.close()

    def test_a_search_ends_when_its_deadline_has_passed(self, filled):
        with pytest.raises(DeadlineTooShort), filled.read(time.monotonic() - 1):
            raise AssertionError("there was time left")
        with filled.read(time.monotonic() + 60) as reader:
            assert reader.counts().files == 40

    # Rows

    def test_files_are_counted_and_read_by_both_sides(self, filled):
        writer = filled.writer()
        with filled.read() as reader:
            counts = reader.counts()
            assert reader.files() == writer.files()
            assert reader.count_chunks() == writer.count_chunks() == counts.chunks == reader.keyword_chunks()
        wanted = ["notes/0.md", "notes/3.md", "absent.md"]
        assert [path for _, path in writer.memory_files(wanted)] == ["notes/0.md"]
        assert counts.files == 40
        assert set(counts.sources) == {Source.MEMORY, Source.SESSIONS}

    def test_the_chunks_of_a_file_are_found_and_those_of_a_line(self, filled):
        with filled.read() as reader:
            rows = reader.chunks(chunk_ids(filled)).values()
            for source, path in [*reader.files(), (Source.SESSIONS, "notes/0.md"), (Source.MEMORY, "absent.md")]:
                own = sorted((row for row in rows if (row.source, row.path) == (source, path)), key=lambda row: row.id)
                assert reader.chunks_of((source, path), None, 100) == [row.id for row in own]
                assert reader.chunks_of((source, path), None, 1) == [row.id for row in own[:1]]
                for line in range(5):
                    expected = [row.id for row in own if row.start_line <= line <= row.end_line]
                    assert reader.chunks_of((source, path), line, 100) == expected

    def test_the_lines_of_the_chunks_of_a_range_are_found_in_their_order(self, filled):
        with filled.read() as reader:
            rows = reader.chunks(chunk_ids(filled)).values()
            for file in [*reader.files(), (Source.MEMORY, "absent.md")]:
                own = sorted((row.start_line, row.end_line) for row in rows if (row.source, row.path) == file)
                assert reader.chunk_lines(file, (1, 100), 100) == own
                assert reader.chunk_lines(file, (1, 100), 2) == own[:2]
                assert reader.chunk_lines(file, (2, 3), 100) == [lines for lines in own if lines[0] in {2, 3}]
                assert reader.chunk_lines(file, (50, 60), 100) == []

    def test_the_date_of_each_file_is_that_of_its_note(self, store):
        dated = replace(document("memory/2026-05-08.md", ("a heron", "")), day="2026-05-08")
        store.writer().write([dated, document("notes/heron.md", ("a heron", ""))])
        with store.read() as reader:
            dates = reader.file_dates()
        assert dates == {(Source.MEMORY, dated.path): "2026-05-08", (Source.MEMORY, "notes/heron.md"): ""}

    def test_unknown_ids_are_left_out(self, filled):
        ids = chunk_ids(filled)
        with filled.read() as reader:
            assert set(reader.heads([*ids, 10**9])) == set(reader.chunks([*ids, 10**9])) == set(ids)

    def test_a_file_that_is_written_again_leaves_nothing_of_the_old_one(self, filled):
        writer = filled.writer()
        row = writer.files()[Source.MEMORY, "notes/0.md"]
        with filled.read() as reader:
            held = reader.stored_counts([row.id])
        assert len(held.hashes) == held.keyword_entries == row.chunk_count
        writer.write([document("notes/0.md", ("heron", ""))])
        with filled.read() as reader:
            assert not reader.stored_counts([row.id]).hashes or row.id in {f.id for f in reader.files().values()}
            assert reader.hashes_containing("heron") == {hashlib.sha256(b"heron").digest()}
            (hit,) = reader.keyword_hits([QueryTerm("heron")], ALL_CHUNKS, 10)
            assert reader.chunks([hit.chunk_id])[hit.chunk_id].path == "notes/0.md"

    def test_a_chunk_is_stored_with_its_origin_and_annotations(self, store):
        annotations = Annotations(7, ("a phrase", "b"), ("x/y",))
        plain = document("a.md", ("heron", ""), ("weir", ""))
        chunks = [replace(plain.chunks[0], annotations=annotations), plain.chunks[1]]
        with store.read() as reader:
            assert not reader.counts().annotated
        store.writer().write([replace(plain, chunks=chunks, origin=Origin.AGENT)])
        with store.read() as reader:
            assert reader.counts().annotated
            ids = [reader.keyword_hits([QueryTerm(word)], ALL_CHUNKS, 1)[0].chunk_id for word in ("heron", "weir")]
            rows, heads = reader.chunks(ids), reader.heads(ids)
        assert [(rows[each].origin, rows[each].annotations) for each in ids] == [
            (Origin.AGENT, annotations),
            (Origin.AGENT, NO_ANNOTATIONS),
        ]
        assert [(heads[each].importance, heads[each].projects) for each in ids] == [(7, ("x/y",)), (None, ())]

    def test_chunks_are_found_by_their_day_or_that_of_their_note(self, store):
        note = replace(document("a.md", ("heron", ""), ("weir", "")), day="2023-05-08")
        note = replace(note, chunks=[note.chunks[0], replace(note.chunks[1], day="2023-06-01")])
        later = replace(document("b.md", ("otter", "")), day="2023-05-10")
        same_day = replace(document("e.md", ("finch", "")), day="2023-05-08")
        session = replace(document("c.md", ("swift", ""), source=Source.SESSIONS), day="2023-05-09")
        store.writer().write([note, later, session, document("d.md", ("crane", "")), same_day])
        with store.read() as reader:
            (heron, weir, otter, swift, crane, second) = (
                reader.keyword_hits([QueryTerm(word)], ALL_CHUNKS, 1)[0].chunk_id
                for word in ("heron", "weir", "otter", "swift", "crane", "finch")
            )
            may = (date(2023, 5, 8), date(2023, 5, 31))
            assert reader.dated_chunks(*may, ALL_CHUNKS, 10) == [otter, swift, heron, second]
            summer = (date(2023, 5, 8), date(2023, 6, 30))
            assert reader.dated_chunks(*summer, ALL_CHUNKS, 10) == [weir, otter, swift, heron, second]
            assert reader.dated_chunks(*may, ALL_CHUNKS, 2) == [otter, swift]
            assert reader.dated_chunks(*may, ChunkFilter(sources=(Source.MEMORY,)), 10) == [otter, heron, second]
            assert reader.dated_chunks(date(2023, 6, 1), date(2023, 6, 1), ALL_CHUNKS, 10) == [weir]
            assert reader.dated_chunks(date(2023, 5, 11), date(2023, 5, 31), ALL_CHUNKS, 10) == []
            days = {each: head.day for each, head in reader.heads([heron, weir, crane]).items()}
        assert days == {heron: date(2023, 5, 8), weir: date(2023, 6, 1), crane: None}

    def test_a_sound_index_needs_no_repair(self, store):
        assert store.health.damage is None
        assert not store.repair()
        assert store.on_sound_index(lambda _: 7, never) == 7

    # Keywords

    @pytest.mark.parametrize("limit", [1, 7, 1_000])
    @pytest.mark.parametrize("sources", [(), (Source.MEMORY,), (Source.SESSIONS,)])
    @pytest.mark.parametrize(
        "terms",
        [
            [QueryTerm("word0")],
            [QueryTerm("word33"), QueryTerm("word2"), QueryTerm("absent")],
            [QueryTerm("word1", prefix=True)],
            [QueryTerm('word5" OR "word0')],
        ],
    )
    def test_keyword_hits_have_the_scores_of_bm25(self, filled, reference, terms, sources, limit):
        among = [number for number, source in self.sources.items() if not sources or source in sources]
        expected = reference.best(terms, among)
        # Repeated: what a driver keeps of a term has the same scores.
        for _ in range(5):
            with filled.read() as reader:
                hits = reader.keyword_hits(terms, ChunkFilter(sources=sources), limit)
            assert [hit.bm25 for hit in hits] == pytest.approx([score for score, _ in expected[:limit]], rel=1e-6)
            for hit in hits:
                assert hit.bm25 == pytest.approx(reference.score(terms, hit.chunk_id), rel=1e-6)
            assert [(hit.bm25, hit.chunk_id) for hit in hits] == sorted((hit.bm25, hit.chunk_id) for hit in hits)

    def test_keyword_scores_are_those_of_the_hits_and_0_for_no_word(self, filled, reference):
        terms = [QueryTerm("word33"), QueryTerm("word2")]
        ids = chunk_ids(filled)
        for _ in range(5):
            with filled.read() as reader:
                scores = reader.keyword_scores(terms, [*ids, 10**9])
                reader.keyword_hits(terms, ALL_CHUNKS, 10)
            assert scores[10**9] == 0.0
            assert [scores[number] for number in ids] == pytest.approx(
                [reference.score(terms, number) for number in ids], rel=1e-6, abs=1e-12
            )

    def test_frequencies_count_chunks_for_words_prefixes_and_guesses(self, filled, reference):
        terms = [
            QueryTerm("word0"),
            QueryTerm("word1", prefix=True),
            QueryTerm("absent"),
            QueryTerm("word33", kind=TermKind.GUESS),
            QueryTerm("word99", kind=TermKind.GUESS),
        ]
        with filled.read() as reader:
            assert reader.frequencies(terms) == {term: reference.frequency(term) for term in terms}
            assert reader.frequencies([]) == {}

    def test_names_are_found_by_a_piece_the_shortest_first(self, store):
        store.writer().write([document("a.md", ("index_manager_of_all index_manager other", ""))])
        with store.read() as reader:
            assert reader.names_containing("ex_mana", 5) == ["index_manager", "index_manager_of_all"]
            assert reader.names_containing("ex_mana", 1) == ["index_manager"]
            assert reader.names_containing("absent", 5) == []

    # Vectors

    @pytest.mark.parametrize("limit", [1, 5, 1_000])
    @pytest.mark.parametrize("sources", [(), (Source.MEMORY,), (Source.SESSIONS,)])
    def test_vector_hits_are_the_exact_cosines_best_first(self, filled, reference, sources, limit):
        made = vectors(self.sources)
        filled.writer().put_vectors(blobs(made))
        filled.probe_vector_engine()
        for seed in range(3):
            query = vectors([0], seed=100 + seed)[0]
            exact = {
                number: float(vector.astype(np.float64) @ query.astype(np.float64))
                for number, vector in made.items()
                if not sources or self.sources[number] in sources
            }
            expected = sorted(exact, key=lambda number: (-exact[number], number))[:limit]
            # Twice: from the disk, and from memory.
            for _ in range(2):
                with filled.read() as reader:
                    hits = reader.vector_hits(query, limit, ChunkFilter(sources=sources))
                    cosines = reader.cosines(expected, query)
                assert [hit.chunk_id for hit in hits] == expected
                assert [hit.cosine for hit in hits] == pytest.approx([exact[number] for number in expected], abs=1e-6)
                assert [cosines[number] for number in expected] == pytest.approx(
                    [exact[number] for number in expected], abs=1e-6
                )

    def test_a_query_without_a_direction_is_refused(self, filled):
        filled.writer().put_vectors(blobs(vectors(chunk_ids(filled))))
        for bad in (0.0, math.nan, math.inf):
            with filled.read() as reader, pytest.raises(ValueError, match="vector"):
                reader.vector_hits(np.full(DIMENSIONS, bad, np.float32), 3, ALL_CHUNKS)

    def test_a_vector_is_pending_until_it_is_put(self, filled):
        writer, ids = filled.writer(), chunk_ids(filled)
        first, second = TWO_MODELS
        assert (writer.vector_identity(), writer.vector_dimensions()) == (None, 0)
        writer.begin_vectors(first)
        assert writer.count_pending() == len(writer.pending_hashes()) == len(ids)
        half = ids[: len(ids) // 2]
        writer.put_vectors(blobs(vectors(half)))
        assert [row.chunk_id for row in writer.pending_chunks(0, 1_000, everything=False)] == ids[len(half) :]
        assert [row.chunk_id for row in writer.stored_vectors(half[0], 1_000)] == half[1:]
        with filled.read() as reader:
            assert (reader.vector_identity(), reader.vector_dimensions()) == (first, DIMENSIONS)
        writer.begin_vectors(second)
        assert (writer.vector_identity(), writer.count_pending()) == (second, len(ids))

    def test_vectors_of_other_lengths_are_dropped_when_the_dimensions_are_known(self, filled):
        writer, ids = filled.writer(), chunk_ids(filled)
        writer.begin_vectors(TWO_MODELS[0])
        writer.put_vectors(blobs(vectors(ids)) | {ids[0]: b"\0" * 8})
        writer.set_dimensions(TWO_MODELS[1])
        assert [row.chunk_id for row in writer.pending_chunks(0, 10, everything=False)] == ids[:1]
        assert writer.vector_identity() == TWO_MODELS[1]

    def test_vectors_are_copied_to_equal_texts(self, filled):
        writer = filled.writer()
        writer.begin_vectors(TWO_MODELS[0])
        writer.put_vectors(blobs(vectors(chunk_ids(filled))))
        writer.record_failover("a record")
        held = {row.content_hash: row.vector for row in writer.stored_vectors(0, 1_000)}
        with filled.rebuild() as beside:
            beside.write([*itertools.islice(library(40), 10), document("new.md", ("heron", ""))])
            with pytest.raises(SyncCancelled):
                beside.copy_vectors(writer, lambda: True)
            beside.copy_vectors(writer, never)
            assert beside.count_pending() == 1
        with filled.read() as reader:
            assert (reader.vector_identity(), reader.failover_record()) == (TWO_MODELS[0], "a record")
            copied = reader.stored_vectors(0, 1_000)
            assert all(held[row.content_hash] == row.vector for row in copied)
            assert len(copied) == reader.count_chunks() - 1

    # A staged set of vectors

    def staging(self, filled, count):
        """Store the vectors of the first model, and stage `count` of the second."""
        writer, ids = filled.writer(), chunk_ids(filled)
        writer.begin_vectors(TWO_MODELS[0])
        writer.put_vectors(blobs(vectors(ids)))
        staged = writer.stage_vectors(TWO_MODELS[1])
        staged.put_vectors(blobs(vectors(ids[:count], seed=2)))
        return writer, ids

    def test_searches_read_the_stored_vectors_until_the_staged_ones_replace_them(self, filled):
        writer, ids = self.staging(filled, 5)
        old, new = vectors(ids), vectors(ids, seed=2)
        before = writer.revision()
        assert writer.staged().put_vectors(blobs({ids[5]: new[ids[5]]})) == before
        for view in (writer, writer.staged()):
            assert view.count_chunks() == len(ids)
        assert (writer.count_pending(), writer.staged().count_pending()) == (0, len(ids) - 6)
        with filled.read() as reader:
            assert reader.staged().vector_identity() == TWO_MODELS[1]
            assert reader.vector_identity() == TWO_MODELS[0]
            assert reader.vector_hits(old[ids[0]], 1, ALL_CHUNKS)[0].chunk_id == ids[0]
            assert reader.vector_hits(old[ids[0]], 1, ALL_CHUNKS)[0].cosine == pytest.approx(1.0)
            writer.staged().put_vectors(blobs(new))
            assert writer.promote_staged() > before
            assert reader.vector_hits(old[ids[1]], 1, ALL_CHUNKS)[0].cosine == pytest.approx(1.0), (
                "an open snapshot changed"
            )
        with filled.read() as reader:
            assert (reader.vector_identity(), reader.staged(), reader.count_pending()) == (TWO_MODELS[1], None, 0)
            assert reader.vector_hits(new[ids[2]], 1, ALL_CHUNKS)[0].chunk_id == ids[2]
            assert reader.vector_hits(new[ids[2]], 1, ALL_CHUNKS)[0].cosine == pytest.approx(1.0)
            assert len(reader.stored_vectors(0, 1_000)) == len(ids)

    def test_staged_vectors_survive_a_restart_and_are_discarded_on_request(self, filled):
        self.staging(filled, 5)
        filled.close()
        filled.open()
        writer = filled.writer()
        assert (writer.staged().vector_identity(), len(writer.staged().stored_vectors(0, 1_000))) == (TWO_MODELS[1], 5)
        assert writer.stage_vectors(TWO_MODELS[0]).stored_vectors(0, 1_000) == [], "of another set"
        writer.discard_staged()
        assert writer.staged() is None
        assert writer.count_pending() == 0

    def test_both_sets_follow_the_chunks(self, filled):
        writer, ids = self.staging(filled, 1_000)
        row = writer.files()[Source.MEMORY, "notes/0.md"]
        writer.write([document("new.md", ("heron", ""))], removed=[row])
        left = chunk_ids(filled)
        added = set(left) - set(ids)
        assert len(added) <= 1
        for each in (writer, writer.staged()):
            found = {pending.chunk_id: pending.text for pending in each.pending_chunks(0, 1_000, everything=False)}
            assert list(found.values()) == ["heron"]
            assert {stored.chunk_id for stored in each.stored_vectors(0, 1_000)} == set(left) - set(found)

    def test_both_sets_keep_the_vectors_of_the_unchanged_texts_of_a_file(self, filled):
        writer, _ = self.staging(filled, 1_000)
        before = [
            {row.content_hash: row.vector for row in each.stored_vectors(0, 1_000)}
            for each in (writer, writer.staged())
        ]
        old = next(each for each in library(40) if each.path == "notes/0.md")
        writer.write([document("notes/0.md", ("heron", ""), *old.tokens)])
        for each, vectors_before in zip((writer, writer.staged()), before, strict=True):
            pending = each.pending_chunks(0, 1_000, everything=False)
            assert [chunk.text for chunk in pending] == ["heron"]
            assert {row.content_hash: row.vector for row in each.stored_vectors(0, 1_000)} == vectors_before

    def test_a_copy_has_both_sets(self, filled):
        writer, ids = self.staging(filled, 7)
        kept = {row.content_hash for row in writer.staged().stored_vectors(0, 1_000)}
        with filled.rebuild() as beside:
            beside.write(list(library(40)))
            beside.copy_vectors(writer, never)
        writer = filled.writer()
        assert (writer.vector_identity(), writer.count_pending()) == (TWO_MODELS[0], 0)
        assert writer.staged().vector_identity() == TWO_MODELS[1]
        assert {row.content_hash for row in writer.staged().stored_vectors(0, 1_000)} == kept
        assert len(ids) == writer.count_chunks()

    # A rebuild

    def test_a_rebuild_is_seen_when_it_is_whole(self, filled):
        with filled.read() as reader:
            before = bodies(reader)
        with filled.rebuild() as beside:
            beside.write([document("a.md", ("heron", ""))])
            with filled.read() as reader:
                assert bodies(reader) == before
        with filled.read() as reader:
            assert bodies(reader) == {("a.md", 1): "heron"}
            assert reader.keyword_hits([QueryTerm("word0")], ALL_CHUNKS, 10) == []

    def test_a_rebuild_that_fails_leaves_the_index_as_it_was(self, filled):
        with filled.read() as reader:
            before = bodies(reader), reader.revision

        def broken_off():
            with filled.rebuild() as beside:
                beside.write([document("a.md", ("heron", ""))])
                raise LookupError

        with pytest.raises(LookupError):
            broken_off()
        with filled.read() as reader:
            assert (bodies(reader), reader.revision) == before

    # What is not rows

    def test_the_keyword_index_is_built_again_from_the_text(self, filled):
        with filled.read() as reader:
            revision = reader.revision
        with pytest.raises(SyncCancelled):
            filled.refresh_keyword(Analyzer(), lambda: True)
        assert filled.refresh_keyword(Analyzer(), never) > revision
        with filled.read() as reader:
            assert reader.keyword_chunks() == reader.count_chunks()

    def test_deleted_text_is_overwritten_by_a_purge(self, filled):
        assert not filled.has_deleted_text
        writer = filled.writer()
        writer.write([], writer.files().values())
        assert filled.has_deleted_text
        # A driver may do it on another thread.
        wait_until(lambda: filled.purge(never))
        assert not filled.has_deleted_text

    def test_an_idle_index_answers_again(self, filled):
        filled.release_memory()
        assert filled.is_idle
        assert filled.vector_memory_bytes() == 0
        with filled.read() as reader:
            assert reader.counts().files == 40
            filled.release_memory()
            assert not filled.is_idle
        # A health check searches the index until it is released again.
        assert not filled.is_idle
        filled.release_memory()
        assert filled.is_idle

    # A kill

    @pytest.mark.slow
    def test_a_killed_process_loses_no_transaction_that_it_has_reported(self, tmp_path):
        """The child reports each revision after its call has returned; it is killed while it writes the next."""
        for turn in range(3):
            command = [sys.executable, "-m", self.child, str(tmp_path)]
            child = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=TESTS)
            with child:
                for _ in range(4 + turn):
                    reported = int(child.stdout.readline())
                time.sleep(0.003 * turn)
                child.send_signal(signal.SIGKILL)
            store = self.new_store(tmp_path)
            store.open()
            try:
                check_whole(store, reported)
            finally:
                store.close()


def check_whole(store, reported):
    """The index holds whole transactions, up to that revision at least."""
    assert (store.health.damage, store.degradations()) == (None, ())
    with store.read() as reader:
        assert reader.revision >= reported
        files, texts = reader.files().values(), bodies(reader)
        turns = {text for (path, _), text in texts.items() if path.startswith("turn")}
        assert len(turns) == 1, "a transaction of five files was written in part"
        assert sum(row.chunk_count for row in files) == len(texts) == reader.keyword_chunks()
        (turn,) = turns
        hits = reader.keyword_hits([QueryTerm(turn)], ALL_CHUNKS, 1_000)
        assert len(hits) == len(texts)


def write_for_ever(store):
    """Replaces the same five files in each transaction, and says its revision."""
    writer = store.writer()
    for turn in itertools.count():
        word = f"turn{writer.revision()}x{turn}"
        revision = writer.write([document(f"turn{number}.md", *[(word, "")] * 20) for number in range(5)])
        print(revision, flush=True)  # noqa: T201 -- for the test that reads it
