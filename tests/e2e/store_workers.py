"""Clients that write and search, each on a thread of its own, while daemons or their database are killed."""

import hashlib
import itertools
import threading
import time
from contextlib import contextmanager

from grpc import StatusCode

from memoryd.client import MemorydError, connect
from memoryd.messages import SEARCH_MODE_KEYWORD
from waiting import wait_until

PATIENCE_SECONDS = 120
TEMPORARY = {StatusCode.UNAVAILABLE, StatusCode.DEADLINE_EXCEEDED}


class Worker(threading.Thread):
    """Calls `step` with 0, 1, ... until `stop`. A call without an answer is repeated with the same key.

    The calls, repeated ones too, go to the replicas at `addresses` in turn. `done` has what each acknowledged step
    returned, `failures` the errors of the calls that were repeated, and `longest_seconds` how long the slowest call
    took with its repetitions.
    """

    def __init__(self, addresses, name, *, timeout=20.0):
        super().__init__(daemon=True)
        self.label = name
        self.done = []
        self.failures = []
        self.longest_seconds = 0.0
        self.error = None
        self._timeout = timeout
        self._connections = dict.fromkeys([addresses] if isinstance(addresses, str) else addresses)
        self._turns = itertools.cycle(self._connections)
        self._stopped = threading.Event()

    def run(self):
        try:
            for number in itertools.count():
                if self._stopped.is_set():
                    return
                self.done.append(self.step(number))
        except BaseException as error:
            self.error = error
            raise
        finally:
            for address in self._connections:
                self._disconnect(address)

    def step(self, number):
        raise NotImplementedError

    def word(self, number):
        """Return a word of one step alone."""
        return f"{self.label}x{number}y"

    def call(self, method, **fields):
        """Repeat a call until it is answered."""
        started = time.monotonic()
        while True:
            address = next(self._turns)
            try:
                connection = self._connections[address] or connect(address, timeout=self._timeout)
                self._connections[address] = connection
                answer = getattr(connection, method)(**fields)
            except MemorydError as error:
                self._disconnect(address)
                if error.code not in TEMPORARY or time.monotonic() > started + PATIENCE_SECONDS:
                    raise
                self.failures.append(error)
                time.sleep(0.02)
            else:
                self.longest_seconds = max(self.longest_seconds, time.monotonic() - started)
                return answer

    def _disconnect(self, address):
        connection, self._connections[address] = self._connections[address], None
        if connection is not None:
            connection.close()

    def has_done_more_than(self, count):
        if self.error is not None:
            raise self.error
        return len(self.done) > count

    def stop(self):
        self._stopped.set()
        self.join(PATIENCE_SECONDS)
        assert not self.is_alive()
        if self.error is not None:
            raise self.error


class Appender(Worker):
    """Appends texts of one line, and some of many, to one document."""

    def __init__(self, addresses, name, path, **options):
        super().__init__(addresses, name, **options)
        self.path = path

    def text(self, number):
        return f"- {self.word(number)}" + f"\n  {self.label} describes the reeds" * (100 if number % 20 == 7 else 1)

    def step(self, number):
        key = self.word(number)
        answer = self.call("append", text=self.text(number), path=self.path, idempotency_key=key)
        return answer.start_line, answer.end_line


class Inserter(Worker):
    """Inserts lines at the start of a document that others change too, each time with the content it has seen."""

    path = "memory/shared.md"

    def step(self, number):
        seen, text = self._seen(), self.word(number)
        while True:
            operation = {"insert": {"text": text}} if seen else {"content": f"{text}\n"}
            try:
                return self.call(
                    "write", path=self.path, expected_sha256=seen, idempotency_key=text, **operation
                ).version_id
            except MemorydError as error:
                if error.reason != "CONTENT_CHANGED":
                    raise
                seen = error.metadata["content_sha256"]

    def _seen(self):
        try:
            return self.call("get", path=self.path, line_count=1).content_sha256
        except MemorydError as error:
            if error.code != StatusCode.NOT_FOUND:
                raise
            return ""


class Replacer(Worker):
    """Replaces the whole of its own document again and again."""

    def step(self, number):
        before = sha256(self.content(number - 1)) if number else ""
        key = self.word(number)
        path, content = f"memory/{self.label}.md", self.content(number)
        return self.call("write", path=path, expected_sha256=before, content=content, idempotency_key=key).version_id

    def content(self, number):
        return f"# Version {number}\n\n{self.word(number)}\n"


class Recorder(Worker):
    """Appends records to the transcript of a session."""

    def step(self, number):
        record = f'{{"type":"message","message":{{"role":"user","content":"{self.word(number)}"}}}}'
        return self.call("session_append", session_id=self.label, records=[record], expected_records=number).records


class Searcher(Worker):
    """Searches in turn for words."""

    def step(self, number):
        words = ("reeds", "describes", "version")
        return self.call("search", query=words[number % len(words)], mode=SEARCH_MODE_KEYWORD).results


class Finder(Appender):
    """Appends a line, and searches for it at the next replica as soon as that has the revision of the answer.

    `found` is how many of the lines were indexed when they were acknowledged, and searched for.
    """

    def __init__(self, addresses, name, **options):
        super().__init__(addresses, name, f"memory/{name}.md", **options)
        self.found = 0

    def step(self, number):
        word, key = self.word(number), self.word(number)
        answer = self.call("append", text=self.text(number), path=self.path, idempotency_key=key)
        if answer.HasField("index_revision"):
            mode, revision = SEARCH_MODE_KEYWORD, answer.index_revision
            hits = self.call("search", query=word, mode=mode, min_revision=revision).results
            assert any(word in hit.snippet for hit in hits), f"{word} is not found at revision {revision}"
            self.found += 1
        return answer.start_line, answer.end_line


def sha256(text):
    return hashlib.sha256(text.encode()).hexdigest()


@contextmanager
def working(*addresses, **options):
    """Workers of all kinds, which use the replicas at these addresses, until the block ends."""
    workers = [
        Appender(addresses, "ann", "memory/log.md", **options),
        Appender(addresses, "bea", "memory/log.md", **options),
        Finder(addresses, "cleo", **options),
        Inserter(addresses, "dora", **options),
        Inserter(addresses, "ella", **options),
        Replacer(addresses, "faye", **options),
        Recorder(addresses, "gwen", **options),
        Searcher(addresses, "hope", **options),
    ]
    for worker in workers:
        worker.start()
    try:
        yield workers
    finally:
        for worker in workers:
            worker.stop()


def wait_for_progress(workers, steps=1, seconds=PATIENCE_SECONDS):
    """Wait until every worker has finished some more steps."""
    before = [len(worker.done) + steps - 1 for worker in workers]
    wait_until(lambda: all(map(Worker.has_done_more_than, workers, before)), seconds)


def writes(workers):
    """Return how many writes were acknowledged."""
    return sum(len(worker.done) for worker in workers if not isinstance(worker, Searcher))
