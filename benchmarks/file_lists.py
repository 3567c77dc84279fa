"""Measure how long `ListFiles` of a large agent delays other calls: `python benchmarks/file_lists.py`.

One client reads the beginning of a note repeatedly, while another client lists all files, page by page, with
a pause between lists. Measured are the time of the first page, which compares all files with the index, and of the
further pages, and the longest times of the reads beside the lists and without them. Prints JSON and writes it to
benchmarks/results/file_lists.json.
"""

import argparse
import json
import statistics
import tempfile
import threading
import time
from pathlib import Path
from typing import Self

from corpus import write
from daemon import DaemonProcess
from keyword_path import sync

from memoryd.client import MemorydClient, connect

NOTE_BYTES = 300
READ_PAUSE_SECONDS = 0.002
# Files are compared with the index again for a first page.
LIST_PAUSE_SECONDS = 3.0
PAGE = 1_000
CALL_SECONDS = 30.0


class Reads:
    """The times of reads, in seconds, while the block runs."""

    def __init__(self, address: str) -> None:
        self._address = address
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.seconds: list[float] = []

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        with connect(self._address) as client:
            while not self._stop.wait(READ_PAUSE_SECONDS):
                began = time.perf_counter()
                client.get(path="memory/000/note-00001.md", line_count=5)
                self.seconds.append(time.perf_counter() - began)

    def figures(self) -> dict[str, float]:
        """The median, the 99th percentile and the three longest, in milliseconds."""
        ordered = sorted(self.seconds)
        return {
            "reads": len(ordered),
            "median_ms": round(1_000 * statistics.median(ordered), 2),
            "p99_ms": round(1_000 * ordered[int(len(ordered) * 0.99)], 2),
            "longest_ms": [round(1_000 * seconds, 1) for seconds in ordered[-3:]],
        }


def list_all(client: MemorydClient) -> list[float]:
    """The seconds of each page of a list."""
    token, times = "", []
    while True:
        began = time.perf_counter()
        page = client.list_files(page_size=PAGE, page_token=token, timeout=CALL_SECONDS)
        times.append(time.perf_counter() - began)
        token = page.next_page_token
        if not token:
            return times


def main() -> None:
    """Measure one daemon."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--files", type=int, default=30_000)
    parser.add_argument("--lists", type=int, default=8)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results" / "file_lists.json")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        workspace, state = Path(directory, "workspace"), Path(directory, "state")
        state.mkdir()
        write(workspace, options.files, NOTE_BYTES)
        (state / "memoryd.json5").write_text('{agents: {defaults: {memorySearch: {provider: "none"}}}}', "utf-8")
        daemon = DaemonProcess(workspace, state)
        with daemon.start() as client:
            sync(client)
            time.sleep(LIST_PAUSE_SECONDS)
            with Reads(daemon.address) as alone:
                time.sleep(options.lists * LIST_PAUSE_SECONDS)
            first, further = [], []
            with Reads(daemon.address) as beside:
                for _ in range(options.lists):
                    times = list_all(client)
                    first.append(times[0])
                    further.extend(times[1:])
                    time.sleep(LIST_PAUSE_SECONDS)
        daemon.stop()
    report = {
        "files": options.files,
        "lists": options.lists,
        "first_page_s": round(statistics.median(first), 3),
        "further_page_s": round(statistics.median(further), 4),
        "reads_alone": alone.figures(),
        "reads_beside_lists": beside.figures(),
    }
    options.out.write_text(json.dumps(report, indent=2) + "\n", "utf-8")
    print(json.dumps(report, indent=2))


if __name__ == "__main__":
    main()
