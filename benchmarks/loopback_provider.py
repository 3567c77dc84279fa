"""A provider on loopback that speaks OpenAI's embeddings at next to no cost: a vector is drawn from the text's hash."""

import json
import threading
import time
import zlib
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import numpy as np


def vector(text: str, dimensions: int) -> list[float]:
    """A vector near one of a thousand centres: alike for texts that begin alike."""
    centre = np.random.default_rng(zlib.crc32(text[:8].encode()) % 1_000).standard_normal(dimensions)
    noise = np.random.default_rng(zlib.crc32(text.encode())).standard_normal(dimensions)
    mixed = centre + 0.7 * noise
    return [round(x, 5) for x in (mixed / np.linalg.norm(mixed)).tolist()]


class LoopbackProvider:
    """Serves from `start` to `stop`, in threads of this process."""

    def __init__(self, dimensions: int) -> None:
        self._lock = threading.Lock()
        self._busy_seconds = 0.0
        answered = self._answered

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            # Else the body waits for the caller's acknowledgement of the headers, 40 ms on Linux.
            disable_nagle_algorithm = True

            def do_POST(self) -> None:
                began = time.perf_counter()
                body = json.loads(self.rfile.read(int(self.headers["content-length"])))
                data = [{"index": i, "embedding": vector(text, dimensions)} for i, text in enumerate(body["input"])]
                reply = json.dumps({"data": data, "model": body["model"]}).encode()
                self.send_response(200)
                self.send_header("content-type", "application/json")
                self.send_header("content-length", str(len(reply)))
                self.end_headers()
                # Counted before the last byte leaves, so that whoever has the reply finds it counted.
                answered(time.perf_counter() - began)
                self.wfile.write(reply)

            def log_message(self, *arguments: object) -> None:
                """Keeps silent."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}/v1"

    @property
    def busy_seconds(self) -> float:
        """How long all calls until now took together, from the headers read to the reply made."""
        with self._lock:
            return self._busy_seconds

    def start(self) -> None:
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def stop(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    def _answered(self, seconds: float) -> None:
        with self._lock:
            self._busy_seconds += seconds
