"""memoryd: indexed by `memoryd index`, asked over gRPC."""

import contextlib
import json
import selectors
import subprocess
import sys
from importlib.metadata import version

import psutil
from commands import end_group, private_environment, run
from peer import Mode, Setup, Shown

from memoryd.client import MemorydClient, connect

MEMORYD = (sys.executable, "-m", "memoryd_server")
READY_SECONDS = 60


class MemorydPeer:
    """The daemon with its default settings, except the provider."""

    name = "memoryd"
    modes: tuple[Mode, ...] = ("keywords", "vectors")
    interface = "gRPC over a Unix domain socket"
    remarks = ()

    def __init__(self) -> None:
        self._process: subprocess.Popen[str] | None = None
        self._client: MemorydClient | None = None

    @property
    def version(self) -> str:
        return version("memoryd")

    def set_up(self, setup: Setup) -> None:
        self._folder, self._state = setup.folder, setup.folder / "state"
        self._options = ("--workspace", setup.notes, "--state-dir", self._state)
        self._environment = private_environment(setup.folder)
        self._state.mkdir()
        search: dict[str, object] = {"provider": "none"}
        if setup.mode == "vectors":
            remote = {"baseUrl": setup.embeddings_url, "apiKey": "none"}
            search = {"provider": "openai-compatible", "model": setup.embedding_model, "remote": remote}
        (self._state / "memoryd.json5").write_text(json.dumps({"memory": {"search": search}}), "utf-8")

    def index(self) -> None:
        run((*MEMORYD, "index", *self._options), self._environment, self._folder)

    def start(self) -> None:
        address = f"unix:{self._state}/m.sock"
        with (self._folder / "daemon.log").open("ab") as log:
            self._process = subprocess.Popen(
                [*MEMORYD, "serve", *map(str, self._options), "--listen", address],
                env=self._environment, cwd=self._folder, stdout=subprocess.PIPE, stderr=log, text=True,
                start_new_session=True,
            )  # fmt: skip
        with selectors.DefaultSelector() as selector:
            selector.register(self._process.stdout, selectors.EVENT_READ)
            line = self._process.stdout.readline() if selector.select(READY_SECONDS) else ""
        if not line.startswith("listening on "):
            raise RuntimeError(f"the daemon did not start: {(self._folder / 'daemon.log').read_text('utf-8')[-2_000:]}")
        self._client = connect(address, token="")

    def search(self, text: str, limit: int) -> list[Shown]:
        response = self._client.search(query=text, max_results=limit)
        if response.info.degradations:
            raise RuntimeError(f"degraded: {[each.message for each in response.info.degradations]}")
        return [Shown(each.path, each.start_line, each.end_line, each.snippet) for each in response.results]

    def processes(self) -> list[psutil.Process]:
        return [] if self._process is None else [psutil.Process(self._process.pid)]

    def stop(self) -> None:
        if self._client is not None:
            with contextlib.suppress(Exception):
                self._client.close()
        if self._process is not None:
            end_group(self._process)
        self._client = self._process = None

    def search_cold(self, text: str) -> list[Shown]:
        output = run((*MEMORYD, "search", *self._options, "--json", "--query", text), self._environment, self._folder)
        return [
            Shown(each["path"], each["startLine"], each["endLine"], each["snippet"])
            for each in json.loads(output)["results"]
        ]
