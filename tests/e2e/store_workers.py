"""Clients that write and search, each on a thread of its own, while the daemon or its database is killed."""

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

    `done` has what each acknowledged step returned.
    """

    def __init__(self, address, name):
        super().__init__(daemon=True)
        self.label = name
        self.done = []
        self.error = None
        self._address = address
        self._connection = None
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
            self._disconnect()

    def step(self, number):
        raise NotImplementedError

    def word(self, number):
        """Return a word of one step alone."""
        return f"{self.label}x{number}y"

    def call(self, method, **fields):
        """Repeat a call until it is answered."""
        until = time.monotonic() + PATIENCE_SECONDS
        while True:
            try:
                self._connection = self._connection or connect(self._address, timeout=20.0)
                return getattr(self._connection, method)(**fields)
            except MemorydError as error:
                if error.code not in TEMPORARY or time.monotonic() > until:
                    raise
                self._disconnect()
                time.sleep(0.02)

    def _disconnect(self):
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def has_done_more_than(self, count):
        assert self.error is None
        return len(self.done) > count

    def stop(self):
        self._stopped.set()
        self.join(PATIENCE_SECONDS)
        assert not self.is_alive()
        assert self.error is None


class Appender(Worker):
    """Appends texts of one line, and some of many, to one document."""

    def __init__(self, address, name, path):
        super().__init__(address, name)
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


def sha256(text):
    return hashlib.sha256(text.encode()).hexdigest()


@contextmanager
def working(address):
    """Workers of all kinds until the block ends."""
    workers = [
        Appender(address, "ann", "memory/log.md"),
        Appender(address, "bea", "memory/log.md"),
        Appender(address, "cleo", "memory/own.md"),
        Inserter(address, "dora"),
        Inserter(address, "ella"),
        Replacer(address, "faye"),
        Recorder(address, "gwen"),
        Searcher(address, "hope"),
    ]
    for worker in workers:
        worker.start()
    try:
        yield workers
    finally:
        for worker in workers:
            worker.stop()


def wait_for_progress(workers):
    """Wait until every worker has finished another step."""
    before = [len(worker.done) for worker in workers]
    wait_until(lambda: all(map(Worker.has_done_more_than, workers, before)), PATIENCE_SECONDS)
