"""memsearch: indexed by `memsearch index`, asked by its Python API in one process."""

import json
import selectors
import subprocess
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import psutil
from commands import end_group, private_environment, run
from peer import Mode, Setup, Shown
from python_tools import MEMSEARCH

WORKER = Path(__file__).parent / "memsearch_worker.py"
ANSWER_SECONDS = 120


class MemsearchPeer:
    """Hybrid search in Milvus Lite with the default settings, except the embedding provider."""

    name = "memsearch"
    modes: tuple[Mode, ...] = ("vectors",)
    interface = "Python API in a process that loads it once"
    remarks = (
        "It has no search without embeddings.",
        "The reranker is not used; it is off by default and downloaded separately.",
    )

    def __init__(self) -> None:
        self._worker: subprocess.Popen[str] | None = None

    @property
    def version(self) -> str:
        return MEMSEARCH.version

    def set_up(self, setup: Setup) -> None:
        MEMSEARCH.require()
        self._folder, self._notes = setup.folder, setup.notes
        self._home = setup.folder / ".memsearch"
        self._environment = private_environment(setup.folder, MEMSEARCH_DIR=str(self._home))
        self._embedding = {
            "provider": "openai", "model": setup.embedding_model, "base_url": setup.embeddings_url, "api_key": "none",
        }  # fmt: skip
        lines = (f"{key} = {json.dumps(value)}\n" for key, value in self._embedding.items())
        self._home.mkdir()
        (self._home / "config.toml").write_text("[embedding]\n" + "".join(lines), "utf-8")

    def index(self) -> None:
        run((MEMSEARCH.command, "index", self._notes), self._environment, self._folder)
        # The command also succeeds if it skips notes that it cannot index.
        state = json.loads((self._home / ".index-state.json").read_text("utf-8"))
        if state["status"] != "ok":
            raise RuntimeError(state["last_error"])

    def start(self) -> None:
        arguments = {f"embedding_{key}": value for key, value in self._embedding.items()}
        arguments["paths"] = [str(self._notes)]
        with self._log.open("ab") as log:
            self._worker = subprocess.Popen(
                [MEMSEARCH.python, WORKER, json.dumps(arguments)],
                env=self._environment, cwd=self._folder, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log,
                text=True, start_new_session=True,
            )  # fmt: skip
        self._answer()

    def search(self, text: str, limit: int) -> list[Shown]:
        self._worker.stdin.write(json.dumps({"text": text, "limit": limit}) + "\n")
        self._worker.stdin.flush()
        answer = self._answer()
        if "error" in answer:
            raise RuntimeError(answer["error"])
        return self._shown(answer["results"])

    def processes(self) -> list[psutil.Process]:
        return [] if self._worker is None else [psutil.Process(self._worker.pid)]

    def stop(self) -> None:
        if self._worker is not None:
            end_group(self._worker)
        self._worker = None

    def search_cold(self, text: str) -> list[Shown]:
        command = (MEMSEARCH.command, "search", "--json-output", "--top-k", "6", "--", text)
        return self._shown(json.loads(run(command, self._environment, self._folder)))

    @property
    def _log(self) -> Path:
        return self._folder / "worker.log"

    def _answer(self) -> dict[str, Any]:
        """Return the next line of the worker, which writes one for each line that it reads."""
        with selectors.DefaultSelector() as selector:
            selector.register(self._worker.stdout, selectors.EVENT_READ)
            line = self._worker.stdout.readline() if selector.select(ANSWER_SECONDS) else ""
        if not line:
            raise RuntimeError(f"the worker did not answer: {self._log.read_text('utf-8', 'replace')[-2_000:].strip()}")
        return json.loads(line)

    def _shown(self, results: Iterable[Mapping[str, Any]]) -> list[Shown]:
        notes = self._notes.resolve()
        return [
            Shown(
                Path(each["source"]).relative_to(notes).as_posix(),
                each["start_line"],
                each["end_line"],
                each["content"],
            )
            for each in results
        ]
