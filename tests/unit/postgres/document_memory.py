"""The memory of one agent in the tables of documents."""

from memoryd_server.postgres import DocumentCorpus, DocumentWriter, ForgottenRows, PostgresWriteHistory, TranscriptRows
from memoryd_server.postgres.document_rows import DocumentRows
from memoryd_server.sources import Roots
from unit.writing.written_memory import LIMITS, NOW_MS, WrittenMemory


class DocumentMemory(WrittenMemory):
    """Memory files and transcripts of an agent in a database."""

    roots = Roots("/dev/null")

    def __init__(self, database, agent, **options):
        self.database = database
        self.agent = agent
        self._options = options
        self.open()

    def open(self):
        self.history = PostgresWriteHistory(self.database, self.agent, **LIMITS)
        self.documents = self.history.documents()
        self.writer = DocumentWriter(self.roots, self.history, **{**self.options, **self._options})
        self.corpus = DocumentCorpus(self.documents, self.roots)
        self.transcripts = TranscriptRows(self.documents, lambda: NOW_MS)
        self.forgotten = ForgottenRows(self.documents)

    def put(self, path, data):
        """Store a document as an import does."""
        with self.documents.write() as rows:
            DocumentRows(rows).put(path, data, rows.lock_documents(), NOW_MS * 1_000_000)
