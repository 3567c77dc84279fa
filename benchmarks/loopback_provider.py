"""A provider on loopback that speaks OpenAI's embeddings at next to no cost: a vector is drawn from the text's hash."""

import json
import threading
import zlib
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import numpy as np


def vector(text: str, dimensions: int) -> list[float]:
    """A vector near one of a thousand centres: alike for texts that begin alike."""
    centre = np.random.default_rng(zlib.crc32(text[:8].encode()) % 1_000).standard_normal(dimensions)
    noise = np.random.default_rng(zlib.crc32(text.encode())).standard_normal(dimensions)
    mixed = centre + 0.7 * noise
    return [round(float(x), 5) for x in mixed / np.linalg.norm(mixed)]


class LoopbackProvider:
    """Serves from `start` to `stop`, in threads of this process."""

    def __init__(self, dimensions: int) -> None:
        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["content-length"])))
                data = [{"index": i, "embedding": vector(text, dimensions)} for i, text in enumerate(body["input"])]
                reply = json.dumps({"data": data, "model": body["model"]}).encode()
                self.send_response(200)
                self.send_header("content-type", "application/json")
                self.send_header("content-length", str(len(reply)))
                self.end_headers()
                self.wfile.write(reply)

            def log_message(self, *arguments: object) -> None:
                """Keeps silent."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}/v1"

    def start(self) -> None:
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def stop(self) -> None:
        self._server.shutdown()
        self._server.server_close()
