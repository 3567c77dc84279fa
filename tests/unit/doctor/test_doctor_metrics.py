"""`memoryd doctor` on the metrics address: served by this daemon, by another program, or by none."""

import socket
import threading
from contextlib import closing, contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest
from prometheus_client import CollectorRegistry, Gauge, generate_latest

from memoryd_server import __version__
from memoryd_server.doctor.checks import CheckResult
from memoryd_server.doctor.network import check_metrics
from memoryd_server.observe.metrics import Metrics, MetricsListener, MetricsSnapshot

OK, WARNING, FAILED = CheckResult.OK, CheckResult.WARNING, CheckResult.FAILED
HOST = "127.0.0.1"


def check(port, verdict, mentions, *, running, host=HOST, **limits):
    found = check_metrics(host, port, running=running, **limits)
    told = f"{found.detail} {found.meaning} {found.advice}"
    assert found.verdict is verdict, told
    assert mentions in told


@contextmanager
def memoryd(host=HOST):
    """The daemon's own listener, and its port."""
    listener = MetricsListener(Metrics(MetricsSnapshot), host, 0)
    listener.start()
    try:
        yield int(listener.url.rpartition(":")[2].removesuffix("/metrics"))
    finally:
        listener.stop()


@contextmanager
def somebody(body, status=200):
    """Another program that answers every GET so; `body` is bytes, or endlessly many where it is a list."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(status)
            self.end_headers()
            try:
                while isinstance(body, list):
                    self.wfile.write(body[0])
                self.wfile.write(body)
            except OSError:
                self.close_connection = True

        def log_message(self, *_):
            pass

    with closing_server(HTTPServer((HOST, 0), Handler)) as port:
        yield port


@contextmanager
def closing_server(server):
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield server.server_port
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@contextmanager
def listening():
    """Whoever takes callers and says nothing."""
    with closing(socket.create_server((HOST, 0))) as server:
        yield server.getsockname()[1]


@pytest.fixture
def free_port():
    with closing(socket.create_server((HOST, 0))) as server:
        return server.getsockname()[1]


def test_memoryd_s_figures_are_well():
    with memoryd() as port:
        check(port, OK, f"metrics of memoryd {__version__}", running=True)
        check(port, OK, f"http://{HOST}:{port}/metrics", running=True)


def test_an_address_of_every_interface_is_dialled_on_this_machine():
    with memoryd("0.0.0.0") as port:
        check(port, OK, f"http://{HOST}:{port}/metrics", running=True, host="0.0.0.0")


def test_a_proxy_of_the_environment_has_no_part_in_it(monkeypatch, free_port):
    monkeypatch.setenv("http_proxy", f"http://{HOST}:{free_port}")
    with memoryd() as port:
        check(port, OK, "metrics of memoryd", running=True)


def test_no_listener_is_a_warning_while_the_daemon_runs(free_port):
    check(free_port, WARNING, "restart the daemon", running=True)


def test_no_listener_is_fine_while_the_daemon_is_stopped(free_port):
    check(free_port, OK, "no program listens at", running=False)


def test_another_memoryd_is_in_the_way_of_one_that_is_to_start():
    with memoryd() as port:
        check(port, FAILED, f"another memoryd, {__version__}", running=False)


def figures_of_another_program():
    registry = CollectorRegistry()
    Gauge("node_load", "The load.", registry=registry).set(1)
    return generate_latest(registry)


OTHERS = {
    "a page": (b"<html><body>welcome</body></html>", 200, "no metrics in Prometheus's format"),
    "nothing": (b"", 200, "those of another program"),
    "another program's figures": (figures_of_another_program(), 200, "those of another program"),
    "no such page": (b"", 404, "HTTP 404"),
    "a password": (b"", 401, "HTTP 401"),
    "a redirect": (b"", 302, "HTTP 302"),
    "bytes": (bytes(range(256)), 200, "no metrics in Prometheus's format"),
}


@pytest.mark.parametrize("running", [True, False])
@pytest.mark.parametrize(("body", "status", "why"), OTHERS.values(), ids=OTHERS)
def test_another_program_at_the_address_is_reported_with_its_consequence(body, status, why, running):
    with somebody(body, status) as port:
        check(port, FAILED, why, running=running)
        check(port, FAILED, "choose another memoryd.metrics.listen", running=running)


def test_an_endless_response_is_cut_off():
    with somebody([b"x 1\n" * 1000]) as port:
        check(port, FAILED, "more than 100000 bytes", running=True, max_bytes=100_000)


def test_a_silent_listener_is_given_up():
    with listening() as port:
        check(port, WARNING, "sends no metrics", running=True, timeout_seconds=0.3)
        check(port, FAILED, "does not start", running=False, timeout_seconds=0.3)


def test_any_free_port_cannot_be_tried():
    check(0, OK, "serve-metrics", running=True)
