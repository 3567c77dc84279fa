"""Forgetting a session in OpenClaw's database: it leaves the index for good, and the database is never written."""

import hashlib
from types import SimpleNamespace

import pytest

from documents_fixture import documents_of
from memoryd_server.agent.forget import ForgetJob
from memoryd_server.agent.requests import ForgetRequest
from memoryd_server.errors import FileNotFound, PathNotAllowed
from memoryd_server.sources.forgotten import ForgottenFile, ForgottenSources
from openclaw_home import ARCHIVED, MAIN, OpenClawIndex


@pytest.fixture
def index(tmp_path):
    index = OpenClawIndex(tmp_path).open()
    index.forgotten = ForgottenSources(ForgottenFile(tmp_path / "state" / "main.forgotten"))
    index.forgotten.load()
    index.is_forgotten = index.forgotten.has_session
    index.sync()
    yield index
    index.close()


def forget(index, **request):
    config = SimpleNamespace(sessions_folder=index.sessions, has_replicas=False)
    job = ForgetJob(
        index.store, documents_of(index), index.forgotten, lambda: config, lambda: None, now_ns=index.now_ns
    )
    return job.carry_out(ForgetRequest(**request), lambda: False)


@pytest.mark.parametrize(("session", "word"), [(MAIN, "orion"), (ARCHIVED, "blue pot")])
def test_a_forgotten_session_is_not_indexed_again(index, session, word):
    before = hashlib.sha256(index.database.read_bytes()).digest()
    assert forget(index, session_id=session).chunks > 0
    index.sync()
    assert index.found_paths(word) == []
    assert hashlib.sha256(index.database.read_bytes()).digest() == before


@pytest.mark.parametrize("session", [MAIN, ARCHIVED])
def test_deletion_of_the_source_is_refused_and_nothing_is_forgotten(index, session):
    files = sorted(index.sessions.iterdir())
    with pytest.raises(PathNotAllowed, match="OpenClaw's database, which memoryd never writes"):
        forget(index, session_id=session, delete_source=True)
    index.sync()
    assert index.found_paths("orion")
    assert index.found_paths("blue pot")
    assert sorted(index.sessions.iterdir()) == files


def test_an_unknown_session_is_an_error(index):
    with pytest.raises(FileNotFound):
        forget(index, session_id="unknown")
