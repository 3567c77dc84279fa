"""A daemon whose vectors are made by a real model on this machine."""

import asyncio
import itertools
import os
import signal

import pytest

from child_processes import pids_of
from memoryd.v1 import memory_pb2
from memoryd_server.providers import worker
from rpc.wire import kinds, paths
from waiting import eventually

HYBRID, KEYWORD, VECTOR = (memory_pb2.SEARCH_MODE_HYBRID, memory_pb2.SEARCH_MODE_KEYWORD, memory_pb2.SEARCH_MODE_VECTOR)

NOTES = {
    "pets": "The kitten naps on the couch all afternoon.",
    "taxes": "The quarterly declaration for the revenue office is due in April.",
    "garden": "Tomatoes want a sunny place and water each evening.",
    "server": "The database crashed at midnight because its disk was full.",
}


def using(path):
    search = {"provider": "local", "local": {"modelPath": str(path)}}
    return {"agents": {"defaults": {"memorySearch": search}}}


@pytest.fixture
async def running(home, serve, model_path):
    home.write(**NOTES)
    daemon = await serve(using(model_path))
    completed = await daemon.synced()
    assert (completed.indexed_files, completed.failed_files) == (len(NOTES), 0)
    assert (await daemon.status()).index.pending_embeddings == 0
    return daemon


def worker_pid():
    (pid,) = pids_of(worker.__file__)
    return pid


@pytest.mark.parametrize(
    ("question", "note"),
    [
        ("where does my cat sleep", "pets"),
        ("when must I file taxes", "taxes"),
        ("how do I grow vegetables", "garden"),
        ("postgres outage", "server"),
    ],
)
async def test_a_paraphrase_that_shares_no_word_is_found(running, question, note):
    assert not set(question.split()) & set(NOTES[note].lower().rstrip(".").split())
    answer = await running.search(question, mode=HYBRID, min_score=0.0)
    assert paths(answer)[0] == f"memory/{note}.md"
    assert answer.info.served_mode == HYBRID
    assert (answer.info.embedding.provider, answer.info.degradations) == ("local", [])


@pytest.mark.slow
async def test_64_searches_at_once_each_get_their_own_answer(home, serve, model_path):
    texts = {f"n{number}": f"report {number} about {'very ' * (number % 5)}old matters" for number in range(64)}
    home.write(**texts)
    daemon = await serve(using(model_path))
    await daemon.synced()
    answers = await asyncio.gather(*(daemon.search(text, mode=VECTOR, min_score=0.0) for text in texts.values()))
    for name, answer in zip(texts, answers, strict=True):
        assert paths(answer)[0] == f"memory/{name}.md"
        assert answer.results[0].score == pytest.approx(1.0, abs=1e-3)


@pytest.mark.slow
async def test_searches_go_on_when_the_worker_dies_and_are_hybrid_again_after_a_while(running):
    numbers = itertools.count()

    async def ask():
        # Another question each time, for those that were asked before are remembered.
        return await running.search(f"kitten question {next(numbers)}", mode=HYBRID, min_score=0.0)

    assert (await ask()).info.served_mode == HYBRID
    first = worker_pid()
    os.kill(first, signal.SIGSEGV)
    for answer in await asyncio.gather(*(ask() for _ in range(16))):
        assert paths(answer)[0] == "memory/pets.md"
        assert answer.info.served_mode == KEYWORD
        assert kinds(answer.info.degradations) == ["VECTOR_LEG_SKIPPED"]
        assert "SIGSEGV" in answer.info.degradations[0].reason
    status = await running.status()
    assert any("SIGSEGV" in degradation.reason for degradation in status.degradations)

    async def served_again():
        return (await ask()).info.served_mode == HYBRID

    await eventually(served_again, seconds=15)
    assert worker_pid() != first
    assert kinds((await running.status()).degradations) == []


@pytest.mark.slow
async def test_a_sync_goes_on_with_a_new_worker_when_the_worker_dies(running, home):
    os.kill(worker_pid(), signal.SIGSEGV)
    home.write(**{f"n{number}": f"note number {number}" for number in range(20)})
    assert (await running.synced()).failed_files == 0
    assert (await running.status()).index.pending_embeddings == 0


async def test_a_model_that_is_missing_leaves_keywords_and_status_says_why(home, serve):
    home.write(**NOTES)
    daemon = await serve(using(home.root / "missing.gguf"))
    completed = await daemon.synced()
    assert (completed.indexed_files, completed.failed_files) == (len(NOTES), 0)
    answer = await daemon.search("kitten", mode=HYBRID)
    assert paths(answer) == ["memory/pets.md"]
    assert answer.info.served_mode == KEYWORD
    assert "VECTOR_LEG_SKIPPED" in kinds(answer.info.degradations)
    status = await daemon.status(probe=True)
    assert not status.embedding.probe.ok
    assert "missing" in status.embedding.probe.error
    reasons = [d.reason for d in status.degradations]
    assert any("missing.gguf" in reason or "llama-cpp-python is missing" in reason for reason in reasons), reasons
    assert status.embedding.requested_provider == "local"


async def test_a_file_that_is_no_model_leaves_keywords(home, serve, model_path):
    broken = home.root / "broken.gguf"
    broken.write_bytes(model_path.read_bytes()[:200_000])
    home.write(**NOTES)
    daemon = await serve(using(broken))
    await daemon.synced()
    answer = await daemon.search("kitten", mode=HYBRID)
    assert (paths(answer), answer.info.served_mode) == (["memory/pets.md"], KEYWORD)
    assert "VECTORS_PENDING" in kinds((await daemon.status()).degradations)
