import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import numpy as np
import psutil
import pytest

from child_processes import pids_of
from memoryd_server.errors import EmbeddingUnavailable
from memoryd_server.providers import worker
from memoryd_server.providers.local import LocalProvider
from memoryd_server.providers.model_files import LocalModelFile
from memoryd_server.providers.provider import EmbeddingFailure, ProviderState
from waiting import wait_until

CHILD = Path(__file__).parent / "embedding_child.py"


def never():
    return False


def soon(seconds=60.0):
    return time.monotonic() + seconds


def run_worker(provider, *arguments):
    """Make `provider` run Python with `arguments` as its worker."""
    provider._command = lambda: [sys.executable, *map(str, arguments)]


def pause_of(provider):
    """Return how many seconds the worker is not started again."""
    return provider._not_before - time.monotonic()


def gone(pid):
    return not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE


@pytest.fixture
def make(model_file):
    made = []

    def make(**options):
        provider = LocalProvider(model_file, **{"first_pause_seconds": 0.2, **options})
        made.append(provider)
        return provider

    yield make
    for provider in made:
        provider.close()


@pytest.fixture(scope="module")
def shared(model_file):
    provider = LocalProvider(model_file)
    yield provider
    provider.close()


@pytest.fixture
def worker_pid():
    """The only worker that was started during the test; None while there is none."""
    before = pids_of(worker.__file__, CHILD)

    def pid():
        started = pids_of(worker.__file__, CHILD) - before
        assert len(started) <= 1
        return next(iter(started), None)

    return pid


def test_the_header_of_the_file_gives_window_and_dimensions(make):
    provider = make()
    provider.refresh()
    spec = provider.spec
    assert (spec.provider, spec.dimensions, spec.max_input_tokens) == ("local", 384, 512)


def test_a_text_of_the_same_meaning_is_nearer(shared):
    texts = ["the cat sleeps on the sofa", "a kitten naps on the couch", "quarterly tax report due in April"]
    cat, kitten, tax = shared.embed_documents(texts, never)
    assert cat @ kitten > cat @ tax + 0.3
    assert shared.embed_query("where does the cat sleep", soon()) @ cat > 0.5
    assert np.linalg.norm(cat) == pytest.approx(1.0, abs=1e-5)


def test_64_at_once_get_what_they_would_get_one_after_another(shared):
    texts = [f"note {number}: the {'very ' * (number % 7)}long story of number {number}" for number in range(64)]
    wanted = shared.embed_documents(texts, never)
    with ThreadPoolExecutor(64) as pool:
        queries = pool.map(lambda text: shared.embed_query(text, soon()), texts)
        documents = pool.map(lambda text: shared.embed_documents([text], never)[0], texts)
        for want, query, document in zip(wanted, queries, documents, strict=True):
            assert np.allclose(want, query, atol=1e-5)
            assert np.allclose(want, document, atol=1e-5)


@pytest.mark.parametrize(
    "text",
    [
        "word " * 20_000,
        "x" * 300_000,
        "漢字" * 5_000,
        "",
        " \n ",
        "nul \x00 in it",
        "half \ud800 surrogate",
        "[CLS] [SEP]",
    ],
    ids=["words", "noise", "han", "empty", "blank", "nul", "surrogate", "special"],
)
def test_odd_texts_neither_fail_nor_end_the_worker(shared, text):
    shared.embed_query("a", soon())
    before = pids_of(worker.__file__)
    (answer,) = shared.embed_documents([text], never)
    assert not isinstance(answer, EmbeddingFailure)
    assert pids_of(worker.__file__) == before


def test_a_long_text_is_cut_to_the_window(shared):
    tokens = shared.status().tokens
    full, longer = shared.embed_documents(["apple " * 510, "apple " * 5_000], never)
    assert shared.status().tokens - tokens == 2 * 512
    assert full @ longer == pytest.approx(1.0, abs=1e-4)


def test_a_question_does_not_wait_for_the_documents_before_it(shared):
    with ThreadPoolExecutor(1) as pool:
        documents = pool.submit(shared.embed_documents, ["word " * 300] * 12, never)
        wait_until(lambda: shared.status().calls)
        shared.embed_query("a", soon())
        assert not documents.done()
        assert len(documents.result(60)) == 12


def test_a_question_waits_no_longer_than_its_deadline(make):
    before = time.monotonic()
    with pytest.raises(EmbeddingUnavailable, match="in time"):
        make().embed_query("a", soon(0.05))
    assert time.monotonic() - before < 1


def test_stopping_keeps_what_was_made(shared):
    calls = shared.status().calls
    answers = shared.embed_documents(["a b c"] * 50, lambda: shared.status().calls >= calls + 3)
    made = [answer for answer in answers if not isinstance(answer, EmbeddingFailure)]
    assert len(answers) == 50
    assert 1 <= len(made) < 50
    assert all(answer.transient for answer in answers[len(made) :])


def answers(provider):
    with suppress(EmbeddingUnavailable):
        provider.embed_query("a", soon())
        return True


@pytest.mark.slow
def test_a_killed_worker_fails_the_question_and_comes_back(make, worker_pid):
    provider = make(first_pause_seconds=1.0)
    provider.embed_query("a", soon())
    first = worker_pid()
    os.kill(first, signal.SIGSEGV)
    with pytest.raises(EmbeddingUnavailable, match="SIGSEGV"):
        provider.embed_query("a", soon())
    with pytest.raises(EmbeddingUnavailable, match="restarts") as caught:
        provider.embed_query("a", soon())
    assert 0 < caught.value.retry_after_seconds <= 1
    assert provider.status().state is ProviderState.UNAVAILABLE
    assert "SIGSEGV" in provider.status().reason
    wait_until(lambda: answers(provider))
    assert worker_pid() != first
    assert provider.status().state is ProviderState.READY


@pytest.mark.slow
def test_documents_survive_a_killed_worker(make, worker_pid):
    provider = make()
    provider.embed_query("a", soon())
    texts = [f"{number} " + "word " * 200 for number in range(12)]
    with ThreadPoolExecutor(1) as pool:
        documents = pool.submit(provider.embed_documents, texts, never)
        wait_until(lambda: provider.status().calls > 2)
        os.kill(worker_pid(), signal.SIGSEGV)
        answers = documents.result(60)
    assert not [answer for answer in answers if isinstance(answer, EmbeddingFailure)]


@pytest.mark.slow
def test_a_text_at_which_the_worker_dies_twice_fails_alone(make, tmp_path):
    provider = make(package="json")
    run_worker(provider, CHILD, "worker")
    first, second, third = provider.embed_documents(["a", "die", "b"], never)
    assert isinstance(second, EmbeddingFailure)
    assert not second.transient
    assert "exit code 3" in second.reason
    assert first.size == third.size == 384


@pytest.mark.slow
def test_a_refusal_is_the_texts_only_when_a_plain_text_gets_its_vector(make, worker_pid):
    provider = make(package="json")
    run_worker(provider, CHILD, "worker")
    (answer,) = provider.embed_documents(["die"], never)
    assert not answer.transient
    run_worker(provider, CHILD, "refusing")
    os.kill(worker_pid(), signal.SIGKILL)
    with pytest.raises(EmbeddingUnavailable, match="not an embedding model"):
        provider.embed_documents(["a", "b"], never)


def test_deaths_in_a_row_make_the_pauses_longer(make):
    provider = make(first_pause_seconds=0.05)
    run_worker(provider, "-c", "")
    pauses = []
    for _ in range(4):
        wait_until(lambda: pause_of(provider) < 0)
        with pytest.raises(EmbeddingUnavailable):
            provider.embed_query("a", soon())
        pauses.append(round(pause_of(provider), 1))
    assert pauses == sorted(pauses)
    assert pauses[-1] >= 0.3


def test_an_idle_worker_ends_and_the_next_call_starts_another(make, worker_pid):
    provider = make(idle_seconds=0.2)
    provider.embed_query("a", soon())
    pid = worker_pid()
    wait_until(lambda: gone(pid))
    assert provider.status().state is ProviderState.READY
    provider.embed_query("a", soon())
    assert worker_pid() not in (None, pid)


def test_closing_leaves_no_process_and_fails_what_waits(make, worker_pid):
    provider = make()
    provider.embed_query("a", soon())
    pid = worker_pid()
    with ThreadPoolExecutor(4) as pool:
        waiting = [pool.submit(provider.embed_documents, ["word " * 510] * 50, never) for _ in range(4)]
        wait_until(lambda: provider.status().calls > 1)
        provider.close()
        assert gone(pid)
        for call in waiting:
            with suppress(EmbeddingUnavailable):
                assert [a for a in call.result(10) if isinstance(a, EmbeddingFailure) and a.transient]
    with pytest.raises(EmbeddingUnavailable, match="closed"):
        provider.embed_query("a", soon())
    provider.close()


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
def test_a_worker_does_not_outlive_its_parent(model_path, how):
    parent = subprocess.Popen([sys.executable, CHILD, "parent", str(model_path)], stdout=subprocess.PIPE, text=True)
    pid = int(parent.stdout.readline())
    assert psutil.pid_exists(pid)
    parent.send_signal(how)
    parent.wait(10)
    parent.stdout.close()
    wait_until(lambda: gone(pid))


def test_a_missing_package_is_named(make):
    provider = make(package="no_such_package_at_all")
    with pytest.raises(EmbeddingUnavailable, match=r"install memoryd\[local\]"):
        provider.embed_query("a", soon())
    assert provider.status().state is ProviderState.UNAVAILABLE


def test_worker_that_cannot_be_closed_leaves_the_next_call_another_one(make, worker_pid):
    provider = make(idle_seconds=0.2)
    provider.embed_query("a", soon())
    worker = provider._worker
    close = worker.close

    def failing():
        close()
        raise OSError("a fault")

    worker.close = failing
    wait_until(lambda: worker_pid() is None)
    provider.embed_query("a", soon())


def check_unusable(path, why):
    provider = LocalProvider(LocalModelFile(path), package="json")
    try:
        with pytest.raises(EmbeddingUnavailable, match=why):
            provider.embed_query("a", soon())
        assert provider.status().state is ProviderState.UNAVAILABLE
        assert provider.spec.dimensions is None
    finally:
        provider.close()


def test_a_missing_file_is_named(tmp_path):
    check_unusable(tmp_path / "none.gguf", "none.gguf is missing")


def test_a_file_of_another_kind_is_named(tmp_path):
    path = tmp_path / "text.gguf"
    path.write_text("this is no model at all")
    check_unusable(path, "not a GGUF")


@pytest.mark.slow
def test_a_model_that_cannot_be_loaded_is_said_so(tmp_path, model_path):
    path = tmp_path / "short.gguf"
    path.write_bytes(model_path.read_bytes()[:2_000_000])
    provider = LocalProvider(LocalModelFile(path))
    try:
        with pytest.raises(EmbeddingUnavailable, match="cannot be loaded"):
            provider.embed_query("a", soon())
    finally:
        provider.close()
