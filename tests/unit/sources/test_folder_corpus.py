"""A corpus of folders fulfils the contract of a corpus."""

import time

import pytest

from memoryd_server.sources.folder_corpus import FolderCorpus
from memoryd_server.sources.roots import Roots
from unit.sources.corpus_contract import CorpusContract


class TestFolderCorpus(CorpusContract):
    @pytest.fixture(autouse=True)
    def _folders(self, tmp_path):
        self.workspace, self.sessions = tmp_path / "workspace", tmp_path / "sessions"
        (self.workspace / "memory").mkdir(parents=True)
        self.sessions.mkdir()

    def now_ns(self):
        # An hour later, when nothing can have changed without a new stat.
        return time.time_ns() + 3_600 * 10**9

    def corpus(self, *, memory=True, indexes_sessions=True):
        return FolderCorpus(
            Roots(str(self.workspace)), str(self.sessions), memory, agent_id="main", indexes_sessions=indexes_sessions
        )

    def put(self, path, data):
        file = self.workspace / path
        file.parent.mkdir(parents=True, exist_ok=True)
        new = file.with_name(".new")
        new.write_bytes(data)
        new.rename(file)

    def remove(self, path):
        (self.workspace / path).unlink()

    def say(self, session, *records):
        with (self.sessions / f"{session}.jsonl").open("ab") as file:
            file.write(b"".join(record + b"\n" for record in records))

    def records(self, session):
        return (self.sessions / f"{session}.jsonl").read_bytes().splitlines()

    def delete_session(self, session):
        (self.sessions / f"{session}.jsonl").unlink()
