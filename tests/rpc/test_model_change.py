"""Over gRPC: another model in the settings replaces the vectors in one step, and until then the old ones answer."""

import asyncio
import threading
from contextlib import asynccontextmanager

import pytest

from fake_providers import fake_provider
from memoryd.v1 import memory_pb2
from rpc.wire import kinds, paths, quiet
from waiting import eventually

HYBRID, KEYWORD, VECTOR = (memory_pb2.SEARCH_MODE_HYBRID, memory_pb2.SEARCH_MODE_KEYWORD, memory_pb2.SEARCH_MODE_VECTOR)
FULL = "SYNC_MODE_FULL"
SMALL, LARGE, MISSPELT = "text-embedding-3-small", "text-embedding-3-large", "text-embeding-3-large"
NEW_NOTE = "a stork on the roof"
NOTES = {"boat": "the red ferry sails at dawn", "bird": "a heron waits by the pier"}


@pytest.fixture
def openai():
    with fake_provider("openai") as server:
        yield server


@pytest.fixture
def ollama():
    with fake_provider("ollama") as server:
        yield server


def settings(openai, model=SMALL, **search):
    remote = {"baseUrl": openai.url, "apiKey": "sk-of-this-test"}
    return quiet(
        {"agents": {"defaults": {"memorySearch": {"provider": "openai", "model": model, "remote": remote, **search}}}}
    )


def of_ollama(ollama, **search):
    search = {"provider": "ollama", "remote": {"baseUrl": ollama.url}, **search}
    return quiet({"agents": {"defaults": {"memorySearch": search}}})


async def restarted(running, serve, new_settings):
    await running.stop()
    return await serve(new_settings)


async def reloaded(running, _serve, new_settings):
    report = await running.daemon.reload(lambda: running.home.settings(new_settings))
    assert report.error == ""
    return running


CHANGES = pytest.mark.parametrize("change", [restarted, reloaded])


@pytest.fixture
async def running(home, serve, openai):
    home.write(**NOTES)
    running = await serve(settings(openai))
    await running.synced()
    return running


def models_asked(server, text):
    """The models that embedded a text, in the order of the requests."""
    return [request.body["model"] for request in server.requests if text in request.texts]


def reason_of(answer, kind="IDENTITY_MISMATCH"):
    degradations = answer.info.degradations if hasattr(answer, "info") else answer.degradations
    return next((each for each in degradations if kinds([each]) == [kind]), None)


@asynccontextmanager
async def paused(daemon, server):
    """A sync that waits at the first note for the server, until the block ends."""
    gate, waiting = threading.Event(), threading.Event()

    def wait(texts):
        if any(text in {*NOTES.values(), NEW_NOTE} for text in texts):
            waiting.set()
            gate.wait(20)

    server.refuse = wait
    sync = asyncio.ensure_future(daemon.synced())
    try:
        await eventually(waiting.is_set)
        yield
    finally:
        gate.set()
        await sync
        server.refuse = lambda _texts: None


@CHANGES
async def test_the_old_model_answers_until_the_new_vectors_are_complete(running, serve, openai, change):
    daemon = await change(running, serve, settings(openai, LARGE))
    async with paused(daemon, openai):
        answer = await daemon.search("ferry at dawn", mode=VECTOR)
        assert (paths(answer)[0], answer.info.served_mode) == ("memory/boat.md", VECTOR)
        assert (answer.info.embedding.provider, answer.info.embedding.model) == ("openai", SMALL)
        told = reason_of(answer)
        assert (told.wanted, told.used) == (f"openai/{LARGE}", f"openai/{SMALL}")
        assert told.reason.startswith(f"openai/{SMALL} answers until the vectors of openai/{LARGE} are complete")
        status = await daemon.status()
        assert (status.index.identity.model, status.index.next_identity.model) == (SMALL, LARGE)
        assert status.index.pending_embeddings == 2
        assert (status.embedding.model, status.embedding.dimensions) == (LARGE, 1536)
    answer = await daemon.search("ferry at dawn", mode=VECTOR)
    assert (answer.info.embedding.model, reason_of(answer)) == (LARGE, None)
    assert models_asked(openai, "ferry at dawn") == [SMALL, LARGE]
    status = await daemon.status()
    assert (status.index.identity.model, status.index.HasField("next_identity")) == (LARGE, False)
    assert (status.index.identity.dimensions, status.index.pending_embeddings) == (1536, 0)
    assert list(status.index.identity_mismatches) == []


@CHANGES
@pytest.mark.parametrize("mode", ["SYNC_MODE_INCREMENTAL", FULL])
async def test_a_misspelt_model_costs_no_vector(running, serve, openai, change, mode):
    daemon = await change(running, serve, settings(openai, MISSPELT))
    before = len(openai.requests)
    completed = await daemon.synced(mode=mode)
    assert [request.texts for request in openai.requests[before:]] == [["ping"]], "asked once"
    assert (completed.pending_embeddings, completed.vectors_missing) == (2, True)
    answer = await daemon.search("ferry at dawn", mode=VECTOR)
    assert (paths(answer)[0], answer.info.embedding.model) == ("memory/boat.md", SMALL)
    assert f"The model `{MISSPELT}` does not exist" in reason_of(answer).reason
    status = await daemon.status()
    assert (status.index.identity.model, status.index.HasField("next_identity")) == (SMALL, False)
    assert f"The model `{MISSPELT}` does not exist" in reason_of(status).reason
    asked = len(openai.requests)
    daemon = await change(daemon, serve, settings(openai))
    assert not (await daemon.synced()).vectors_missing
    assert len(openai.requests) == asked, "the old vectors are still there"


@pytest.mark.slow
@CHANGES
async def test_other_dimensions_of_the_same_model_are_a_change_too(running, serve, openai, change):
    daemon = await change(running, serve, settings(openai, outputDimensionality=256))
    await daemon.synced()
    daemon = await change(daemon, serve, settings(openai, outputDimensionality=512))
    async with paused(daemon, openai):
        answer = await daemon.search("ferry at dawn", mode=VECTOR)
        assert paths(answer)[0] == "memory/boat.md"
        assert (await daemon.status()).index.identity.dimensions == 256
    assert (await daemon.search("ferry at dawn", mode=VECTOR)).info.served_mode == VECTOR
    assert (await daemon.status()).index.identity.dimensions == 512


@pytest.mark.slow
@CHANGES
async def test_an_old_provider_answers_if_it_is_the_fallback(home, serve, openai, ollama, change):
    home.write(**NOTES)
    daemon = await serve(of_ollama(ollama))
    await daemon.synced()
    new = settings(openai, fallback="ollama") | {"models": {"providers": {"ollama": {"baseUrl": ollama.url}}}}
    daemon = await change(daemon, serve, new)
    async with paused(daemon, openai):
        answer = await daemon.search("ferry at dawn", mode=VECTOR)
        assert (paths(answer)[0], answer.info.embedding.provider) == ("memory/boat.md", "ollama")
        assert reason_of(answer).used == "ollama/nomic-embed-text"
    assert (await daemon.search("ferry at dawn", mode=VECTOR)).info.embedding.provider == "openai"


@pytest.mark.slow
@CHANGES
async def test_an_old_provider_that_the_settings_no_longer_name_gets_no_question(home, serve, openai, ollama, change):
    home.write(**NOTES)
    daemon = await serve(of_ollama(ollama))
    await daemon.synced()
    daemon = await change(daemon, serve, settings(openai))
    asked = len(ollama.requests)
    async with paused(daemon, openai):
        answer = await daemon.search("ferry at dawn", mode=HYBRID)
        assert (paths(answer)[0], answer.info.served_mode) == ("memory/boat.md", KEYWORD)
        told = reason_of(answer)
        assert told.used == "keyword leg"
        assert "the settings no longer name ollama/nomic-embed-text" in told.reason
    assert len(ollama.requests) == asked
    assert (await daemon.search("ferry at dawn", mode=VECTOR)).info.embedding.provider == "openai"


@pytest.mark.slow
async def test_two_changes_in_a_row_end_with_the_last_one(running, serve, openai):
    openai.refuse = lambda texts: openai.denied() if texts != ["ping"] else None
    daemon = await restarted(running, serve, settings(openai, LARGE))
    await daemon.synced()
    assert (await daemon.status()).index.next_identity.model == LARGE
    openai.refuse = lambda _texts: None
    daemon = await restarted(daemon, serve, settings(openai, "text-embedding-ada-002"))
    assert (await daemon.search("ferry at dawn", mode=VECTOR)).info.embedding.model == SMALL
    await daemon.synced()
    status = await daemon.status()
    assert (status.index.identity.model, status.index.HasField("next_identity")) == ("text-embedding-ada-002", False)
    assert models_asked(openai, NOTES["boat"]) == [SMALL, LARGE, "text-embedding-ada-002"]
    daemon = await restarted(daemon, serve, settings(openai))
    await daemon.synced()
    assert (await daemon.search("ferry at dawn", mode=VECTOR)).info.embedding.model == SMALL
    assert models_asked(openai, NOTES["boat"])[3:] == [], "the cache has the vectors of the first model"


@pytest.mark.slow
async def test_text_that_changes_during_the_change_is_found_by_words_and_then_by_meaning(running, serve, openai):
    daemon = await restarted(running, serve, settings(openai, LARGE))
    openai.refuse = lambda texts: openai.denied() if texts != ["ping"] else None
    await daemon.synced()
    openai.refuse = lambda _texts: None
    daemon.home.write(new=NEW_NOTE)
    async with paused(daemon, openai):
        answer = await daemon.search("stork roof", mode=HYBRID)
        assert (paths(answer)[0], answer.info.served_mode) == ("memory/new.md", HYBRID)
    assert paths(await daemon.search("stork roof", mode=VECTOR))[0] == "memory/new.md"


@pytest.mark.slow
async def test_a_search_during_the_switch_is_answered_with_vectors(running, serve, openai):
    """The query's vector is made with the old model, and the vectors are replaced before it arrives."""
    daemon = await restarted(running, serve, settings(openai, LARGE))
    asked, gate = threading.Event(), threading.Event()

    def wait(texts):
        if texts == ["ferry at dawn"] and not asked.is_set():
            asked.set()
            gate.wait(20)

    openai.refuse = wait
    search = asyncio.ensure_future(daemon.search("ferry at dawn", mode=VECTOR))
    try:
        await eventually(asked.is_set)
        await daemon.synced()
    finally:
        gate.set()
    answer = await search
    assert (paths(answer)[0], answer.info.embedding.model) == ("memory/boat.md", LARGE)


async def test_status_reports_the_dimensions_of_a_remote_provider(home, serve, openai):
    home.write(**NOTES)
    daemon = await serve(settings(openai))
    assert (await daemon.status()).embedding.dimensions == 0
    await daemon.synced()
    assert (await daemon.status()).embedding.dimensions == 1536
    daemon = await restarted(daemon, serve, settings(openai))
    assert (await daemon.status()).embedding.dimensions == 1536, "as stored in the index"


def with_headers(openai, deployment, *names):
    remote = {"baseUrl": openai.url, "apiKey": "sk-of-this-test", "headers": {"X-Deployment": deployment}}
    return settings(openai, remote=remote) | {"memoryd": {"embedding": {"identityHeaders": list(names)}}}


async def test_a_changed_header_replaces_no_vector_unless_the_settings_name_it(home, serve, openai):
    home.write(**NOTES)
    daemon = await serve(with_headers(openai, "blue"))
    await daemon.synced()
    assert (await daemon.status()).index.identity.endpoint == openai.url
    asked = len(openai.requests)
    daemon = await reloaded(daemon, serve, with_headers(openai, "green"))
    await daemon.synced()
    assert len(openai.requests) == asked


@CHANGES
async def test_another_value_of_a_named_header_is_another_model(home, serve, openai, change):
    home.write(**NOTES)
    daemon = await serve(with_headers(openai, "blue", "x-Deployment"))
    await daemon.synced()
    endpoint = (await daemon.status()).index.identity.endpoint
    assert endpoint.startswith(f"{openai.url} (x-deployment ")
    assert "blue" not in endpoint
    daemon = await change(daemon, serve, with_headers(openai, "green", "x-Deployment"))
    async with paused(daemon, openai):
        answer = await daemon.search("ferry at dawn", mode=HYBRID)
        assert answer.info.served_mode == KEYWORD, "the old deployment is not configured any more"
        assert reason_of(answer).used == "keyword leg"
    assert (await daemon.search("ferry at dawn", mode=VECTOR)).info.served_mode == VECTOR
    assert (await daemon.status()).index.identity.endpoint not in {endpoint, openai.url}
    deployments = [request.headers["x-deployment"] for request in openai.requests if NOTES["boat"] in request.texts]
    assert deployments == ["blue", "green"]
