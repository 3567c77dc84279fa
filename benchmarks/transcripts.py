"""Measure the first index of many session transcripts, and of one new message: `python benchmarks/transcripts.py`.

Half of the bytes are messages; the rest are results of tools, which are not indexed. `--full` uses 1 GB in 2,000 files
and takes some minutes; the default is a tenth of that. The long transcript always has 100 MB: a message is added, and
the time that a sync after a compaction takes to index it is measured, several times.

Prints JSON and writes it to benchmarks/results/transcripts.json.
"""

import argparse
import json
import statistics
import tempfile
import time
from pathlib import Path

from corpus import Prose
from daemon import DaemonProcess

from memoryd.client import MemorydClient
from memoryd.v1 import sync_event_pb2

MIB = 1 << 20
LONG_BYTES = 100 * MIB
APPENDS = 9
TARGETS = {"peak_rss_mib": 300.0, "append_ms": 500.0}
SETTINGS = {
    "agents": {
        "defaults": {
            "memorySearch": {
                "provider": "none",
                "experimental": {"sessionMemory": True},
                "sources": ["memory", "sessions"],
                "sync": {"onSearch": False, "watch": False},
            }
        }
    }
}


class Talk:
    """Records of a conversation. Paragraphs are repeated in another order, because generating prose is slow."""

    def __init__(self, seed: int) -> None:
        prose = Prose(seed)
        self._said = [" ".join(prose.sentence() for _ in range(6)) for _ in range(5_000)]
        self._answered = " ".join(prose.sentence() for _ in range(10))
        self._next = 0

    def record(self, role: str, text: str) -> str:
        """Return one line."""
        return json.dumps({"type": "message", "message": {"role": role, "content": [{"type": "text", "text": text}]}})

    def turn(self) -> str:
        """Return a message of the user, the result of a tool, and a message of the assistant."""
        self._next += 1
        first, second = (self._said[(self._next * step) % len(self._said)] for step in (7, 11))
        lines = (
            self.record("user", f"{first} ({self._next})"),
            self.record("toolResult", self._answered),
            self.record("assistant", second),
        )
        return "\n".join(lines) + "\n"

    def write(self, path: Path, size: int) -> None:
        """Write a transcript of about `size` bytes."""
        with path.open("w") as file:
            while file.tell() < size:
                file.write("".join(self.turn() for _ in range(20)))


def synced(client: MemorydClient, **request: object) -> float:
    began = time.perf_counter()
    with client.sync(**request, timeout=7_200) as events:
        for _ in events:
            pass
    return time.perf_counter() - began


def first_index(directory: Path, files: int, size: int) -> dict[str, float]:
    """Measure the first index of many transcripts."""
    daemon, client = begun(directory, lambda talk, folder: many(talk, folder, files, size))
    seconds = synced(client)
    status = client.status(timeout=60)
    result = {
        "files": files,
        "mib": round(files * size / MIB),
        "index_seconds": round(seconds, 1),
        "chunks": status.index.chunks,
        "index_mib": round(status.index.size_bytes / MIB),
        "peak_rss_mib": round(daemon.peak_rss_mib()),
    }
    client.close()
    daemon.stop()
    return result


def one_more_message(directory: Path) -> dict[str, float]:
    """Measure a long transcript that grows by one message at a time."""
    talk = Talk(2)
    daemon, client = begun(directory, lambda _, folder: talk.write(folder / "long.jsonl", LONG_BYTES))
    seconds = synced(client)
    compacted = {"trigger": sync_event_pb2.SYNC_TRIGGER_POST_COMPACTION, "transcript": "long.jsonl"}
    times = []
    for number in range(APPENDS):
        with (directory / "state/agents/main/sessions/long.jsonl").open("a") as file:
            file.write(talk.record("user", f"The quince{number} is ripe.") + "\n")
        times.append(1_000 * synced(client, **compacted))
        if not client.search(query=f"quince{number}").results:
            raise RuntimeError("a sync has ended, and the message is not found")
    result = {
        "mib": LONG_BYTES // MIB,
        "index_seconds": round(seconds, 1),
        "append_ms": round(statistics.median(times), 1),
        "append_most_ms": round(max(times), 1),
        "peak_rss_mib": round(daemon.peak_rss_mib()),
    }
    client.close()
    daemon.stop()
    return result


def many(talk: Talk, folder: Path, files: int, size: int) -> None:
    for number in range(files):
        talk.write(folder / f"session-{number:05}.jsonl", size)


def begun(directory: Path, write: object) -> tuple[DaemonProcess, MemorydClient]:
    workspace, state = directory / "workspace", directory / "state"
    (workspace / "memory").mkdir(parents=True)
    folder = state / "agents" / "main" / "sessions"
    folder.mkdir(parents=True)
    (state / "memoryd.json5").write_text(json.dumps(SETTINGS), "utf-8")
    write(Talk(1), folder)
    daemon = DaemonProcess(workspace, state)
    return daemon, daemon.start()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--full", action="store_true", help="use 1 GB in 2,000 files")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results" / "transcripts.json")
    options = parser.parse_args()
    runs = {}
    with tempfile.TemporaryDirectory() as directory:
        runs["first_index"] = first_index(Path(directory), 2_000 if options.full else 200, 512 << 10)
    with tempfile.TemporaryDirectory() as directory:
        runs["one_more_message"] = one_more_message(Path(directory))
    met = {
        name: {key: figures[key] <= target for key, target in TARGETS.items() if key in figures}
        for name, figures in runs.items()
    }
    options.out.write_text(json.dumps({"runs": runs, "targets": TARGETS, "met": met}, indent=2) + "\n", "utf-8")
    print(json.dumps({"runs": runs, "met": met}, indent=2))


if __name__ == "__main__":
    main()
