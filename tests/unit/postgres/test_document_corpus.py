"""A corpus of documents in PostgreSQL fulfils the contract of a corpus."""

import itertools
import time

import pytest

from memoryd_server.errors import FileNotFound
from memoryd_server.model import identity_of
from memoryd_server.sources.roots import Roots
from memoryd_server.sources.transcripts import START
from unit.sources.corpus_contract import CorpusContract, said

pytest.importorskip("psycopg")

pytestmark = pytest.mark.postgres

NUMBERS = itertools.count()


class TestDocumentCorpus(CorpusContract):
    """In the tables of an agent of its own."""

    @pytest.fixture(autouse=True)
    def _agent(self, postgres_module):
        from memoryd_server.postgres import DocumentCorpus, TranscriptRows  # noqa: PLC0415 -- an extra
        from memoryd_server.postgres.document_rows import DocumentRows  # noqa: PLC0415 -- an extra

        self.new_corpus, self.new_rows = DocumentCorpus, DocumentRows
        history = postgres_module.child.PostgresWriteHistory(
            postgres_module.database(),
            f"corpus {next(NUMBERS)}",
            max_age_seconds=1,
            max_bytes=1,
            now_ms=lambda: time.time_ns() // 1_000_000,
        )
        self.database = history.documents()
        self.transcripts = TranscriptRows(self.database, lambda: time.time_ns() // 1_000_000)
        self.said = {}
        yield
        history.close()

    def now_ns(self):
        return time.time_ns()

    def corpus(self, *, memory=True, indexes_sessions=True):
        return self.new_corpus(self.database, Roots("/workspace"), memory, indexes_sessions)

    def put(self, path, data):
        with self.database.write() as rows:
            version = rows.lock_documents()
            self.new_rows(rows).put(path, data, version, time.time_ns())

    def remove(self, path):
        with self.database.write() as rows:
            rows.lock_documents()
            self.new_rows(rows).delete(path)

    def say(self, session, *records):
        self.transcripts.append(session, records)
        self.said.setdefault(session, []).extend(records)

    def records(self, session):
        return self.said[session]

    def delete_session(self, session):
        self.transcripts.delete_session(session)

    @pytest.mark.parametrize("replaced", [False, True])
    def test_a_transcript_that_is_deleted_while_it_is_read_is_missing(self, replaced):
        """What follows the first block is not read from another transcript of the same name."""
        self.say("s1", *(said("user", f"{number} {'x' * 50_000}") for number in range(40)))
        with self.corpus().open_transcript(self.corpus().transcript("s1.jsonl")) as reader:
            lines = reader.lines(START)
            next(lines)
            self.delete_session("s1")
            if replaced:
                self.say("s1", *(said("user", f"other {'y' * 50_000}") for number in range(40)))
            with pytest.raises(FileNotFound):
                list(lines)

    def test_a_transcript_that_is_begun_again_has_another_identity(self):
        self.say("s1", b"{}")
        place = self.corpus().transcript("s1.jsonl")
        before = self.corpus().stat_file(place)
        self.delete_session("s1")
        assert self.corpus().stat_file(place) is None
        self.say("s1", b"{}")
        assert identity_of(self.corpus().stat_file(place)) != identity_of(before)
