"""What the command shows at a terminal while it works."""

import json
import os
import pty
import re
import subprocess
import threading

import pytest

from daemon_process import COMMAND, environment, serving
from fake_providers import embedding_server
from waiting import WAIT_SECONDS, wait_until

pytestmark = pytest.mark.slow

NOTES = 150


def at_terminal(*arguments, home, on_output=lambda _text: None):
    """Run a verb whose standard error is a terminal; return its exit code, standard output, and what it showed.

    `on_output` is called with each piece of what it shows.
    """
    terminal, side = pty.openpty()
    shown = []

    def read():
        try:
            while data := os.read(terminal, 65_536):
                shown.append(data)
                on_output(data.decode("utf-8", "replace"))
        except OSError:
            # Linux reports the end of a terminal as an error.
            return

    env = {**environment(home), "TERM": "xterm", "COLUMNS": "200"}
    reader = threading.Thread(target=read)
    try:
        process = subprocess.Popen(
            [*COMMAND, *map(str, arguments)], env=env, stdout=subprocess.PIPE, stderr=side, text=True
        )
        reader.start()
        output, _ = process.communicate(timeout=60)
    finally:
        os.close(side)
    reader.join(60)
    os.close(terminal)
    return process.returncode, output, re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", b"".join(shown).decode())


@pytest.fixture
def home(tmp_path):
    (tmp_path / "w" / "memory").mkdir(parents=True)
    for number in range(NOTES):
        (tmp_path / "w" / "memory" / f"{number}.md").write_text(f"The crane number {number} lifts containers.")
    return tmp_path


def test_the_bar_counts_the_chunks_to_embed_and_shows_tokens(home, monkeypatch):
    with embedding_server() as server:
        monkeypatch.setenv(*server.behind_proxy("embeddings.example"))
        remote = {"baseUrl": server.url, "apiKey": "sk-of-this-test"}
        search = {"provider": "openai-compatible", "model": "words", "remote": remote}
        config = home / "c.json5"
        config.write_text(json.dumps({"agents": {"defaults": {"memorySearch": search}}}))
        options = ["--config", config, "--state-dir", home / "s", "--workspace", home / "w"]
        code, output, shown = at_terminal("index", *options, home=home)
    assert (code, f"{NOTES} indexed" in output) == (0, True), (output, shown)
    tokens = sum(-(-len(f"The crane number {number} lifts containers.") // 4) for number in range(NOTES))
    last = shown.strip().splitlines()[-1]
    assert re.search(rf"^embedding main .* {NOTES}/{NOTES} +chunks, about {tokens:,} of {tokens:,} tokens", last), shown


def test_the_bar_shows_that_a_rebuild_waits_for_another_sync(home):
    go = threading.Event()
    with embedding_server() as server:
        server.refuse = lambda _texts: go.wait(WAIT_SECONDS) and None
        remote = {"baseUrl": server.url, "apiKey": "sk-of-this-test"}
        search = {"provider": "openai-compatible", "model": "words", "remote": remote}
        (home / "s").mkdir()
        (home / "s" / "memoryd.json5").write_text(json.dumps({"agents": {"defaults": {"memorySearch": search}}}))

        def release(text):
            if "waiting for the end of another sync main" in text:
                go.set()

        with serving(home / "w", home / "s", home=home):
            wait_until(lambda: server.texts)
            options = ["--force", "--state-dir", home / "s"]
            code, output, shown = at_terminal("index", *options, home=home, on_output=release)
    assert (code, f"{NOTES} indexed" in output) == (0, True), (output, shown)
    assert go.is_set(), shown
