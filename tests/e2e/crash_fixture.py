"""What a killed daemon left, compared with what an undisturbed one would have: rows, vectors, files, Markdown."""

import contextlib
import hashlib
import random
import shutil
import signal
import time
from dataclasses import dataclass, field

import apsw
import numpy as np

from daemon_process import end
from e2e.daemon_fixture import SearchLoop, client, last_event
from fake_providers import Fault
from index_fixture import IDENTITY, SOUND, IndexFixture, connection_of
from memoryd.client import MemorydError
from memoryd.messages import SEARCH_MODE_KEYWORD
from memoryd_server.sqlite.store import SqliteStore
from word_provider import word_vector

MODEL = "words-of-a-test"
FILES = 120


def points(count, seconds, seed):
    """So many moments between now and `seconds`, in an order of chance; printed, so that a failure can be repeated."""
    chance = random.Random(seed)
    chosen = [chance.uniform(0.0, seconds) for _ in range(count)]
    print(f"seed {seed}, kill after {', '.join(f'{point:.4f}' for point in chosen)} s")  # noqa: T201 -- for a failure
    return chosen


def note(number, word):
    """Some 600 words in several chunks, all of them found by `number…x`."""
    body = "\n".join(f"Line {line} of the reeds, {word} number{number}x at {line * number % 97}." for line in range(90))
    return f"# Note {number}\n\n{body}\n"


@dataclass
class CrashFixture:
    """Kill daemons at chosen moments and compare their files with those of an undisturbed run."""

    daemons: object
    server: object
    folder: object
    names: set = field(default_factory=set)
    seconds: float = 0.0
    found_cached: list = field(default_factory=list)

    def prepare(self, files=FILES):
        """Files, and an undisturbed run: how long it takes and which files it leaves are what the others go by."""
        remote = {"baseUrl": self.server.url}
        self.daemons.configure(watch=False, search={"provider": "openai-compatible", "model": MODEL, "remote": remote})
        # Slow enough for a kill to come in between.
        self.server.refuse = lambda _texts: Fault(delay_seconds=0.02)
        for number in range(files):
            self.daemons.write(f"memory/{number % 8}/note-{number}.md", note(number, "heron"))
        with self.running() as (_, connection):
            began = time.monotonic()
            assert last_event(connection).failed_files == 0
            self.seconds = time.monotonic() - began
            assert connection.status().index.pending_embeddings == 0
            self.names = self.files()
        return self

    def delete_state(self):
        shutil.rmtree(self.daemons.state / "memory")

    @contextlib.contextmanager
    def running(self):
        """A daemon and a client of it; stopped in good order."""
        served = self.daemons.start()
        with client(served) as connection:
            yield served, connection
        assert end(served.process) == 0

    def files(self):
        return {str(file.relative_to(self.daemons.state)) for file in self.daemons.state.rglob("*") if file.is_file()}

    def markdown(self):
        return {file: file.read_bytes() for file in self.daemons.workspace.rglob("*") if file.is_file()}

    def cached(self):
        """The SHA-256 of each text whose vector is in the cache, read from a copy: a look must not repair anything."""
        copy = self.folder / "cache-copy"
        shutil.rmtree(copy, ignore_errors=True)
        copy.mkdir()
        for file in (self.daemons.state / "memory").glob("main.memoryd.embeddings.sqlite*"):
            shutil.copy(file, copy)
        connection = apsw.Connection(str(copy / "main.memoryd.embeddings.sqlite"))
        try:
            return {row[0] for row in connection.execute("SELECT hash FROM embedding_cache")}
        except apsw.SQLError:
            return set()
        finally:
            connection.close()

    def check_recovery(self, expected, *, at_once):
        """The next daemon finds the paths `expected` of each query, and ends up like one that was never killed.

        That is with its rows, vectors and files; only what the cache lacks is embedded. With `at_once` the first query
        is answered by the old index, before the sync.
        """
        held, asked = self.cached(), len(self.server.texts)
        self.found_cached.append(len(held))
        query, paths = next(iter(expected.items()))
        with self.running() as (served, connection):
            if at_once:
                assert set(found(connection, query)) & set(paths)
            with SearchLoop(served, query) as searches:
                assert last_event(connection).failed_files == 0
                assert connection.status().index.pending_embeddings == 0
            assert searches.errors == []
            assert {query: set(found(connection, query)) for query in expected} == expected
            assert self.files() == self.names
        texts = [text for text in self.server.texts[asked:] if "reeds" in text and len(text) > 100]
        assert len(texts) == len(set(texts)), "nothing is embedded twice"
        assert held.isdisjoint(hashlib.sha256(text.encode()).digest() for text in texts)
        check_equal_to_fresh(self.daemons, self.folder)


def kill(served, seconds, searches=None):
    """Kills a daemon after `seconds`; returns the errors and the answers that a questioner had until then."""
    time.sleep(seconds)
    heard = searches and (list(searches.errors), list(searches.answers))
    end(served.process, signal.SIGKILL)
    return heard


def check_equal_to_fresh(daemons, folder, *, vectors=True):
    """The index of a stopped daemon holds what one made just now of the same files does."""
    fresh = folder / "fresh"
    shutil.rmtree(fresh, ignore_errors=True)
    fresh.mkdir()
    shutil.copytree(daemons.workspace, fresh / "workspace")
    other, mine = IndexFixture(fresh), IndexFixture(folder / "unused")
    mine.path = daemons.index
    mine.store = SqliteStore(mine.path, IDENTITY)
    try:
        other.open().sync()
        mine.open()
        assert mine.rows() == other.rows()
        assert mine.integrity() == SOUND
        if vectors:
            check_vectors(mine)
    finally:
        mine.close()
        other.close()


def found(connection, query):
    """The paths that keywords find."""
    return [hit.path for hit in connection.search(query=query, mode=SEARCH_MODE_KEYWORD, max_results=50).results]


def check_vectors(index):
    """Each chunk has the vector of its own text, once."""
    with index.store.read() as reader:
        rows = (
            connection_of(reader)
            .execute("SELECT text, embedding FROM chunks LEFT JOIN vectors ON chunks.id = chunk_id")
            .fetchall()
        )
        vectors = connection_of(reader).execute("SELECT count(*) FROM vectors").fetchone()[0]
    assert vectors == len(rows) > 0
    for text, blob in rows:
        assert np.allclose(np.frombuffer(blob, "<f4"), word_vector(text), atol=1e-5)


def ends(stream):
    """Follows a run until it ends or its daemon dies."""
    with contextlib.suppress(MemorydError):
        for _ in stream:
            pass
