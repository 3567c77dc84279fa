"""An index whose chunks an earlier version embedded whole answers until a sync has embedded them in pieces."""

import asyncio
import json
import threading

import pytest

from memoryd.v1 import memory_pb2
from memoryd_server.embedding.pieces import pieces
from memoryd_server.vectors import to_blob
from rpc.wire import kinds, paths
from waiting import eventually
from word_provider import word_vector

VECTOR = memory_pb2.SEARCH_MODE_VECTOR
MODEL = "all-minilm-l6-v2"
BOATS = "\n".join(f"the red ferry number {number} sails at dawn with the tide" for number in range(20))
NOTES = {"boats": BOATS, "bird": "a heron waits by the pier"}


def using(server, **service):
    remote = {"baseUrl": server.url, "apiKey": "sk-of-this-test"}
    search = {"provider": "openai-compatible", "model": MODEL, "remote": remote, "cache": {"enabled": False}}
    return {"agents": {"defaults": {"memorySearch": search}}, "memoryd": service}


def embed_whole(home):
    """Give an index the vectors and the identity that earlier versions stored."""
    query = "SELECT value FROM meta WHERE key = 'vector_identity'"
    ((stored,),) = home.store.rows(sqlite=query, postgres="SELECT vector_identity FROM generations")
    identity = json.loads(stored)
    assert identity.pop("piece_chars") == 500
    home.store.change(
        json.dumps(identity, sort_keys=True),
        sqlite="UPDATE meta SET value = ? WHERE key = 'vector_identity'",
        postgres="UPDATE generations SET vector_identity = %s",
    )
    for chunk_id, text in home.store.rows(sqlite="SELECT id, text FROM chunks"):
        vector = word_vector(text)
        embedding = to_blob(vector) if home.store.is_sqlite else json.dumps([float(value) for value in vector])
        home.store.change(embedding, chunk_id, sqlite="UPDATE vectors SET embedding = ? WHERE chunk_id = ?")


@pytest.fixture
async def old_index(home, serve, provider):
    home.write(**NOTES)
    daemon = await serve(using(provider))
    await daemon.synced()
    await daemon.stop()
    embed_whole(home)
    provider.requests.clear()


def reason_of(answer):
    degradations = answer.info.degradations if hasattr(answer, "info") else answer.degradations
    return next((each.reason for each in degradations if kinds([each]) == ["IDENTITY_MISMATCH"]), "")


async def test_a_new_index_has_the_pieces_of_its_model_in_its_identity(home, serve, provider):
    home.write(**NOTES)
    daemon = await serve(using(provider))
    await daemon.synced()
    status = await daemon.status()
    assert (status.index.identity.piece_chars, list(status.degradations)) == (500, [])
    sent = [text for request in provider.requests for text in request.texts if "ferry" in text]
    assert sent == pieces(BOATS, 500)
    assert paths(await daemon.search("red ferry at dawn", mode=VECTOR))[0] == "memory/boats.md"


async def test_the_old_vectors_answer_until_the_new_ones_are_complete(old_index, serve, provider):
    daemon = await serve(using(provider))
    gate, waiting = threading.Event(), threading.Event()

    def wait(texts):
        if any("ferry number" in text for text in texts):
            waiting.set()
            gate.wait(20)

    provider.refuse = wait
    sync = asyncio.ensure_future(daemon.synced())
    try:
        await eventually(waiting.is_set)
        answer = await daemon.search("red ferry at dawn", mode=VECTOR)
        assert (paths(answer)[0], answer.info.served_mode) == ("memory/boats.md", VECTOR)
        assert "piece_chars was '0', is '500'" in reason_of(answer)
        index = (await daemon.status()).index
        assert (index.identity.piece_chars, index.next_identity.piece_chars) == (0, 500)
        mismatches = [(each.field, each.index_value, each.wanted_value) for each in index.identity_mismatches]
        assert mismatches == [("piece_chars", "0", "500")]
    finally:
        gate.set()
        completed = await sync
    assert not completed.vectors_missing
    answer = await daemon.search("red ferry at dawn", mode=VECTOR)
    assert (paths(answer)[0], reason_of(answer)) == ("memory/boats.md", "")
    index = (await daemon.status()).index
    assert (index.identity.piece_chars, index.HasField("next_identity")) == (500, False)
    assert list(index.identity_mismatches) == []


@pytest.mark.usefixtures("remote_provider")
async def test_above_the_cost_limit_the_old_vectors_answer_and_the_upgrade_waits(old_index, serve, provider):
    daemon = await serve(using(provider, confirmAboveTokens=10))
    assert (await daemon.synced()).vectors_missing
    assert [request.texts for request in provider.requests] == []
    answer = await daemon.search("red ferry at dawn", mode=VECTOR)
    assert paths(answer)[0] == "memory/boats.md"
    assert "memoryd index --force" in reason_of(answer)
    assert not (await daemon.synced(mode="SYNC_MODE_FULL")).vectors_missing
    assert (await daemon.status()).index.identity.piece_chars == 500


@pytest.mark.usefixtures("remote_provider")
async def test_a_changed_note_is_found_by_words_before_the_upgrade_is_complete(old_index, home, serve, provider):
    home.write(bird="a stork sleeps on the roof")
    daemon = await serve(using(provider, confirmAboveTokens=10))
    await daemon.synced()
    assert paths(await daemon.search("stork"))[0] == "memory/bird.md"
