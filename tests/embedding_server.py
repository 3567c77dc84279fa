"""A server on loopback that speaks OpenAI's embeddings, with faults in the order that a test asks for them.

A vector depends on the words of its text alone, so texts that share words are near each other.
"""

import json
import socket
import struct
import threading
import time
import zlib
from collections import deque
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

DIMENSIONS = 16


def vector(text, dimensions=DIMENSIONS):
    values = [0.01] * dimensions
    for word in text.lower().split():
        values[zlib.crc32(word.encode()) % dimensions] += 1.0
    return values


@dataclass
class Request:
    path: str
    headers: dict
    body: dict

    @property
    def texts(self):
        return self.body["input"]


@dataclass
class Fault:
    """One answer out of the ordinary: a status with a body, or what is done to the connection."""

    status: int = 200
    body: object = None
    headers: dict = field(default_factory=dict)
    delay_seconds: float = 0.0
    truncated: bool = False
    reset: bool = False
    change: object = None


class EmbeddingServer:
    """`faults` are used up one a request; `refuse(texts)` may return a fault at any time.

    `vector(text, dimensions)` makes a vector.
    """

    def __init__(self):
        self.requests = []
        self.faults = deque()
        self.refuse = lambda _texts: None
        self.vector = vector
        self.dimensions = DIMENSIONS
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            # Else the body waits for the caller's acknowledgement of the headers, 40 ms on Linux.
            disable_nagle_algorithm = True

            def do_POST(self):
                outer.answer(self)

            def log_message(self, *_arguments):
                pass

        class Server(ThreadingHTTPServer):
            def handle_error(self, *_arguments):
                """A caller that went away is no news."""

        self._server = Server(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()

    @property
    def url(self):
        return f"http://127.0.0.1:{self._server.server_address[1]}/v1"

    @property
    def texts(self):
        return [text for request in self.requests for text in request.texts]

    def close(self):
        self._server.shutdown()
        self._server.server_close()

    def answer(self, handler):
        body = json.loads(handler.rfile.read(int(handler.headers["content-length"])))
        request = Request(handler.path, {key.lower(): value for key, value in handler.headers.items()}, body)
        self.requests.append(request)
        fault = self.faults.popleft() if self.faults else self.refuse(request.texts) or Fault()
        time.sleep(fault.delay_seconds)
        reply = self.reply(request) if fault.body is None and fault.status == 200 else fault.body
        if fault.change:
            reply = fault.change(reply)
        data = reply if isinstance(reply, bytes) else json.dumps(reply).encode()
        self.send(handler, fault, data)

    def reply(self, request):
        dimensions = request.body.get("dimensions", self.dimensions)
        data = [
            {"object": "embedding", "index": place, "embedding": self.vector(text, dimensions)}
            for place, text in enumerate(request.texts)
        ]
        tokens = sum(len(text.split()) for text in request.texts)
        usage = {"prompt_tokens": tokens, "total_tokens": tokens}
        return {"object": "list", "data": data, "model": request.body["model"], "usage": usage}

    def send(self, handler, fault, data):
        handler.send_response(fault.status)
        for key, value in {"content-type": "application/json", **fault.headers}.items():
            handler.send_header(key, value)
        sent = data[: len(data) // 2] if fault.truncated or fault.reset else data
        handler.send_header("content-length", str(len(data) if fault.reset else len(sent)))
        handler.end_headers()
        handler.wfile.write(sent)
        if fault.reset:
            handler.wfile.flush()
            handler.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            handler.connection.close()
            handler.close_connection = True


@contextmanager
def embedding_server():
    server = EmbeddingServer()
    try:
        yield server
    finally:
        server.close()
