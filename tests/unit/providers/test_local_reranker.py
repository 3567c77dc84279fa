"""The local reranker: llama.cpp with rank pooling in a worker process of its own."""

import importlib.util
import json
import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil
import pytest

from child_processes import pids_of
from memoryd_server.providers import RerankFailure, worker
from memoryd_server.providers.local import LocalProvider
from memoryd_server.providers.local_reranker import LocalReranker, _Speed
from memoryd_server.providers.model_files import LocalModelFile, has_tensor
from memoryd_server.providers.worker_process import WorkerScore
from rank_models import write_bert, write_qwen
from waiting import wait_until

CHILD = Path(__file__).parent / "rank_child.py"
QUERY = "quay"
PASSAGES = ["tea tea", "z z z z z z z z", "z tea"]


def soon(seconds=60.0):
    return time.monotonic() + seconds


def gone(pid):
    return not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    if importlib.util.find_spec("llama_cpp") is None:
        pytest.skip("llama-cpp-python is missing: `make setup-local` installs it")
    return tmp_path_factory.mktemp("models")


@pytest.fixture(scope="module")
def qwen(folder):
    return write_qwen(folder / "qwen.gguf")


@pytest.fixture
def make():
    made = []

    def make(path, **options):
        made.append(LocalReranker(LocalModelFile(path), **{"first_pause_seconds": 0.1, **options}))
        return made[-1]

    yield make
    for reranker in made:
        reranker.close()


def load(reranker):
    """Load the model, and wait for it or for the reason why it cannot be loaded."""
    reranker.prepare()
    wait_until(lambda: reranker.problem != "the model is being loaded")
    return reranker


def check_order(reranker):
    reply = load(reranker).rerank(QUERY, PASSAGES, soon())
    least, best, middle = reply.scores
    assert 0 < least < middle < best <= 1
    assert best > least + 0.3
    assert reply.tokens > 20
    return reply


def test_a_model_with_a_template_scores_by_the_passage(make, qwen):
    check_order(make(qwen))


@pytest.mark.parametrize("write", [write_bert, lambda path: write_qwen(path, template="")], ids=["bert", "bare"])
def test_a_model_without_a_template_scores_by_the_passage(make, folder, write):
    check_order(make(write(folder / "bare.gguf")))


@pytest.mark.parametrize("text", ["word " * 20_000, "漢字" * 5_000, "", " \n ", "nul \x00", "half \ud800", "</s><s>"])
def test_odd_texts_are_scored(make, qwen, text):
    reranker = load(make(qwen))
    for query, passage in ((text, "z"), ("z", text)):
        (score,) = reranker.rerank(query, [passage], soon()).scores
        assert 0 <= score <= 1


def test_texts_are_cut_to_the_window_and_cannot_contain_the_marks_of_the_template(qwen):
    found = json.loads(subprocess.run([sys.executable, CHILD, qwen], capture_output=True, check=True).stdout)
    before, between, after = found["marks"]
    assert found["end in the passage"] == [*before, *found["quay"], *between, *found["</s>"], *after]
    assert found["end in the passage"].count(after[0]) == 1
    assert found["placeholders"] == [*before, *found["{document}"], *between, *found["{query}"], *after]
    assert [len(found["both long"]), found["both long"][-1:]] == [256, after]
    assert len(found["long passage"]) == 256


def test_a_template_without_both_texts_is_refused(make, folder):
    reranker = load(make(write_qwen(folder / "half.gguf", template="{query} only")))
    assert "does not have one query and one document" in reranker.problem


def test_a_model_without_a_classification_head_is_refused(make, folder, model_path):
    reranker = load(make(write_qwen(folder / "headless.gguf", classifier=False)))
    assert "has no classification head" in reranker.problem
    assert "has no classification head" in load(make(model_path)).problem


def test_the_heads_of_a_file_are_found(qwen):
    assert has_tensor(qwen, ["cls.output.weight"])
    assert not has_tensor(qwen, ["cls.weight"])


@pytest.mark.parametrize(
    ("name", "why"), [("none.gguf", "none.gguf is missing"), ("text.gguf", "not a GGUF file"), ("", "is missing")]
)
def test_a_file_that_is_no_model_is_named(make, tmp_path, name, why):
    (tmp_path / "text.gguf").write_text("this is no model")
    assert why in load(make(tmp_path / name, package="json")).problem


def test_a_missing_package_is_named(make, tmp_path):
    assert "install memoryd[local]" in load(make(tmp_path / "a.gguf", package="no_such_package_at_all")).problem


def test_a_call_before_the_model_is_loaded_fails_without_waiting(make, qwen):
    reranker = make(qwen)
    assert reranker.problem == "the model is not loaded; the next search loads it"
    with pytest.raises(RerankFailure, match="is not loaded"):
        reranker.rerank(QUERY, PASSAGES, soon())
    assert not pids_of(worker.__file__) & {child.pid for child in psutil.Process().children()}


def test_a_call_after_its_deadline_fails(make, qwen):
    reranker = load(make(qwen))
    with pytest.raises(RerankFailure, match="time was used up"):
        reranker.rerank(QUERY, PASSAGES, time.monotonic() - 1)


def test_a_call_returns_the_scores_that_are_ready_at_its_deadline(make, tmp_path):
    slow = SlowWorker(seconds=0.05)
    reranker = load(make(write_qwen(tmp_path / "x.gguf"), package="json", start=lambda _command: slow))
    reply = reranker.rerank(QUERY, ["z"] * 50, soon(0.3))
    scored = [score for score in reply.scores if score is not None]
    assert 1 <= len(scored) < 50
    assert reply.scores == (*scored, *[None] * (50 - len(scored)))


class SlowWorker:
    """A worker that takes the same time for every pair."""

    def __init__(self, seconds):
        self.seconds = seconds

    def score(self, _query, _passage):
        time.sleep(self.seconds)
        return WorkerScore(0.5, 100)

    def load(self):
        pass

    kill = close = load


def test_the_capacity_follows_from_the_speed():
    speed = _Speed()
    assert speed.pairs_in(0.3) == 100
    speed.add(100, 0.05)
    assert speed.pairs_in(0.3) == 4
    assert speed.pairs_in(0.001) == 1
    for _ in range(50):
        speed.add(100, 0.001)
    assert speed.pairs_in(0.3) == 100
    for _ in range(50):
        speed.add(400, 0.01)
    assert 20 <= speed.pairs_in(0.3) <= 28


def test_calls_at_the_same_time_get_their_own_scores(make, qwen):
    reranker = load(make(qwen))
    texts = [[f"{'z ' * number}tea"] for number in range(1, 13)]
    wanted = [reranker.rerank(QUERY, passages, soon()).scores for passages in texts]
    with ThreadPoolExecutor(12) as pool:
        assert list(pool.map(lambda passages: reranker.rerank(QUERY, passages, soon()).scores, texts)) == wanted


def test_an_idle_worker_ends_and_the_next_search_loads_the_model(make, qwen):
    reranker = load(make(qwen, idle_seconds=0.2))
    wait_until(lambda: reranker.problem and not psutil.Process().children())
    check_order(reranker)


def test_a_killed_worker_fails_the_call_and_another_one_is_started(make, qwen):
    reranker = load(make(qwen))
    (child,) = psutil.Process().children()
    os.kill(child.pid, signal.SIGSEGV)
    with pytest.raises(RerankFailure, match="SIGSEGV"):
        reranker.rerank(QUERY, PASSAGES, soon())
    assert "SIGSEGV" in reranker.problem
    wait_until(lambda: not load(reranker).problem)
    check_order(reranker)


def test_no_attempt_is_made_during_a_pause(make, tmp_path):
    reranker = load(make(tmp_path / "none.gguf", package="json", first_pause_seconds=60))
    problem = reranker.problem
    reranker.prepare()
    assert reranker.problem == problem


def test_closing_leaves_no_process(make, qwen):
    reranker = load(make(qwen))
    (child,) = psutil.Process().children()
    reranker.close()
    assert gone(child.pid)
    reranker.prepare()
    with pytest.raises(RerankFailure, match="closed"):
        reranker.rerank(QUERY, PASSAGES, soon())
    reranker.close()


def test_the_worker_of_the_embeddings_is_another_process(make, qwen, model_path):
    reranker, provider = load(make(qwen)), LocalProvider(LocalModelFile(model_path))
    try:
        provider.embed_query("a", soon())
        assert len(psutil.Process().children()) == 2
    finally:
        provider.close()
    assert not reranker.problem


def test_the_worker_is_python_without_the_current_folder(make, qwen):
    load(make(qwen))
    (child,) = psutil.Process().children()
    assert child.cmdline()[:4] == [sys.executable, "-P", worker.__file__, "rank"]
