"""Every value of every reply of every provider may be anything: errors are memoryd's own, and counts are bounded."""

import math
import time
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import islice
from threading import Thread

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fake_providers import SERVERS, Fault, fake_provider
from hostile_json import HUGE, fragments, spoil
from memoryd_server.errors import EmbeddingQuotaExceeded, EmbeddingUnavailable
from memoryd_server.providers import RequestRefused, batches_of
from memoryd_server.providers.http_client import MAX_ERROR_BYTES, HttpClient, HttpRequest
from memoryd_server.providers.pacing import ThrottleConfig, WaitLimit
from memoryd_server.providers.pool import ProviderPool
from memoryd_server.providers.provider import EmbeddingConfig, EmbeddingFailure, RemoteConfig
from properties import examples

pytestmark = pytest.mark.attacks

KEY = "key-of-the-test-0123456789"
QUICK = ThrottleConfig(first_pause_seconds=0.0001)
STATUSES = (200, 400, 401, 404, 429, 500)
ERRORS = (EmbeddingUnavailable, EmbeddingQuotaExceeded)
WITH_JOBS = ("openai", "gemini", "voyage")
shared_fixtures = settings(
    max_examples=examples(150), suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture]
)


def check_message(error):
    """It can be encoded, and is short."""
    assert 0 < len(str(error).encode()) < 2_000


class Provider:
    """A provider with its server."""

    def __init__(self, server, pool):
        self.server = server
        self.server.vector = lambda text, dimensions: [float(len(text) % 7 + at) for at in range(1, 5)]
        remote = RemoteConfig(server.provider, server.model, keys=(KEY,), base_url=server.url, pace=QUICK)
        selection = pool.select(EmbeddingConfig(server.provider, (remote,)))
        self.provider = selection.provider
        self.jobs = batches_of(self.provider)

    def spoil(self, number, fragment, status=200, headers=None):
        """Replace a value in each reply from now on."""
        body = None if status == 200 else self.server.error(status, "The server has an error; input 3 is too long.")

        def change(reply):
            return spoil(body if reply is None else reply, number, fragment)

        self.server.refuse = lambda _texts: Fault(status=status, headers=headers or {}, change=change)

    def check(self):
        """Embed as a sync and as a search do."""
        for call in (
            lambda: self.provider.embed_documents(["one", "two", "three"], lambda: False),
            lambda: [self.provider.embed_query("four", time.monotonic() + 5)],
        ):
            try:
                answers = call()
            except ERRORS as error:
                check_message(error)
            else:
                assert all(isinstance(each, EmbeddingFailure) or np.isfinite(each).all() for each in answers)
        status = self.provider.status()
        assert 0 <= status.tokens < 2**63
        assert status.reason.encode() is not None


@pytest.fixture(params=SERVERS)
def provider(request):
    pool = ProviderPool()
    with fake_provider(request.param, [KEY]) as server:
        yield Provider(server, pool)
        pool.close()


@pytest.fixture(params=WITH_JOBS)
def jobs_provider(request):
    pool = ProviderPool()
    with fake_provider(request.param, [KEY]) as server:
        yield Provider(server, pool)
        pool.close()


@pytest.mark.slow
@shared_fixtures
@given(number=st.integers(0, 60), fragment=fragments, status=st.sampled_from(STATUSES))
def test_any_value_of_a_reply_may_be_anything(provider, number, fragment, status):
    provider.spoil(number, fragment, status)
    provider.check()


@pytest.mark.parametrize("fragment", [HUGE, "[" * 900 + "]" * 900, "NaN", "true"])
def test_a_hostile_value_in_the_reply_of_a_compatible_server_is_an_error_or_ignored(fragment):
    pool = ProviderPool()
    with fake_provider("openai-compatible") as server:
        provider = Provider(server, pool)
        for number in range(10):
            provider.spoil(number, fragment)
            provider.check()
        server.refuse = lambda _texts: None
        assert len(provider.provider.embed_query("later", time.monotonic() + 5)) == 4
        pool.close()


def check_jobs(provider):
    """Go through all calls of a batch job."""
    wait_limit = WaitLimit(time.monotonic() + 5, lambda: False)
    jobs, found = provider.jobs, {"job_id": "j", "output": "o"}

    def submit():
        found["job_id"] = jobs.submit("name", {"aa": "one", "bb": "two"}, wait_limit)

    def look():
        for _ in range(3):
            state = jobs.job_state(found["job_id"], wait_limit)
            found["output"] = next(iter(state.outputs), "o")
            assert (state.word + state.reason).encode() is not None
            assert len(state.reason) < 1_000

    def answers():
        for key, _values in islice(jobs.answers(found["output"], wait_limit), 10):
            assert isinstance(key, str)

    for call in (submit, lambda: jobs.find("name", wait_limit), look, answers, lambda: jobs.cancel("j", wait_limit)):
        try:
            call()
        except (*ERRORS, RequestRefused) as error:
            check_message(error)
    assert 0 <= provider.provider.status().tokens < 2**63


@pytest.mark.slow
@shared_fixtures
@given(
    number=st.integers(0, 60), fragment=fragments, status=st.sampled_from((200, 200, 400, 500)), start=st.integers(0, 4)
)
def test_any_value_of_a_batch_jobs_replies_may_be_anything(jobs_provider, number, fragment, status, start):
    provider = jobs_provider
    provider.spoil(number, fragment, status)
    provider.server.faults.clear()
    provider.server.faults.extend([Fault()] * start)
    check_jobs(provider)


@pytest.mark.parametrize("fragment", [HUGE, "[" * 900 + "]" * 900, '{"error": ' * 300 + '"x"' + "}" * 300])
def test_a_hostile_value_in_the_replies_of_a_batch_job_is_an_error_or_ignored(fragment):
    pool = ProviderPool()
    with fake_provider("openai", [KEY]) as server:
        provider = Provider(server, pool)
        for number in range(8):
            provider.spoil(number, fragment)
            server.faults.extend([Fault()] * (number % 5))
            check_jobs(provider)
            server.faults.clear()
        pool.close()


HEADERS = ("1e300", "-1", "NaN", "inf", "", " ", "1_0", "9" * 5_000, "٣", "Mon, 1 Jan 2024 00:00:00 +99999999999999")
DATES = (
    "Mon, 31 Dec 9999 23:59:59 -2359",
    "Mon, 1 Jan 0001 00:00:00 +2359",
    "Mon, 1 Jan 2024 00:00:00 +" + "9" * 5_000,
)


@pytest.mark.parametrize("value", [*HEADERS, *DATES])
def test_any_retry_after_gives_a_pause_that_callers_can_wait(value):
    pool = ProviderPool()
    with fake_provider("openai-compatible") as server:
        provider = Provider(server, pool)
        provider.spoil(99, "1", 429, {"retry-after": value.encode().decode("latin-1")})
        with pytest.raises(EmbeddingUnavailable) as caught:
            provider.provider.embed_query("four", time.monotonic() + 5)
        assert 0 <= (caught.value.retry_after_seconds or 0) <= 86_400
        pool.close()


def test_the_rest_of_a_long_error_is_not_read():
    pool = ProviderPool()
    with fake_provider("openai-compatible") as server:
        provider = Provider(server, pool)
        server.refuse = lambda _texts: Fault(status=403, body=b'{"error": "' + b"x" * 8 * MAX_ERROR_BYTES)
        with pytest.raises(EmbeddingUnavailable, match="HTTP 403") as caught:
            provider.provider.embed_query("four", time.monotonic() + 5)
        assert len(caught.value.message) < 500
        pool.close()


def test_a_reply_that_is_compressed_twice_is_refused():
    pool = ProviderPool()
    with fake_provider("openai-compatible") as server:
        provider = Provider(server, pool)
        server.refuse = lambda _texts: Fault(body=b"x", headers={"content-encoding": "gzip, gzip"})
        with pytest.raises(EmbeddingUnavailable, match="compressed more than once"):
            provider.provider.embed_query("four", time.monotonic() + 5)
        pool.close()


@contextmanager
def trickling_server(piece, pause_seconds):
    """A server whose replies never end."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(200)
            self.end_headers()
            with suppress(OSError):
                while True:
                    self.wfile.write(piece)
                    time.sleep(pause_seconds)

        def log_message(self, *_arguments):
            pass

    class Server(ThreadingHTTPServer):
        daemon_threads = True

    with Server(("127.0.0.1", 0), Handler) as server:
        Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("piece", "pause_seconds", "why"),
    [(b"{}\n", 0.005, "in time"), (b"x" * 2**20, 0.0, "returned a line of more than")],
)
def test_the_download_of_a_batch_jobs_output_ends(piece, pause_seconds, why):
    wait_limit = WaitLimit(math.inf, lambda: False)
    with trickling_server(piece, pause_seconds) as url:
        http = HttpClient("it", url, indexing_seconds=0.05 if pause_seconds else 10.0)
        with pytest.raises(EmbeddingUnavailable, match=why):
            for _ in http.lines(HttpRequest("GET", "/"), wait_limit):
                pass
        http.close()
