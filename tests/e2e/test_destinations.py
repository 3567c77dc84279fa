"""Which servers the daemon contacts: a recording proxy, and a recording server, for settings in both layouts."""

import http.server
import json
import threading
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from daemon_process import end, start
from destinations import BROKEN, KEYS, SERVER, TABLE
from e2e.daemon_fixture import client, last_event
from memoryd.v1.sync_event_pb2 import ON_CONFLICT_WAIT, SYNC_MODE_FULL
from waiting import WAIT_SECONDS, wait_until

pytestmark = pytest.mark.slow


class Recorder(http.server.ThreadingHTTPServer):
    """Record the host of each tunnel and the address of each request; refuse all of them."""

    daemon_threads = True

    def __init__(self):
        super().__init__(("127.0.0.1", 0), _Handler)
        self.contacted = set()
        self.url = f"http://127.0.0.1:{self.server_port}"


class _Handler(http.server.BaseHTTPRequestHandler):
    def _refuse(self):
        self.server.contacted.add(self.path.split(":")[0] if self.command == "CONNECT" else self.server.url)
        self.send_error(502)

    do_CONNECT = do_GET = do_POST = _refuse  # noqa: N815 -- names of http.server

    def log_message(self, *_):
        pass


@pytest.fixture
def recorder():
    with Recorder() as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.shutdown()


@pytest.fixture
def launch(tmp_path, recorder):
    """Write the settings and start a daemon that has all keys and uses the proxy."""
    state = tmp_path / ".openclaw"
    state.mkdir()
    variables = {**KEYS, "HTTPS_PROXY": recorder.url, "HTTP_PROXY": recorder.url, "NO_PROXY": "", "no_proxy": ""}
    served = []

    def launch(reference, own=None):
        for name, content in (("openclaw.json", reference), ("memoryd.json5", own)):
            if content is not None:
                text = content if isinstance(content, str) else json.dumps(content)
                (state / name).write_text(text.replace(SERVER, f"{recorder.url}/v1"))
        served.append(start(None, state, home=tmp_path, variables=variables))
        return served[-1]

    yield launch
    for each in served:
        end(each.process)


def hosts(expected, recorder):
    """The hosts of a row of the table, as the recorder names them."""
    urls = set().union(*expected.values())
    return {recorder.url if url == SERVER else urlsplit(url).hostname for url in urls}


@pytest.mark.parametrize(("reference", "own", "expected"), [row[1:] for row in TABLE], ids=[row[0] for row in TABLE])
def test_exactly_the_hosts_of_the_table_are_contacted(launch, recorder, reference, own, expected):
    served = launch(reference, own)
    with client(served) as connection:
        agents = connection.list_agents().agents
        assert {agent.agent_id for agent in agents} == set(expected)
        for agent in agents:
            notes = Path(agent.workspace)
            notes.mkdir(parents=True, exist_ok=True)
            (notes / "MEMORY.md").write_text("The falcon nests on the tower.")
            if agent.enabled:
                # The watcher may have started a sync.
                last_event(connection, agent_id=agent.agent_id, mode=SYNC_MODE_FULL, on_conflict=ON_CONFLICT_WAIT)
                connection.search(agent_id=agent.agent_id, query="falcon", timeout=WAIT_SECONDS)
        wait_until(lambda: recorder.contacted >= hosts(expected, recorder))
    assert end(served.process) == 0
    assert recorder.contacted == hosts(expected, recorder)


@pytest.mark.parametrize("reference", BROKEN, ids=str)
def test_a_file_that_cannot_be_used_contacts_nobody(launch, recorder, reference):
    with pytest.raises(AssertionError, match="did not start"):
        launch(reference)
    assert not recorder.contacted
