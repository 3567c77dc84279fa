"""Where Prometheus fetches figures: plain HTTP, without a token, off unless an address is set."""

import socket
import threading
from socketserver import ThreadingMixIn
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

from prometheus_client import make_wsgi_app

from memoryd_server.errors import SettingsError
from memoryd_server.observe.metrics import Metrics

# Whoever comes while so many are served is turned away at once.
MOST_AT_ONCE = 8

# A caller that says nothing for so long is left.
PATIENCE_SECONDS = 10.0


class MetricsListener:
    """Serves `metrics` at `host` and `port` from `start` to `stop`; port 0 is any free one."""

    def __init__(self, metrics: Metrics, host: str, port: int) -> None:
        self.metrics = metrics
        self._host = host
        self._port = port
        self._server: _Server | None = None
        self._thread: threading.Thread | None = None

    @property
    def url(self) -> str:
        """Where figures are fetched; empty while it does not serve."""
        if self._server is None:
            return ""
        host = f"[{self._host}]" if ":" in self._host else self._host
        return f"http://{host}:{self._server.server_port}/metrics"

    def start(self) -> None:
        """Begins to serve, on a thread of its own.

        Raises:
            SettingsError: the address cannot be used.
        """
        try:
            self._server = _server(self._host, self._port)
        except OSError as error:
            why = error.strerror or str(error)
            raise SettingsError(
                f"cannot serve metrics at {self._host}:{self._port}: {why}; choose another memoryd.metrics.listen"
            ) from error
        self._server.set_app(make_wsgi_app(self.metrics.registry))
        self._thread = threading.Thread(target=self._server.serve_forever, name="metrics", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Serves no more. Stopping twice is fine; blocks for a moment."""
        server, self._server = self._server, None
        if server is not None:
            server.shutdown()
            server.server_close()
        if self._thread is not None:
            self._thread.join()
            self._thread = None


class _Server(ThreadingMixIn, WSGIServer):
    """A thread a caller, of whom there are few."""

    daemon_threads = True
    # Ending must not wait for a caller that says nothing.
    block_on_close = False

    def __init__(self, family: socket.AddressFamily, address: tuple[str, int]) -> None:
        self.address_family = family
        self._places = threading.BoundedSemaphore(MOST_AT_ONCE)
        super().__init__(address, _Handler)

    def server_bind(self) -> None:
        # WSGIServer's own asks the name server for the machine's name, which may take long.
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.socket.bind(self.server_address)
        self.server_address = self.socket.getsockname()
        self.server_name, self.server_port = "memoryd", self.server_address[1]
        self.setup_environ()

    def process_request(self, request: Any, client_address: Any) -> None:
        if not self._places.acquire(blocking=False):
            self.shutdown_request(request)
            return
        try:
            super().process_request(request, client_address)
        except BaseException:
            # The system has no thread left: the place must not stay taken.
            self._places.release()
            raise

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._places.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Nothing: a caller that left or said nothing is no news."""


class _Handler(WSGIRequestHandler):
    timeout = PATIENCE_SECONDS

    def log_message(self, *_: Any) -> None:
        """Nothing: the daemon's log has events of its own."""


def _server(host: str, port: int) -> _Server:
    family, *_, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
    return _Server(family, (str(address[0]), int(address[1])))
