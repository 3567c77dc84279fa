"""A reader process answers as the daemon's own search does, and gives up files and memory when it is told to."""

import os
import shutil
import signal
import struct
import subprocess
import sys
import time
from dataclasses import replace
from datetime import UTC, date, datetime
from functools import partial

import numpy as np
import pytest

from embedding_fixture import EmbeddingFixture
from index_fixture import ANALYZER, IndexFixture
from memoryd_server.model import Origin, Source
from memoryd_server.readers.messages import (
    INTERNAL,
    Answer,
    CloseIndex,
    IndexClosed,
    OpenIndex,
    Ready,
    ReleaseMemory,
    ResetVectors,
    Search,
    SearchFailure,
    VectorChanges,
    encode,
)
from memoryd_server.readers.process import BAD_STREAM, OTHER_VERSION
from memoryd_server.search.engine import SearchEngine
from memoryd_server.search.file_check import check_files
from memoryd_server.search.query import EmptyReason, RankingConfig, SearchMode, SearchQuery
from memoryd_server.sources.folder_corpus import FolderCorpus
from memoryd_server.sources.roots import Roots
from memoryd_server.store.filters import FileFilter
from memoryd_server.store.identity import VectorIdentity
from reader_fixture import StartedProcess, options_of
from word_provider import word_vector

KEY = "main"
NOW = datetime(2026, 6, 1, 12, tzinfo=UTC)
FAR_DEADLINE = time.monotonic() + 3600
WORDS = ("heron", "kestrel", "reeds", "river", "ticket", "E1042", "booking", "cache", "deploy", "lunch")


@pytest.fixture(scope="module")
def process():
    """A process that the tests share; none of them ends it."""
    started = StartedProcess().start()
    yield started
    started.stop()


@pytest.fixture
def own_process():
    """A process of one test, which may end it."""
    started = StartedProcess().start()
    yield started
    started.stop()


@pytest.fixture
def embedded(tmp_path):
    """An index with vectors of notes about random words, some of them with a date and an origin."""
    fixture = EmbeddingFixture(tmp_path)
    random = np.random.default_rng(11)
    for number in range(60):
        words = " ".join(random.choice(WORDS, 12))
        fixture.index.write(f"memory/2026-05-{1 + number % 28:02d}-{number}.md", f"# Note {number}\n\n{words}\n")
    fixture.index.write("MEMORY.md", "the heron nests near the river on 2026-05-20\n\n" + "more lunch\n" * 40)
    fixture.sync()
    yield fixture
    fixture.close()


def query_of(text, **changes):
    query = SearchQuery(
        text=text,
        max_results=6,
        min_score=None,
        min_score_is_requested=False,
        sources=(),
        mode=SearchMode.UNSPECIFIED,
        max_snippet_chars=700,
        citations=True,
        max_total_chars=None,
        deadline=FAR_DEADLINE,
        now=NOW,
    )
    return replace(query, **changes)


def untimed(answer):
    """Return an answer without the times that its retrievers took."""
    return replace(answer, retrievers=tuple(replace(each, elapsed_seconds=0.0) for each in answer.retrievers))


def identity_of(fixture):
    return VectorIdentity.of(fixture.provider.spec, fixture.provider.dimensions)


def expected(fixture, query, vector=None, **options):
    """Return the answer of a search in this process."""
    corpus = FolderCorpus(fixture.index.roots)
    engine = SearchEngine(
        fixture.index.store, ANALYZER, partial(check_files, corpus), sources=[Source.MEMORY], **options
    )
    return engine.search(query, vector, "" if vector is not None else "no provider", identity=identity_of(fixture))


def found(answer):
    assert isinstance(answer, Answer), answer
    return [hit.path for hit in answer.answer.hits]


SEARCHES = {
    "several words": query_of("heron near the river"),
    "a name": query_of("E1042"),
    "no match": query_of("zeppelin"),
    "no words": query_of("???"),
    "a date": query_of("what happened on 20 May 2026"),
    "a range of dates": query_of("heron", files=FileFilter(date(2026, 5, 3), date(2026, 5, 9))),
    "a path": query_of("heron", files=FileFilter(path_prefixes=("MEMORY",))),
    "an origin": query_of("heron", origins=(Origin.OWNER,)),
    "a source": query_of("heron", sources=(Source.SESSIONS,)),
    "a minimum score": query_of("heron kestrel", min_score=0.9, min_score_is_requested=True),
    "few characters": query_of("lunch booking", max_total_chars=100),
    "one result": query_of("cache", max_results=1),
    "explained": query_of("deploy ticket", explain=True),
    "keywords only": query_of("deploy ticket", mode=SearchMode.KEYWORD),
}
RANKINGS = {"default": RankingConfig(), "mmr": RankingConfig(mmr=True), "decay": RankingConfig(decay=True)}


def test_answers_are_those_of_a_search_in_the_daemon(process, embedded):
    for ranking_name, ranking in RANKINGS.items():
        process.send(OpenIndex(KEY, options_of(embedded.index, ranking=ranking)))
        for name, query in SEARCHES.items():
            vectors = [None] if query.mode is SearchMode.KEYWORD else [None, word_vector(query.text)]
            for vector in vectors:
                own = expected(embedded, query, vector, ranking=ranking)
                no_vector = "" if vector is not None else "no provider"
                answer = process.ask(KEY, query, vector, identity_of(embedded), no_vector)
                assert isinstance(answer, Answer), (ranking_name, name, answer)
                assert untimed(answer.answer) == untimed(own), (ranking_name, name, vector is not None)


def test_the_compared_searches_have_hits_by_both_retrievers_and_empty_answers(embedded):
    answers = {name: expected(embedded, query, word_vector(query.text)) for name, query in SEARCHES.items()}
    assert all(answers[name].hits for name in ("several words", "a name", "a date", "a range of dates", "explained"))
    assert answers["several words"].vector_candidates
    assert answers["several words"].keyword_candidates
    assert answers["explained"].hits[0].parts
    assert not answers["a source"].hits


def test_a_vector_of_another_identity_is_ignored(process, embedded):
    process.send(OpenIndex(KEY, options_of(embedded.index)))
    other = replace(identity_of(embedded), model="another")
    hybrid = process.ask(KEY, query_of("heron"), word_vector("heron"), other)
    assert (hybrid.answer.served_mode, hybrid.answer.vector_candidates) == (SearchMode.KEYWORD, 0)
    by_vector = process.ask(KEY, query_of("heron", mode=SearchMode.VECTOR), word_vector("heron"), other)
    assert isinstance(by_vector, SearchFailure)
    assert by_vector.kind == "EmbeddingUnavailable"


def test_a_search_sees_what_was_committed_before_it(process, embedded):
    process.send(OpenIndex(KEY, options_of(embedded.index)))
    assert found(process.ask(KEY, query_of("zeppelin"))) == []
    embedded.write(new="a zeppelin above the harbour")
    embedded.sync()
    assert found(process.ask(KEY, query_of("zeppelin"))) == ["memory/new.md"]
    embedded.remove("new")
    assert found(process.ask(KEY, query_of("zeppelin"))) == []
    embedded.sync()
    assert process.ask(KEY, query_of("zeppelin")).answer.empty_reason is EmptyReason.NO_MATCH


def vector_ids(fixture):
    return {row[0] for row in fixture.index.sql("SELECT chunk_id FROM vectors")}


def nearest(process, fixture, text):
    """Return the paths that vector search alone finds for the vector of a text."""
    query = query_of(text, mode=SearchMode.VECTOR, min_score=0.0, min_score_is_requested=True)
    return found(process.ask(KEY, query, word_vector(text), identity_of(fixture)))


def test_vectors_of_a_commit_are_found_when_the_process_was_told_of_it(process, embedded):
    process.send(OpenIndex(KEY, options_of(embedded.index)))
    assert "memory/new.md" not in nearest(process, embedded, "zeppelin harbour")
    before = vector_ids(embedded)
    embedded.write(new="zeppelin harbour")
    embedded.sync()
    process.send(VectorChanges(KEY, tuple(vector_ids(embedded) - before), ()))
    assert nearest(process, embedded, "zeppelin harbour")[0] == "memory/new.md"
    with_it = vector_ids(embedded)
    embedded.remove("new")
    embedded.sync()
    process.send(VectorChanges(KEY, (), tuple(with_it - vector_ids(embedded))))
    assert "memory/new.md" not in nearest(process, embedded, "zeppelin harbour")


def test_vectors_are_loaded_again_after_a_reset(process, embedded):
    process.send(OpenIndex(KEY, options_of(embedded.index)))
    nearest(process, embedded, "heron")
    embedded.write(new="zeppelin harbour")
    embedded.sync()
    process.send(ResetVectors(KEY))
    assert nearest(process, embedded, "zeppelin harbour")[0] == "memory/new.md"


def test_ranking_and_corpus_of_new_options_are_used_by_the_next_search(process, embedded, tmp_path):
    options = options_of(embedded.index)
    process.send(OpenIndex(KEY, options))
    assert found(process.ask(KEY, query_of("heron")))
    process.send(OpenIndex(KEY, replace(options, ranking=RankingConfig(abstain_below=1.0))))
    query = query_of("heron zeppelin", mode=SearchMode.KEYWORD)
    assert process.ask(KEY, query).answer.empty_reason is EmptyReason.ABSTAINED
    process.send(OpenIndex(KEY, replace(options, corpus=FolderCorpus(Roots(str(tmp_path / "elsewhere"))))))
    assert process.ask(KEY, query_of("heron")).answer.empty_reason is EmptyReason.FILES_GONE
    process.send(OpenIndex(KEY, options))
    assert found(process.ask(KEY, query_of("heron")))


@pytest.fixture
def index(tmp_path):
    index = IndexFixture(tmp_path).open()
    index.write("memory/a.md", "a heron in the reeds")
    index.sync()
    yield index
    index.close()


def is_open(process, path):
    return any(file.startswith(os.path.realpath(path)) for file in process.open_files())


def test_a_closed_index_has_no_open_file_and_the_next_search_opens_it(process, index):
    process.send(OpenIndex(KEY, options_of(index)))
    assert not is_open(process, index.path)
    assert found(process.ask(KEY, query_of("heron"))) == ["memory/a.md"]
    assert is_open(process, index.path)
    done, number = process.close_index(KEY)
    assert done == IndexClosed(number)
    assert not is_open(process, index.path)
    assert found(process.ask(KEY, query_of("heron"))) == ["memory/a.md"]


def test_an_index_that_was_not_opened_can_be_closed_and_cannot_be_searched(process):
    process.send(VectorChanges("other", (1,), ()))
    process.send(ResetVectors("other"))
    process.send(ReleaseMemory("other"))
    done, number = process.close_index("other")
    assert done == IndexClosed(number)
    answer = process.ask("other", query_of("heron"))
    assert isinstance(answer, SearchFailure)
    assert answer.kind == INTERNAL
    assert "'other'" in answer.error


def test_a_report_of_changed_vectors_opens_no_file_before_a_search(process, embedded):
    process.send(OpenIndex(KEY, options_of(embedded.index)))
    process.send(VectorChanges(KEY, tuple(vector_ids(embedded)), ()))
    process.close_index("other")
    assert not is_open(process, embedded.index.path)


def test_released_memory_closes_the_file_until_the_next_search(process, embedded):
    process.send(OpenIndex(KEY, options_of(embedded.index)))
    assert nearest(process, embedded, "heron")
    process.send(ReleaseMemory(KEY))
    process.close_index("other")
    assert not is_open(process, embedded.index.path)
    assert nearest(process, embedded, "heron")


def test_several_indexes_are_searched_by_their_keys(process, tmp_path):
    indexes = [IndexFixture(tmp_path / name).open() for name in ("first", "second")]
    for number, index in enumerate(indexes):
        index.write(f"memory/{number}.md", "a heron")
        index.sync()
        process.send(OpenIndex(str(number), options_of(index)))
    for number, index in enumerate(indexes):
        assert found(process.ask(str(number), query_of("heron"))) == [f"memory/{number}.md"]
        index.close()


def copied(index):
    """Put a copy of the index's files in their place, as a program that restores a backup does."""
    copy = index.path.with_name("copy")
    shutil.copy(index.path, copy)
    copy.replace(index.path)


def without(suffix):
    """Return a function that removes a file of an index."""
    return lambda index: index.path.with_name(index.path.name + suffix).unlink()


@pytest.mark.parametrize(
    "change",
    [copied, without(""), without("-wal"), without("-shm")],
    ids=["replaced", "removed", "without its log", "without its shared memory"],
)
def test_an_index_that_was_replaced_or_removed_is_not_searched(process, index, change):
    process.send(OpenIndex(KEY, options_of(index)))
    assert found(process.ask(KEY, query_of("heron"))) == ["memory/a.md"]
    change(index)
    answer = process.ask(KEY, query_of("heron"))
    assert isinstance(answer, SearchFailure)
    assert answer.kind == "IndexDamaged"
    assert "was removed or replaced" in answer.error
    assert not is_open(process, index.path)


@pytest.mark.parametrize("suffix", ["", "-wal", "-shm"])
def test_a_file_that_an_index_lacks_is_not_created(process, index, suffix):
    process.send(OpenIndex(KEY, options_of(index)))
    without(suffix)(index)
    assert isinstance(process.ask(KEY, query_of("heron")), SearchFailure)
    assert not index.path.with_name(index.path.name + suffix).exists()


def test_a_replaced_index_is_searched_with_the_options_of_the_new_file(process, index):
    process.send(OpenIndex(KEY, options_of(index)))
    assert found(process.ask(KEY, query_of("heron"))) == ["memory/a.md"]
    index.close()
    copied(index)
    assert isinstance(process.ask(KEY, query_of("heron")), SearchFailure)
    index.open()
    process.send(OpenIndex(KEY, options_of(index)))
    assert found(process.ask(KEY, query_of("heron"))) == ["memory/a.md"]


def test_without_file_ids_only_a_missing_file_is_refused(process, index):
    process.send(OpenIndex(KEY, options_of(index, file_ids=None)))
    assert found(process.ask(KEY, query_of("heron"))) == ["memory/a.md"]
    index.close()
    copied(index)
    assert isinstance(process.ask(KEY, query_of("heron")), Answer)
    index.path.unlink()
    assert process.ask(KEY, query_of("heron")).kind == "IndexDamaged"


def test_damage_fails_the_search_and_no_other_index(process, embedded, tmp_path):
    index = IndexFixture(tmp_path / "second").open()
    for number in range(50):
        index.write(f"memory/{number}.md", f"a heron {number} " + "in the reeds " * 200)
    index.sync()
    options = options_of(index)
    index.close()
    with index.path.open("r+b") as file:
        file.seek(4096)
        file.write(os.urandom(options.path.stat().st_size - 4096))
    process.send(OpenIndex("second", options))
    process.send(OpenIndex(KEY, options_of(embedded.index)))
    answer = process.ask("second", query_of("heron"))
    assert isinstance(answer, SearchFailure)
    assert answer.kind == "IndexDamaged"
    assert found(process.ask(KEY, query_of("heron")))


def test_a_search_fails_when_its_deadline_has_passed(process, index):
    process.send(OpenIndex(KEY, options_of(index)))
    answer = process.ask(KEY, query_of("heron", deadline=time.monotonic() - 1))
    assert isinstance(answer, SearchFailure)
    assert answer.kind == "DeadlineTooShort"
    assert found(process.ask(KEY, query_of("heron"))) == ["memory/a.md"]


def test_an_error_that_is_no_error_of_memoryd_fails_one_search(process, embedded):
    process.send(OpenIndex(KEY, options_of(embedded.index)))
    answer = process.ask(KEY, query_of("heron"), np.zeros(16, np.float32), identity_of(embedded))
    assert isinstance(answer, SearchFailure)
    assert answer.kind == INTERNAL
    assert answer.error == "InvalidVector: the vector is zero"
    assert found(process.ask(KEY, query_of("heron")))


def test_messages_sent_together_are_handled_in_order(own_process, index):
    messages = [Search(number, KEY, query_of("heron")) for number in range(1, 6)]
    before, after = messages[:2], messages[2:]
    together = [*before, OpenIndex(KEY, options_of(index)), *after, CloseIndex(6, KEY)]
    own_process.socket.sendall(b"".join(map(encode, together)))
    answers = [own_process.receive() for _ in range(6)]
    assert [answer.number for answer in answers] == [1, 2, 3, 4, 5, 6]
    assert [type(answer) for answer in answers] == [SearchFailure, SearchFailure, Answer, Answer, Answer, IndexClosed]


def test_the_process_ends_when_the_other_end_is_closed(own_process, index):
    own_process.send(OpenIndex(KEY, options_of(index)))
    assert found(own_process.ask(KEY, query_of("heron"))) == ["memory/a.md"]
    own_process.socket.close()
    assert own_process.wait() == (0, "")


@pytest.mark.parametrize("answers_read", [False, True])
def test_the_process_ends_when_the_other_end_is_closed_before_an_answer_is_read(own_process, index, answers_read):
    own_process.send(OpenIndex(KEY, options_of(index)))
    for number in range(20):
        own_process.send(Search(number, KEY, query_of("heron")))
    if answers_read:
        assert found(own_process.receive()) == ["memory/a.md"]
    own_process.socket.close()
    assert own_process.wait() == (0, "")


def test_the_process_ignores_the_interrupt_of_a_terminal(process, index):
    process.send(OpenIndex(KEY, options_of(index)))
    process.process.send_signal(signal.SIGINT)
    assert found(process.ask(KEY, query_of("heron"))) == ["memory/a.md"]


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (struct.pack("<I", 5) + b"hello", "cannot decode a frame"),
        (b"\xff" * 64, "longer than"),
        (encode(Ready()), "Ready is not a message to a reader process"),
    ],
    ids=["no pickle", "a long frame", "a message from a process"],
)
def test_anything_but_messages_ends_the_process(own_process, data, words):
    own_process.socket.sendall(data)
    status, errors = own_process.wait()
    assert status == BAD_STREAM
    assert words in errors
    with pytest.raises((EOFError, ConnectionResetError)):
        own_process.receive()


def test_a_process_of_another_version_than_the_daemon_does_not_start():
    process = StartedProcess(version="0.0.9")
    status, errors = process.wait()
    process.stop()
    assert status == OTHER_VERSION
    assert "cannot search for a daemon of version 0.0.9; restart the daemon" in errors


def test_the_program_imports_no_library_that_only_the_daemon_needs():
    program = "import memoryd_server.readers.process, sys; print(*sys.modules)"
    run = subprocess.run([sys.executable, "-P", "-c", program], capture_output=True, check=True, text=True)
    loaded = {name.partition(".")[0] for name in run.stdout.split()}
    assert "numpy" in loaded
    assert not loaded & {"asyncio", "grpc", "google", "httpx", "pydantic", "rich", "starlette", "psycopg", "lancedb"}


def test_a_killed_process_leaves_an_index_that_another_one_searches(own_process, index):
    own_process.send(OpenIndex(KEY, options_of(index)))
    assert found(own_process.ask(KEY, query_of("heron"))) == ["memory/a.md"]
    own_process.process.kill()
    own_process.wait()
    index.write("memory/b.md", "a kestrel")
    index.sync()
    another = StartedProcess().start()
    another.send(OpenIndex(KEY, options_of(index)))
    assert found(another.ask(KEY, query_of("kestrel"))) == ["memory/b.md"]
    another.stop()
