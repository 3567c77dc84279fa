"""If the store of all files cannot be used, a sync fails as a whole, and no file counts as unreadable."""

import pytest

from memoryd_server.errors import IndexBusy, IndexUnavailable
from memoryd_server.model import Source
from memoryd_server.sync.progress import SyncMode
from transcript_fixture import TranscriptFixture, user


@pytest.fixture
def index(tmp_path):
    index = TranscriptFixture(tmp_path).open()
    index.write("memory/a.md", "the heron\n")
    index.say("s1.jsonl", user("the kestrel"))
    yield index
    index.close()


@pytest.mark.parametrize("kind", [Source.MEMORY, Source.SESSIONS])
@pytest.mark.parametrize("mode", [SyncMode.INCREMENTAL, SyncMode.FULL])
@pytest.mark.parametrize("error", [IndexUnavailable, IndexBusy])
def test_a_sync_fails_and_the_next_one_indexes_everything(index, kind, mode, error):
    def unavailable(*_):
        raise error("the server is gone")

    index.sync()
    index.write("memory/a.md", "the grey heron\n")
    index.say("s1.jsonl", user("the curlew"))
    read, opened = index.read_file, index.open_transcript
    if kind is Source.MEMORY:
        index.read_file = unavailable
    else:
        index.open_transcript = unavailable
    with pytest.raises(error, match="the server is gone"):
        index.sync(mode)
    rows = index.store.writer().files()
    assert [row.error for row in rows.values()] == [None, None]
    assert (index.found("heron"), index.found("kestrel")) == (["memory/a.md"], ["sessions/s1.jsonl"])
    index.read_file, index.open_transcript = read, opened
    index.sync()
    assert (index.found("grey"), index.found("curlew")) == (["memory/a.md"], ["sessions/s1.jsonl"])
