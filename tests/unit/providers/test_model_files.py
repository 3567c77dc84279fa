import fcntl
import hashlib
import random
import threading
import time

import pytest

from memoryd_server.errors import EmbeddingUnavailable
from memoryd_server.providers.local import LocalProvider
from memoryd_server.providers.model_download import HubModelFile
from memoryd_server.providers.model_files import DEFAULT_MODEL, LocalModelFile
from memoryd_server.providers.pool import missing_model
from memoryd_server.providers.provider import ProviderState
from model_hub import URI, Hub, serving_hub
from waiting import wait_until

pytest.importorskip("huggingface_hub", reason="huggingface_hub is missing: `make setup-local` installs it")

CONTENT = random.Random(5).randbytes(3_000_000)


@pytest.fixture
def hub():
    return Hub(CONTENT)


@pytest.fixture
def make(hub, tmp_path, monkeypatch):
    monkeypatch.setenv("HF_HOME", str(tmp_path / "home"))
    made = []
    with serving_hub(hub) as endpoint:

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


@pytest.fixture
def part(tmp_path):
    return tmp_path / "cache" / "some-org" / "some-repo" / "model-Q8_0.gguf.part"


def begin(file):
    with pytest.raises(EmbeddingUnavailable):
        file.path()


def test_the_first_question_begins_the_download_and_does_not_wait_for_it(hub, make):
    hub.hold_at = 1_000_000
    file = make()
    before = time.monotonic()
    with pytest.raises(EmbeddingUnavailable, match="is being downloaded"):
        file.path()
    assert time.monotonic() - before < 1
    hub.go.set()
    wait_until(lambda: not file.reason)
    assert file.path().read_bytes() == CONTENT
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
    hub.hold_at = 1_000_000
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


def test_a_download_waits_for_another_process_that_downloads_the_file(make, part):
    part.parent.mkdir(parents=True)
    file = make()
    with part.open("ab") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        begin(file)
        wait_until(lambda: "is being downloaded by another process" in file.reason)
        assert file.downloading
    wait_until(lambda: not file.reason)
    assert file.path().read_bytes() == CONTENT


def test_a_download_that_a_caller_waits_for_is_resumed_and_reports_its_progress(hub, make):
    hub.cut_at = 2_000_000
    told = []
    file = make(in_background=False)
    file.download(lambda done, total: told.append((done, total)))
    assert file.path().read_bytes() == CONTENT
    assert hub.ranges == [0, 2_000_000]
    assert told[0] == (0, len(CONTENT))
    assert told[-1] == (len(CONTENT), len(CONTENT))
    assert [done for done, _ in told] == sorted(done for done, _ in told)


def test_what_has_been_received_is_on_the_disk_to_the_byte(hub, make, part):
    hub.hold_at = 100_000
    file = make()
    begin(file)
    wait_until(lambda: part.exists() and part.stat().st_size == hub.hold_at)
    assert file.progress == "3 % of 3 MB"
    hub.go.set()
    wait_until(lambda: not file.reason)


def test_without_a_background_only_a_caller_that_waits_downloads(hub, make, part):
    file = make(in_background=False)
    with pytest.raises(EmbeddingUnavailable, match="has not been downloaded yet; memoryd index downloads it"):
        file.path()
    assert not file.downloading
    assert hub.ranges == []
    assert not part.parent.exists()


@pytest.mark.parametrize("status", [401, 503])
def test_a_caller_does_not_wait_for_a_hub_that_refuses(hub, make, status):
    hub.status = status
    file = make(in_background=False)
    with pytest.raises(EmbeddingUnavailable, match=f"cannot be downloaded: .*{status}"):
        file.download(lambda _done, _total: None)
    assert not file.reason.endswith("trying again")


def test_a_wrong_checksum_does_not_download_the_file_again_and_again(hub, make):
    hub.sha256 = "0" * 64
    with pytest.raises(EmbeddingUnavailable, match="was deleted"):
        make(in_background=False).download(lambda _done, _total: None)
    assert hub.ranges == [0]


def test_a_caller_waits_for_another_process_that_downloads_the_file(hub, make):
    hub.hold_at = 1_000_000
    first = make()
    begin(first)
    wait_until(lambda: hub.ranges)
    seen, done = threading.Event(), []
    second = make(in_background=False)

    def on_progress(done, total):
        assert (done <= total, total) == (True, len(CONTENT))
        seen.set()

    waiting = threading.Thread(target=lambda: done.append(second.download(on_progress)))
    waiting.start()
    assert seen.wait(20)
    hub.go.set()
    waiting.join(20)
    assert (done, second.reason, hub.ranges) == ([None], "", [0])
    assert not list(second.path().parent.glob("*.part"))


@pytest.mark.parametrize(("package", "is_missing"), [("json", True), ("no_such_package", False)])
def test_a_model_is_missing_only_where_llama_cpp_could_use_it(hub, make, package, is_missing):
    file = make(in_background=False)
    provider = LocalProvider(file, package=package)
    try:
        assert missing_model(provider) is (file if is_missing else None)
        file.download(lambda _done, _total: None)
        assert missing_model(provider) is None
    finally:
        provider.close()


def test_a_model_that_has_arrived_is_reported_and_its_reason_is_gone(hub, make, model_path):
    hub.content = model_path.read_bytes()
    hub.sha256 = hashlib.sha256(hub.content).hexdigest()
    hub.hold_at = 1_000_000
    ready = []
    provider = LocalProvider(make(), on_ready=ready.append)
    try:
        provider.refresh()
        wait_until(lambda: hub.ranges)
        provider.refresh()
        assert "is being downloaded" in provider.problem
        hub.go.set()
        # Nothing looks at the file again: what is known must change by itself.
        wait_until(lambda: ready == [provider])
        assert (provider.problem, provider.status().state) == ("", ProviderState.READY)
        assert provider.spec.dimensions
    finally:
        provider.close()
