"""Transcripts as a gateway writes them, and an index with transcripts as a source."""

import dataclasses
import json

from index_fixture import ANALYZER, IndexFixture, ids_of
from memoryd_server.model import Clock, Source
from memoryd_server.sources.folder_corpus import FolderCorpus
from memoryd_server.sources.growth import GrowthLimits, GrowthRule
from memoryd_server.sources.transcripts import TranscriptReader
from memoryd_server.sync.engine import SyncEngine
from memoryd_server.sync.plan import PendingScope, SyncPlanner, SyncScope
from memoryd_server.sync.prepare import PART_CHARS, FilePreparer


def record(role, text, **more):
    """A message's record, one line of JSON with its line break."""
    return json.dumps({"type": "message", "message": {"role": role, "content": text, **more}}) + "\n"


def user(text):
    return record("user", text)


def assistant(text):
    return record("assistant", [{"type": "text", "text": text}])


HEAD = json.dumps({"type": "session", "version": 3}) + "\n"
TOOL = record("toolResult", "nothing that was said")


class TranscriptFixture(IndexFixture):
    """Hold an index and a folder of transcripts; every run indexes all of them unless `asks` and `limits` are set."""

    def __init__(self, folder, *, limits=None, **options):
        super().__init__(folder, **options)
        self.sessions = folder / "state" / "agents" / "main" / "sessions"
        self.sessions.mkdir(parents=True, exist_ok=True)
        self.corpus = FolderCorpus(self.roots, str(self.sessions))
        self.limits = limits
        self.open_transcript, self.part_chars = TranscriptReader.open, PART_CHARS
        self.is_forgotten = lambda _: False
        self.asks = None if limits is None else PendingScope()

    def say(self, name, *lines):
        """Appends lines to a transcript."""
        file = self.sessions / name
        with file.open("ab") as stream:
            stream.write(b"".join(line if isinstance(line, bytes) else line.encode() for line in lines))
        return file

    def rotate(self, name, suffix):
        return (self.sessions / name).rename(self.sessions / f"{name}.{suffix}")

    def engine(self, *, files_per_transaction=100, clock=None, **options):
        clock = clock or Clock(now_ns=self.now_ns)
        growth = None if self.limits is None else GrowthRule(self.limits, clock.now_ns)
        preparer = FilePreparer(
            ANALYZER,
            self.identity,
            self.max_file_bytes,
            clock.now_ns,
            read=self.read_file,
            open_transcript=self.open_until,
            part_chars=self.part_chars,
        )
        survey = SyncPlanner(self.corpus, self.asks, growth, self.is_forgotten)
        return SyncEngine(
            self.store, survey, preparer, files_per_transaction=files_per_transaction, clock=clock, **options
        )

    def open_until(self, file, should_stop):
        return self.open_transcript(file)

    def ask(self, **ask):
        """Sync with the scope of `ask`."""
        self.asks.add(SyncScope(**{"every_transcript": False, **ask}))
        return self.sync()

    def chunks(self):
        """(path, text, line numbers) of each chunk of a transcript, in the order of files and lines."""
        with self.store.read() as reader:
            ids = ids_of(reader, Source.SESSIONS)
            rows = reader.chunks(sorted(ids))
        return [(row.path, row.text, row.line_numbers) for row in sorted(rows.values(), key=lambda r: (r.path, r.id))]

    def texts(self):
        return [text for _, text, _ in self.chunks()]

    def keyword_words(self):
        """Return the keyword rows by the chunk's position, for comparison with another index."""
        connection = self.connection
        connection.execute("CREATE VIRTUAL TABLE temp.words USING fts5vocab('main', 'keyword', 'instance')")
        ids = connection.execute(
            "SELECT chunks.id FROM chunks JOIN files ON files.id = file_id ORDER BY source, path, chunks.id"
        )
        places = {row[0]: place for place, row in enumerate(ids)}
        rows = connection.execute("SELECT term, doc, col, offset FROM temp.words").fetchall()
        connection.execute("DROP TABLE temp.words")
        return sorted((term, places[doc], column, offset) for term, doc, column, offset in rows)


def limits(**changed):
    return dataclasses.replace(GrowthLimits(), **changed)
