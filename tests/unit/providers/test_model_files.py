import fcntl
import hashlib
import random
import threading
import time
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from memoryd_server.errors import EmbeddingUnavailable
from memoryd_server.providers.local import LocalProvider
from memoryd_server.providers.model_files import DEFAULT_MODEL, HubModelFile, LocalModelFile
from memoryd_server.providers.provider import ProviderState
from waiting import wait_until

pytest.importorskip("huggingface_hub", reason="huggingface_hub is missing: `make setup-local` installs it")

CONTENT = random.Random(5).randbytes(3_000_000)
URI = "hf:some-org/some-repo/model-Q8_0.gguf"


class Hub:
    """Enough of huggingface.co for one file. `cut_at` breaks the connection there, once."""

    def __init__(self):
        self.ranges = []
        self.status = 200
        self.cut_at = None
        self.sha256 = hashlib.sha256(CONTENT).hexdigest()
        self.go = threading.Event()
        self.go.set()

    def answer(self, handler, *, body):
        assert handler.path == "/some-org/some-repo/resolve/main/model-Q8_0.gguf"
        if self.status != 200:
            handler.send_response(self.status)
            handler.send_header("content-length", "0")
            handler.end_headers()
            return
        begin = int((handler.headers.get("range") or "bytes=0-")[6:-1])
        handler.send_response(206 if begin else 200)
        handler.send_header("x-repo-commit", "c" * 40)
        handler.send_header("etag", f'"{self.sha256}"')
        handler.send_header("content-length", str(len(CONTENT) - begin))
        handler.end_headers()
        if body:
            self.ranges.append(begin)
            end, self.cut_at = self.cut_at, None
            handler.wfile.write(CONTENT[begin:end])
            self.go.wait(20)
            handler.close_connection = True


@contextmanager
def serving(hub):
    class Handler(BaseHTTPRequestHandler):
        def do_HEAD(self):
            hub.answer(self, body=False)

        def do_GET(self):
            hub.answer(self, body=True)

        def log_message(self, *_arguments):
            pass

    class Server(ThreadingHTTPServer):
        daemon_threads = True

        def handle_error(self, *_arguments):
            pass

    with Server(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()


@pytest.fixture
def hub():
    return Hub()


@pytest.fixture
def make(hub, tmp_path, monkeypatch):
    monkeypatch.setenv("HF_HOME", str(tmp_path / "home"))
    made = []
    with serving(hub) as endpoint:

        def make(**options):
            file = HubModelFile(
                URI, tmp_path / "cache", **{"endpoint": endpoint, "first_pause_seconds": 0.05, **options}
            )
            made.append(file)
            return file

        yield make
        hub.go.set()
        for file in made:
            file.close()


def begin(file):
    with pytest.raises(EmbeddingUnavailable):
        file.path()


def test_the_first_question_begins_the_download_and_does_not_wait_for_it(hub, make):
    told = []
    hub.go.clear()
    file = make(on_progress=lambda done, total: told.append((done, total)))
    before = time.monotonic()
    with pytest.raises(EmbeddingUnavailable, match="is being downloaded"):
        file.path()
    assert time.monotonic() - before < 1
    hub.go.set()
    wait_until(lambda: not file.reason)
    assert file.path().read_bytes() == CONTENT
    assert told[-1] == (len(CONTENT), len(CONTENT))
    assert [done for done, _ in told] == sorted(done for done, _ in told)
    assert not list(file.path().parent.glob("*.part"))


def test_a_broken_download_goes_on_where_it_ended(hub, make):
    hub.cut_at = 2_000_000
    file = make()
    begin(file)
    wait_until(lambda: not file.reason)
    assert file.path().read_bytes() == CONTENT
    assert len(hub.ranges) == 2
    assert hub.ranges[1] > 0


def test_a_download_goes_on_after_a_restart(hub, make):
    hub.cut_at = 2_000_000
    first = make(first_pause_seconds=60)
    begin(first)
    wait_until(lambda: "cannot be downloaded" in first.reason)
    assert not first.downloading
    first.close()
    second = make()
    begin(second)
    wait_until(lambda: not second.reason)
    assert 0 < hub.ranges[1] <= 2_000_000
    assert second.path().read_bytes() == CONTENT


def test_a_download_with_another_checksum_is_discarded(hub, make):
    hub.sha256 = "0" * 64
    file = make(first_pause_seconds=60)
    begin(file)
    wait_until(lambda: "that the hub reports" in file.reason)
    assert not list(file._target.parent.iterdir())


@pytest.mark.parametrize("status", [401, 404, 500])
def test_a_hub_that_refuses_is_named_and_asked_again(hub, make, status):
    hub.status = status
    file = make()
    begin(file)
    wait_until(lambda: "cannot be downloaded" in file.reason and str(status) in file.reason)
    hub.status = 200
    wait_until(lambda: not file.reason)


def test_without_a_network_the_provider_says_why(make, model_path):
    provider = LocalProvider(make(endpoint="http://127.0.0.1:9", first_pause_seconds=60))
    try:
        provider.refresh()
        assert provider.spec.dimensions is None

        def is_unavailable():
            provider.refresh()
            return provider.status().state is ProviderState.UNAVAILABLE

        wait_until(is_unavailable)
        assert "cannot be downloaded" in provider.status().reason
        with pytest.raises(EmbeddingUnavailable, match="cannot be downloaded"):
            provider.embed_query("a", time.monotonic() + 5)
    finally:
        provider.close()


def test_a_provider_whose_model_is_under_way_is_starting(hub, make, model_path):
    hub.go.clear()
    provider = LocalProvider(make())
    try:
        provider.refresh()
        assert provider.status().state is ProviderState.STARTING
        assert "downloaded" in provider.status().reason
    finally:
        hub.go.set()
        provider.close()


def test_spec_and_status_begin_no_download(hub, make, model_path):
    file = make()
    provider = LocalProvider(file)
    try:
        assert provider.spec.dimensions is None
        assert provider.status().state is ProviderState.STARTING
        assert file._thread is None
        provider.refresh()
        assert file._thread is not None
    finally:
        provider.close()


def test_file_that_cannot_be_reached_is_missing(tmp_path):
    assert "is missing" in LocalModelFile(tmp_path / ("x" * 300)).reason


@pytest.mark.parametrize(
    "uri",
    [
        "hf:org/model.gguf",
        "hf:org/repo/model.bin",
        "hf:org/../x/model.gguf",
        "hf:../../x.gguf",
        "hf:o/r/a b.gguf",
        "x.gguf",
        "hf:",
    ],
)
def test_other_addresses_are_refused(uri, tmp_path):
    with pytest.raises(ValueError, match="hf:organization/repository"):
        HubModelFile(uri, tmp_path)


def test_the_default_model_has_an_address_that_we_understand(tmp_path):
    assert HubModelFile(DEFAULT_MODEL, tmp_path).name == DEFAULT_MODEL


def test_a_file_on_disk_is_known_by_its_name(tmp_path):
    path = tmp_path / "m.gguf"
    file = LocalModelFile(path)
    assert (file.name, file.downloading) == ("m.gguf", False)
    assert "missing" in file.reason
    path.touch()
    assert (file.reason, file.path()) == ("", path)


def test_a_download_waits_for_another_process_that_downloads_the_file(make, tmp_path):
    part = tmp_path / "cache" / "some-org" / "some-repo" / "model-Q8_0.gguf.part"
    part.parent.mkdir(parents=True)
    file = make()
    with part.open("ab") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        begin(file)
        wait_until(lambda: "another process is downloading it" in file.reason)
    wait_until(lambda: not file.reason)
    assert file.path().read_bytes() == CONTENT
