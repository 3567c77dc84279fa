"""Edits of one agent's documents through two replicas, while one of them forgets."""

import pytest

from memoryd_server.errors import IndexBusy
from memoryd_server.threads import on_thread
from postgres_server import DATABASE, running_server
from unit.writing.writer_contract import NOTE
from waiting import wait_until

pytestmark = pytest.mark.postgres

PAUSED = "SELECT edits_paused_by FROM memoryd.document_states WHERE agent_id = %s"
# The row of such a replica expires half a second after its last lease or pause.
SILENT = {"renew_seconds": 1e9, "lease_seconds": 0.5}


@pytest.fixture
def admin(postgres_module):
    with postgres_module.server.admin(DATABASE) as admin:
        yield admin


def test_an_edit_of_another_replica_waits_until_the_pause_ends(postgres_module, new_memory, admin):
    first, second = new_memory(), new_memory(database=postgres_module.database())
    first.append("one")
    with first.writer.paused():
        editing = on_thread("edit", lambda: second.write(NOTE, b"two"))
        second.append("three", path="MEMORY.md")
        with pytest.raises(IndexBusy), second.writer.paused(0.01):
            pass
        assert not editing.done()
        assert first.files() == {"MEMORY.md": b"three\n", NOTE: b"one\n"}
    editing.result(timeout=10)
    assert first.data(NOTE) == b"two"
    assert admin.execute(PAUSED, (first.agent,)).fetchone() == (None,)
    with second.writer.paused():
        pass
    first.write(NOTE, b"four")


def test_an_edit_is_refused_during_a_long_pause(postgres_module, new_memory):
    first, second = new_memory(), new_memory(database=postgres_module.database())
    with first.writer.paused():
        with pytest.raises(IndexBusy, match="forgetting") as error:
            second.write(NOTE, b"two")
        assert error.value.retry_after_seconds == 1.0
    assert second.files() == {}


def test_the_pause_of_an_expired_replica_has_no_effect(postgres_module, new_memory, admin):
    first, second = new_memory(database=postgres_module.database(**SILENT)), new_memory()
    with first.writer.paused():
        second.write(NOTE, b"two")
        with second.writer.paused():
            (mark,) = admin.execute(PAUSED, (first.agent,)).fetchone()
            assert mark.startswith(second.database.replica.replica_id)
    assert second.data(NOTE) == b"two"


def test_a_pause_whose_end_could_not_be_written_ends_when_the_server_is_back(postgres_module, new_memory):
    with running_server() as server:
        first, second = (new_memory("main", database=postgres_module.database(server.url)) for _ in range(2))
        with first.writer.paused():
            server.stop()
        server.start()
        with server.admin(DATABASE) as admin:
            wait_until(lambda: admin.execute(PAUSED, ("main",)).fetchone() == (None,), seconds=20)
        second.write(NOTE, b"two")
        assert first.data(NOTE) == b"two"
        first.close()
        second.close()
