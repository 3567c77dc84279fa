"""Notes with dates, front matter and origins, an index of them, and the chunks that a filter leaves, by brute force."""

import hashlib
import random
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta

import numpy as np

from index_fixture import IDENTITY, connection_of
from memoryd_server.model import Chunk, FileStat, Origin, Source
from memoryd_server.sqlite.store import SqliteStore
from memoryd_server.sqlite.vector_index import VectorIndex
from memoryd_server.store.filters import ChunkFilter, FileFilter, FrontMatterCondition
from memoryd_server.store.rows import PreparedFile

DIMENSIONS = 16
DAY_NS = 86_400 * 10**9


@dataclass(frozen=True)
class Note:
    """A file. Each chunk is one line: its text, its origin and its day, which may be empty."""

    path: str
    chunks: tuple = ()
    source: Source = Source.MEMORY
    metadata: dict = field(default_factory=dict)
    mtime_ns: int = 0

    def own_day(self):
        """The date in the name or the front matter; None if there is none."""
        stamps = [self.path.rpartition("/")[2]]
        stamps += [self.metadata.get(key) for key in ("date", "day", "created")]
        for stamp in stamps:
            if isinstance(stamp, str) and stamp[4:5] == stamp[7:8] == "-" and not stamp[10:11].isdigit():
                return date.fromisoformat(stamp[:10])
        return None

    def prepared(self):
        day = self.own_day() if self.source is Source.MEMORY else None
        made = [
            Chunk(
                text,
                line,
                line,
                hashlib.sha256(f"{self.path} {line}".encode()).digest(),
                line_origins=(origin,),
                day=own,
            )
            for line, (text, origin, own) in enumerate(self.chunks, 1)
        ]
        return PreparedFile(
            self.path,
            self.source,
            FileStat(1, self.mtime_ns, 2, 3, 4),
            hashlib.sha256(repr(self).encode()).digest(),
            made,
            [(text, "") for text, _, _ in self.chunks],
            self.metadata,
            day=day.isoformat() if day else "",
        )


def file_matches(note, among):
    """Whether a file matches the conditions on files and sources, computed from the note."""
    wanted = among.files
    day = note.own_day() or (datetime(1970, 1, 1, tzinfo=UTC) + timedelta(days=note.mtime_ns // DAY_NS)).date()
    return (
        (not among.sources or note.source in among.sources)
        and (wanted.since is None or wanted.since <= day)
        and (wanted.until is None or day <= wanted.until)
        and (not wanted.path_prefixes or any(note.path[: len(start)] == start for start in wanted.path_prefixes))
        and all(values_of(note, each.key) & set(each.values) for each in wanted.front_matter)
    )


def values_of(note, key):
    """The values of a key of the front matter, as they are compared."""
    stored = note.metadata.get(key, [])
    if isinstance(stored, str):
        stored = [tag for tag in stored.split(",") if tag.strip()] if key == "tags" else [stored]
    return {value.strip().removeprefix("#").casefold() for value in stored}


def chosen(notes, among):
    """The chunks that a filter leaves, as (source, path, line)."""
    return {
        (note.source, note.path, line)
        for note in notes
        if file_matches(note, among)
        for line, (_, origin, _) in enumerate(note.chunks, 1)
        if not among.origins or origin in among.origins
    }


@contextmanager
def index_of(notes, folder, *, dimensions=DIMENSIONS, **options):
    """Open an index of these notes, with a random vector for each chunk."""
    leg = VectorIndex(**{"sqlite_vec": True, "extension_path": None, "memory_budget_bytes": 1 << 30, **options})
    store = SqliteStore(folder / "filters.sqlite", IDENTITY, leg)
    store.open()
    try:
        store.probe_vector_engine()
        writer = store.writer()
        prepared = [note.prepared() for note in notes]
        for first in range(0, len(prepared), 500):
            writer.write(prepared[first : first + 500])
        store_vectors(writer, dimensions)
        yield store
    finally:
        store.close()


def store_vectors(writer, dimensions=DIMENSIONS):
    """Store a random vector for each chunk, which depends on its id only."""
    ids = [row.chunk_id for row in writer.pending_chunks(0, 1_000_000, everything=True)]
    made = np.random.default_rng(1).standard_normal((len(ids), dimensions)).astype("<f4")
    made /= np.linalg.norm(made, axis=1, keepdims=True)
    writer.put_vectors({chunk_id: row.tobytes() for chunk_id, row in zip(ids, made, strict=True)})


def places(reader):
    """The (source, path, line) of every chunk, by its id."""
    rows = connection_of(reader).execute(
        "SELECT chunks.id, source, path, start_line FROM chunks JOIN files ON files.id = file_id"
    )
    return {chunk_id: (Source(source), path, line) for chunk_id, source, path, line in rows}


def random_notes(count, seed=0):
    """Return notes of one or two chunks each, of both sources, with and without dates, tags and projects."""
    chance = random.Random(seed)
    words = [f"word{number}" for number in range(2_000)]
    weights = [1 / (number + 2) for number in range(2_000)]

    def chunk():
        text = "common " + " ".join(chance.choices(words, weights, k=chance.randint(5, 40)))
        day = f"{chance.randint(2023, 2026)}-05-{chance.randint(1, 28):02}" if chance.random() < 0.2 else ""
        return text, chance.choice(list(Origin)), day

    def metadata():
        made = {}
        if chance.random() < 0.6:
            tags = chance.sample(["#Billing", "travel", "Ops ", "x"], chance.randint(1, 3))
            made["tags"] = tags if chance.random() < 0.5 else ", ".join(tags)
        if chance.random() < 0.5:
            made["project"] = f"P{chance.randint(0, 30)}"
        if chance.random() < 0.2:
            made[chance.choice(["date", "day", "created"])] = (
                f"{chance.randint(2020, 2026)}-{chance.randint(1, 12):02}-09T10"
            )
        return made

    notes = []
    for number in range(count):
        source = Source.SESSIONS if number % 5 == 4 else Source.MEMORY
        folder = chance.choice(["memory", "memory/daily", "projects/ä", "projects"])
        day = f"{chance.randint(2020, 2026)}-{chance.randint(1, 12):02}-{chance.randint(1, 28):02}"
        name = f"{day}-n{number}" if chance.random() < 0.4 else f"n{number}"
        path = f"sessions/main/{name}.jsonl" if source is Source.SESSIONS else f"{folder}/{name}.md"
        mtime = chance.randrange(18_000 * DAY_NS, 20_500 * DAY_NS)
        chunks = tuple(chunk() for _ in range(chance.randint(1, 2)))
        notes.append(Note(path, chunks, source, {} if source is Source.SESSIONS else metadata(), mtime))
    return notes


def random_filter(seed):
    """Return a filter with some of the conditions."""
    chance = random.Random(seed)

    def maybe(value, otherwise):
        return value if chance.random() < 0.4 else otherwise

    first = date(2020, 1, 1) + timedelta(days=chance.randrange(2_500))
    prefixes = ["memory/", "memory/daily/2", "projects/ä", "projects/n1", "sessions/", "absent/", "m"]
    front_matter = tuple(
        FrontMatterCondition(key, tuple(chance.sample(values, chance.randint(1, 2))))
        for key, values in {"tags": ["billing", "ops", "x", "none"], "project": [f"p{n}" for n in range(31)]}.items()
        if chance.random() < 0.3
    )
    return ChunkFilter(
        FileFilter(
            maybe(first, None),
            maybe(first + timedelta(days=chance.randrange(1_000)), None),
            maybe(tuple(chance.sample(prefixes, chance.randint(1, 3))), ()),
            front_matter,
        ),
        maybe((chance.choice(list(Source)),), ()),
        maybe(tuple(chance.sample(list(Origin), chance.randint(1, 2))), ()),
    )
