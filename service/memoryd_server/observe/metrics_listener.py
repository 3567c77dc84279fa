"""Where Prometheus fetches figures: plain HTTP, without a token, off unless an address is set."""

import threading
from wsgiref.simple_server import WSGIServer

from prometheus_client import start_http_server

from memoryd_server.errors import SettingsError
from memoryd_server.observe.metrics import Metrics


class MetricsListener:
    """Serves `metrics` at `host` and `port` from `start` to `stop`; port 0 is any free one."""

    def __init__(self, metrics: Metrics, host: str, port: int) -> None:
        self.metrics = metrics
        self._host = host
        self._port = port
        self._server: WSGIServer | None = None
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
            self._server, self._thread = start_http_server(self._port, self._host, self.metrics.registry)
        except OSError as error:
            why = error.strerror or str(error)
            raise SettingsError(
                f"cannot serve metrics at {self._host}:{self._port}: {why}; choose another memoryd.metrics.listen"
            ) from error

    def stop(self) -> None:
        """Serves no more. Stopping twice is fine; blocks for a moment."""
        server, self._server = self._server, None
        if server is not None:
            server.shutdown()
            server.server_close()
        if self._thread is not None:
            self._thread.join()
            self._thread = None
