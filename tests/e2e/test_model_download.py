"""A local model that is not there yet: a command downloads it, and a daemon makes the vectors as soon as it has it."""

import json
import re
import signal
import subprocess
import sys

import pytest

from daemon_process import COMMAND, environment, memoryd, serving
from e2e.daemon_fixture import client
from e2e.test_progress import at_terminal
from model_hub import URI, Hub, serving_hub
from waiting import wait_until

pytest.importorskip("huggingface_hub", reason="huggingface_hub is missing: `make setup-local` installs it")

pytestmark = pytest.mark.slow

DOWNLOADED = "is being downloaded"
HOLD = 1_500_000
# A process inherits SIGINT as ignored where the tests run in the background.
RESET = "import os, signal, sys; signal.signal(signal.SIGINT, signal.SIG_DFL); os.execv(sys.argv[1], sys.argv[1:])"


@pytest.fixture
def hub(model_path, monkeypatch, tmp_path):
    hub = Hub(model_path.read_bytes())
    with serving_hub(hub) as address:
        monkeypatch.setenv("HF_ENDPOINT", address)
        monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))
        yield hub


@pytest.fixture
def options(tmp_path):
    """A workspace with two notes and the settings of a model that has to be downloaded, as options of a verb."""
    (tmp_path / "w" / "memory").mkdir(parents=True)
    (tmp_path / "w" / "memory" / "pets.md").write_text("The kitten naps on the couch all afternoon.")
    (tmp_path / "w" / "memory" / "taxes.md").write_text("The declaration for the revenue office is due in April.")
    search = {"provider": "local", "local": {"modelPath": URI}}
    config = tmp_path / "c.json5"
    ours = {"reconcileSeconds": 3_600}
    config.write_text(json.dumps({"agents": {"defaults": {"memorySearch": search}}, "memoryd": ours}))
    return ["--config", config, "--state-dir", tmp_path / "s", "--workspace", tmp_path / "w"]


@pytest.fixture
def part(tmp_path):
    return tmp_path / "s" / "models" / "some-org" / "some-repo" / "model-Q8_0.gguf.part"


def size(file):
    return file.stat().st_size if file.exists() else 0


def test_index_without_a_daemon_downloads_the_model_and_makes_the_vectors(hub, options, tmp_path):
    done = memoryd("index", *options, home=tmp_path)
    assert (done.returncode, "2 indexed" in done.stdout) == (0, True), (done.stdout, done.stderr)
    assert "without a vector" not in done.stdout
    lines = done.stderr.splitlines()
    assert re.fullmatch(rf"memoryd: downloading {URI}: 0 of \d+ MB \(0 %\)", lines[0])
    assert re.fullmatch(rf"memoryd: downloading {URI}: (\d+) of \1 MB \(100 %\)", lines[-1])
    assert 2 <= len(lines) <= 12
    # Nothing is downloaded twice, and nothing is said of it.
    again = memoryd("search", "where does my cat sleep", *options, home=tmp_path)
    assert hub.ranges == [0]
    (hint,) = again.stderr.splitlines()
    assert hint.startswith(f"memoryd: no daemon serves {tmp_path / 'w'}, so this command indexed it.")
    assert "memory/pets.md" in again.stdout.splitlines()[0]


def test_json_on_standard_output_stays_json(hub, options, tmp_path):
    done = memoryd("search", "where does my cat sleep", "--json", *options, home=tmp_path)
    answer = json.loads(done.stdout)
    assert (answer["info"]["servedMode"], answer["info"]["degradations"]) == ("SEARCH_MODE_HYBRID", [])
    assert "(100 %)" in done.stderr
    for line in memoryd("index", "--json", *options, home=tmp_path).stdout.splitlines():
        assert json.loads(line)["agentId"] == "main"


def test_a_terminal_shows_a_bar_of_the_bytes(hub, options, tmp_path):
    code, output, shown = at_terminal("index", *options, home=tmp_path)
    assert (code, "2 indexed" in output) == (0, True), (output, shown)
    total = f"{len(hub.content) / 1e6:.1f}"
    assert re.search(rf"downloading {URI} .*{total}/{total} MB", shown)
    assert "embedding main" in shown


def test_a_download_that_is_interrupted_is_resumed_by_the_next_command(hub, options, part, tmp_path):
    hub.hold_at = HOLD
    command = [sys.executable, "-c", RESET, *COMMAND, "index", *map(str, options)]
    process = subprocess.Popen(command, env=environment(tmp_path), stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    try:
        wait_until(lambda: size(part) == HOLD)
    finally:
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=60)
    assert (process.returncode != 0, b"Traceback" in errors) == (True, False), errors
    assert size(part) == HOLD
    hub.hold_at = None
    done = memoryd("index", *options, home=tmp_path)
    assert (done.returncode, hub.ranges) == (0, [0, HOLD]), (done.stdout, done.stderr)
    assert not part.exists()


def test_a_connection_that_breaks_is_resumed_by_the_same_command(hub, options, tmp_path):
    hub.cut_at = HOLD
    done = memoryd("index", *options, home=tmp_path)
    assert (done.returncode, hub.ranges) == (0, [0, HOLD]), (done.stdout, done.stderr)


@pytest.mark.faults
def test_a_hub_that_fails_leaves_keywords_and_the_reason(hub, options, tmp_path):
    hub.status = 503
    done = memoryd("search", "kitten", *options, home=tmp_path)
    assert (done.returncode, "memory/pets.md" in done.stdout) == (0, True)
    assert f"the model {URI} cannot be downloaded: " in done.stderr
    done = memoryd("index", *options, home=tmp_path)
    assert (done.returncode, "2 chunks without a vector" in done.stdout) == (1, True)
    assert "503" in done.stderr


@pytest.mark.parametrize(
    "verb", [("status",), ("status", "--deep"), ("index", "--dry-run"), ("search", "--mode", "keyword", "kitten")]
)
def test_verbs_that_need_no_vector_download_nothing(hub, options, part, tmp_path, verb):
    done = memoryd(*verb, *options, home=tmp_path)
    assert (done.returncode, hub.ranges, part.exists()) == (0, [], False), (done.stdout, done.stderr)
    if verb[0] == "status":
        assert f"the model {URI} has not been downloaded yet; memoryd index downloads it" in done.stdout


def reasons(status):
    every = [*(degradation.reason for degradation in status.degradations), status.embedding.reason]
    return [reason for reason in every if DOWNLOADED in reason]


def test_a_daemon_makes_the_vectors_as_soon_as_the_model_has_arrived(hub, options, part, tmp_path):
    hub.hold_at = HOLD
    (tmp_path / "s").mkdir()
    with serving(tmp_path / "w", tmp_path / "s", *options[:2], home=tmp_path) as served, client(served) as connection:
        wait_until(lambda: size(part) == HOLD)
        index = wait_until(lambda: (found := connection.status().index).files == 2 and found)
        assert index.pending_embeddings == 2
        assert reasons(connection.status())
        hub.go.set()
        # No file changes, no call syncs, and the reconcile pass is an hour away.
        wait_until(lambda: not connection.status().index.pending_embeddings)
        status = connection.status()
        assert (reasons(status), list(status.degradations), status.embedding.dimensions) == ([], [], 384)
        answer = connection.search(query="where does my cat sleep", min_score=0.0)
        assert (answer.results[0].path, list(answer.info.degradations)) == ("memory/pets.md", [])
        assert hub.ranges == [0]
        assert not part.exists()
