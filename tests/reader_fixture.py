"""A reader process at the other end of a socket pair, and options of indexes for it."""

import itertools
import os
import socket
import subprocess
import sys
from collections import deque

import psutil

from memoryd_server import __version__
from memoryd_server.model import Source
from memoryd_server.readers.messages import CloseIndex, FrameDecoder, IndexOptions, Ready, Search, encode
from memoryd_server.search.query import RankingConfig
from memoryd_server.sources.folder_corpus import FolderCorpus
from memoryd_server.sqlite.connection import file_ids

MOST_SECONDS = 30


def options_of(index, **changes):
    """Return the options of the index of an `IndexFixture`."""
    options = {
        "path": index.path,
        "file_ids": file_ids(index.path),
        "corpus": FolderCorpus(index.roots),
        "sources": (Source.MEMORY,),
        "ranking": RankingConfig(),
        "sqlite_vec": True,
        "extension_path": None,
        "memory_budget_bytes": 1 << 28,
    }
    return IndexOptions(**{**options, **changes})


class StartedProcess:
    """A reader process until `stop`, for a daemon of `version`, and the daemon's end of the socket pair."""

    def __init__(self, version=__version__):
        self.socket, other = socket.socketpair()
        self.socket.settimeout(MOST_SECONDS)
        with other:
            self.process = subprocess.Popen(
                [sys.executable, "-P", "-m", "memoryd_server.readers.process", version, str(other.fileno())],
                pass_fds=[other.fileno()],
                start_new_session=True,
                stderr=subprocess.PIPE,
            )
        self._decoder = FrameDecoder()
        self._received = deque()
        self._numbers = itertools.count(1)

    def start(self):
        """Wait until the process is ready."""
        assert self.receive() == Ready()
        return self

    def send(self, message):
        self.socket.sendall(encode(message))

    def receive(self):
        while not self._received:
            data = self.socket.recv(1 << 20)
            if not data:
                raise EOFError("the process closed its end")
            self._received.extend(self._decoder.feed(data))
        return self._received.popleft()

    def ask(self, key, query, vector=None, identity=None, no_vector=""):
        """Return what the process answers to a search."""
        number = next(self._numbers)
        self.send(Search(number, key, query, None if vector is None else vector.tobytes(), no_vector, identity))
        answer = self.receive()
        assert answer.number == number
        return answer

    def close_index(self, key):
        number = next(self._numbers)
        self.send(CloseIndex(number, key))
        return self.receive(), number

    def open_files(self):
        """Return the resolved paths of the process's open files."""
        return {os.path.realpath(file.path) for file in psutil.Process(self.process.pid).open_files()}

    def wait(self):
        """Return the exit status and what the process wrote to standard error, after its end."""
        _, errors = self.process.communicate(timeout=MOST_SECONDS)
        return self.process.returncode, errors.decode()

    def stop(self):
        self.socket.close()
        if self.process.poll() is None:
            self.process.kill()
            self.process.communicate(timeout=MOST_SECONDS)
        self.process.stderr.close()
