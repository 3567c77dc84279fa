"""HTTP on loopback: routes, faults and counts. Each provider's JSON is in its own file."""

import json
import re
import socket
import struct
import threading
import time
from collections import Counter, deque
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qsl, urlsplit

from fake_providers import control
from fake_providers.faults import Fault, FaultsOfEveryProvider, Refused
from fake_providers.words import DIMENSIONS, vector


@dataclass
class Request:
    """One request; `body` is its JSON, or the bytes where it is none."""

    method: str
    path: str
    query: dict
    headers: dict
    body: object
    texts: list


class FakeServer(FaultsOfEveryProvider):
    """`faults` are used up one a request; `refuse(texts)` may return a fault at any time.

    `keys` are those that are accepted, all where there are none. `vector(text, dimensions)` makes a vector,
    `dimensions` long unless a request says otherwise. One request may hold `most_items` texts. `requests` keeps every
    request in order, `asked` counts how often each text was to be embedded.
    """

    provider = ""
    prefix = "/v1"
    model = ""
    native_dimensions = DIMENSIONS
    most_items = 2048
    key_required = True

    def __init__(self, keys=(), port=0):
        self.keys = set(keys)
        self.requests = []
        self.asked = Counter()
        self.faults = deque()
        self.refuse = lambda _texts: None
        self.vector = vector
        self.dimensions = self.native_dimensions
        self.open_batches()
        self._lock = threading.Lock()
        self._scheme = "http"
        self._name = ""
        self._server = _Server(("127.0.0.1", port), _handler(self))
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()

    @property
    def url(self):
        """What a user would configure as the base URL."""
        return f"{self._scheme}://{self._name or self.address}{self.prefix}"

    @property
    def address(self):
        """Host and port."""
        return f"127.0.0.1:{self._server.server_address[1]}"

    def behind_proxy(self, name):
        """From now on, `url` has this host name, which a client reaches with this server as its proxy: set the
        environment variable that is returned, and its value.
        """
        self._name = name
        return "http_proxy", f"http://{self.address}"

    @property
    def texts(self):
        return [text for request in self.requests for text in request.texts]

    def speak_tls(self, context):
        """From now on; the connection is not made sure of before a request comes, so that a failure ends it alone."""
        self._scheme = "https"
        listener = self._server.socket
        self._server.socket = context.wrap_socket(listener, server_side=True, do_handshake_on_connect=False)

    def close(self):
        self._server.shutdown()
        self._server.server_close()

    # What a provider's own class says.

    def routes(self):
        """(method, pattern of the path beneath the host, what answers it with JSON)."""
        raise NotImplementedError

    def error(self, status, message):
        """The body of an error."""
        raise NotImplementedError

    def texts_of(self, body):
        """The texts in the body of a request, which may be nonsense."""
        texts = body.get("input")
        return texts if isinstance(texts, list) else [texts] if isinstance(texts, str) else []

    def key_of(self, request):
        return request.headers.get("authorization", "").removeprefix("Bearer ").strip()

    def check_key(self, key):
        if not self.accepts(key):
            raise Refused(self.denied())

    def open_batches(self):
        """Gets ready for batch jobs, where there are any."""

    # What all share.

    def refused(self, status, message, **parts):
        return Refused(Fault(status, self.error(status, message, **parts)))

    def accepts(self, key):
        return key in self.keys if self.keys else bool(key) or not self.key_required

    def vectors(self, texts, fault, dimensions=None):
        made = [self.vector(text, dimensions or self.dimensions) for text in texts]
        return fault.vectors(made) if fault.vectors else made

    def tokens(self, texts):
        return sum(len(text.split()) for text in texts)

    def answer(self, handler):
        request = self._read(handler)
        if control.is_control(request.path):
            _send(handler, Fault(), json.dumps(control.answer(self, request)).encode())
            return
        with self._lock:
            self.requests.append(request)
            self.asked.update(request.texts)
            fault = self.faults.popleft() if self.faults else None
        # Outside the lock: a test may keep some requests waiting.
        fault = fault or self.refuse(request.texts) or Fault()
        time.sleep(fault.delay_seconds)
        reply = fault.body
        if fault.body is None and fault.status == 200:
            try:
                reply = self._reply(request, fault)
            except Refused as refused:
                fault, reply = refused.fault, refused.fault.body
        if fault.change:
            reply = fault.change(reply)
        _send(handler, fault, reply if isinstance(reply, bytes) else json.dumps(reply).encode())

    def _read(self, handler):
        parts = urlsplit(handler.path)
        content = handler.rfile.read(int(handler.headers.get("content-length", 0)))
        try:
            body = json.loads(content)
        except ValueError:
            body = content
        headers = {key.lower(): value for key, value in handler.headers.items()}
        # Asked through a proxy, the path is a whole address: tests want to see that.
        path = handler.path if parts.scheme else parts.path
        texts = self.texts_of(body) if isinstance(body, dict) else []
        return Request(handler.command, path, dict(parse_qsl(parts.query)), headers, body, texts)

    def _reply(self, request, fault):
        path = urlsplit(request.path).path
        for method, pattern, function in self.routes():
            found = re.fullmatch(pattern, path)
            if found and method == request.method:
                self.check_key(self.key_of(request))
                return function(request, fault, *found.groups())
        raise self.refused(404, f"Unknown request URL: {request.method} {path}.")

    def must_be_known(self, body, fields, complain):
        """Refuses the first field of a body that is not among `fields`."""
        for field in body:
            if field not in fields:
                raise complain(field)

    def list_of_texts(self, value, complain):
        """The texts of an `input`: one text, or several; none of them empty, no more than `most_items`."""
        texts = [value] if isinstance(value, str) else value
        if not isinstance(texts, list) or not texts or not all(isinstance(t, str) and t for t in texts):
            raise complain()
        if len(texts) > self.most_items:
            raise self.too_many(len(texts))
        return texts


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, *_arguments):
        """A caller that went away is no news."""


def _handler(server):
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        # Else the body waits for the caller's acknowledgement of the headers, 40 ms on Linux.
        disable_nagle_algorithm = True

        def do_POST(self):
            server.answer(self)

        do_GET = do_POST  # noqa: N815 -- the library's names
        do_DELETE = do_POST  # noqa: N815

        def log_message(self, *_arguments):
            pass

    return Handler


def _send(handler, fault, data):
    handler.send_response(fault.status)
    for key, value in {"content-type": "application/json", **fault.headers}.items():
        handler.send_header(key, value)
    sent = data[: len(data) // 2] if fault.truncated or fault.reset else data
    handler.send_header("content-length", str(len(data) if fault.reset else len(sent)))
    handler.end_headers()
    if fault.seconds_per_byte:
        for byte in sent:
            handler.wfile.write(bytes([byte]))
            time.sleep(fault.seconds_per_byte)
    else:
        handler.wfile.write(sent)
    if fault.reset:
        handler.wfile.flush()
        handler.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        handler.connection.close()
        handler.close_connection = True
