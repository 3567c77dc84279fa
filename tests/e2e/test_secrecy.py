"""What is deleted from the Markdown is gone from every file of the state directory, while searches go on."""

import signal

import apsw
import pytest

from daemon_process import end
from e2e.crash_fixture import found
from e2e.daemon_fixture import SearchLoop, client, last_event
from fake_providers import embedding_server
from memoryd.v1.sync_event_pb2 import SYNC_MODE_FULL
from memoryd_server.text.analyzer import Analyzer
from waiting import wait_until

SECRET = """---
title: Xylophonographers of Blankenese
tags: [quuxcorge]
---
# The Grüffelohaus

The xylophonographers' passphrase is Zwiebelfisch-4711; see fooQuuxBar() and /srv/klabautermann.
候鳥の秘密基地は北にある。비밀기지는 북쪽에 있다. Секретный журавль. ความลับของนกกระเรียน
"""
APPENDED = "- Dinglehopper rendezvous 午前三時の密会"
EDITED = "The snollygoster wears 緑の外套."
KEPT = "A heron stands in the reeds and says nothing of note.\n"
# Too short to be anybody's.
LEAST_BYTES = 5


def words(text):
    """What must not be found: each word as it was written, and each token that the index makes of it."""
    written = [word.strip("[]();.") for word in text.split()]
    tokens = Analyzer().index_tokens(text).split()
    kept = set(Analyzer().index_tokens(KEPT).split()) | {"title:", "tags:"}
    return {word for word in (*written, *tokens) if word not in kept and len(word.encode()) >= LEAST_BYTES}


SECRETS = words(SECRET) | words(APPENDED) | words(EDITED)


def traces(daemons):
    """The secret words in each file below the state directory that holds any."""
    files = {file: file.read_bytes() for file in daemons.state.rglob("*") if file.is_file()}
    read = {file.name: {word for word in SECRETS if word.encode() in data} for file, data in files.items()}
    return {name: held for name, held in read.items() if held}


def vocabulary(daemons):
    """Every token of a stopped daemon's keyword table: stored, many of them share their beginnings."""
    connection = apsw.Connection(str(daemons.index))
    connection.execute("CREATE VIRTUAL TABLE temp.words USING fts5vocab(main, keyword, row)")
    tokens = {row[0] for row in connection.execute("SELECT term FROM temp.words")}
    connection.close()
    return tokens


@pytest.fixture
def served(daemons):
    with embedding_server() as server:
        search = {"provider": "openai-compatible", "model": "words", "remote": {"baseUrl": server.url}}
        daemons.configure(reconcile_seconds=1, search=search)
        for number in range(40):
            daemons.write(f"memory/kept-{number}.md", KEPT * (number + 1))
        daemons.write("memory/secret.md", SECRET)
        daemons.write("memory/edited.md", KEPT + EDITED)
        served = daemons.start()
        with client(served) as connection:
            connection.append(text=APPENDED, path="memory/log.md", idempotency_key="k")
            last_event(connection)
            for query in ("xylophonographer", "Dinglehopper", "snollygoster", "秘密基地"):
                assert found(connection, query)
        yield served


def delete(daemons):
    (daemons.memory / "secret.md").unlink()
    (daemons.memory / "edited.md").write_text(KEPT)
    (daemons.memory / "log.md").write_text("nothing is left of it\n")


def check_gone(daemons):
    assert traces(daemons) == {}
    assert SECRETS & vocabulary(daemons) == set()
    assert {word for word in SECRETS if word in daemons.log.read_text()} == set()


@pytest.mark.slow
def test_deleted_words_are_soon_nowhere_while_searches_go_on(daemons, served):
    # Its log and its pages: what is looked for can be seen before it is gone.
    held = traces(daemons)
    assert set.union(*held.values()) >= {"Zwiebelfisch-4711", "xylophonograph", "fooQuuxBar", "quuxcorge"}
    assert set(held) <= {"main.memoryd.sqlite", "main.memoryd.sqlite-wal"}, (
        "the cache and the ledger hold no text at any time"
    )
    with SearchLoop(served, "heron") as searches:
        delete(daemons)
        wait_until(lambda: not traces(daemons))
    assert searches.errors == []
    with client(served) as connection:
        assert found(connection, "snollygoster") == []
        # The ledger knows the append still, and not by its text.
        again = connection.append(text=APPENDED, path="memory/log.md", idempotency_key="k")
        assert again.already_appended
    assert end(served.process) == 0
    check_gone(daemons)


@pytest.mark.slow
def test_a_kill_between_deletion_and_purge_leaves_the_purge_to_the_next_daemon(daemons, served):
    delete(daemons)
    with client(served) as connection:
        last_event(connection)
    end(served.process, signal.SIGKILL)
    again = daemons.start()
    wait_until(lambda: not traces(daemons))
    assert end(again.process) == 0
    check_gone(daemons)


@pytest.mark.slow
def test_a_rebuild_leaves_nothing_of_what_was_deleted_before(daemons, served):
    delete(daemons)
    with client(served) as connection:
        wait_until(lambda: not connection.status().active_sync.sync_id)
        last_event(connection, mode=SYNC_MODE_FULL)
        assert traces(daemons) == {}
    assert end(served.process) == 0
    check_gone(daemons)
