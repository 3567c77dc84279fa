"""A fast embedding provider on loopback with OpenAI's API: vectors are derived from the hash of the text.

Its responses can be delayed to simulate a remote provider.
"""

import json
import threading
import time
import zlib
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import numpy as np


def vector(text: str, dimensions: int) -> list[float]:
    """Return a vector near one of a thousand centres: similar for texts with the same beginning."""
    centre = np.random.default_rng(zlib.crc32(text[:8].encode()) % 1_000).standard_normal(dimensions)
    noise = np.random.default_rng(zlib.crc32(text.encode())).standard_normal(dimensions)
    mixed = centre + 0.7 * noise
    return [round(x, 5) for x in (mixed / np.linalg.norm(mixed)).tolist()]


class PreparedVectors:
    """A few hundred vectors as JSON, one of which is chosen for each text; fast enough to measure only the client."""

    def __init__(self, dimensions: int, count: int = 256) -> None:
        self._vectors = [json.dumps(vector(str(number), dimensions)) for number in range(count)]

    def __call__(self, text: str) -> str:
        return self._vectors[zlib.crc32(text.encode()) % len(self._vectors)]


class LoopbackProvider:
    """Serves from `start` to `stop`, in threads of this process; `make` returns the vector of a text as JSON.

    Each response is delayed by `latency_seconds`. The system chooses the port if it is 0.
    """

    def __init__(
        self,
        dimensions: int,
        latency_seconds: float = 0.0,
        make: Callable[[str], str] | None = None,
        *,
        port: int = 0,
    ) -> None:
        self._lock = threading.Lock()
        self._busy_seconds = 0.0
        self._under_way = 0
        self.requests = self.texts = self.most_at_once = 0
        begun, answered = self._begun, self._answered
        make = make or (lambda text: json.dumps(vector(text, dimensions)))

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            # Otherwise the body waits for the acknowledgement of the headers, 40 ms on Linux.
            disable_nagle_algorithm = True

            def do_POST(self) -> None:
                began = time.perf_counter()
                body = json.loads(self.rfile.read(int(self.headers["content-length"])))
                begun(len(body["input"]))
                data = ",".join(f'{{"index":{i},"embedding":{make(text)}}}' for i, text in enumerate(body["input"]))
                reply = f'{{"data":[{data}],"model":{json.dumps(body["model"])}}}'.encode()
                time.sleep(latency_seconds)
                self.send_response(200)
                self.send_header("content-type", "application/json")
                self.send_header("content-length", str(len(reply)))
                self.end_headers()
                # Count the call before sending the last byte, so that the receiver of the response finds it counted.
                answered(time.perf_counter() - began)
                self.wfile.write(reply)

            def log_message(self, *arguments: object) -> None:
                """Log nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
        self._server.daemon_threads = True

    @property
    def port(self) -> int:
        return int(self._server.server_address[1])

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/v1"

    @property
    def busy_seconds(self) -> float:
        """Return the total time of all calls, from reading the headers to creating the response."""
        with self._lock:
            return self._busy_seconds

    def start(self) -> None:
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def stop(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    def _begun(self, texts: int) -> None:
        with self._lock:
            self.requests += 1
            self.texts += texts
            self._under_way += 1
            self.most_at_once = max(self.most_at_once, self._under_way)

    def _answered(self, seconds: float) -> None:
        with self._lock:
            self._busy_seconds += seconds
            self._under_way -= 1
