"""`memoryd doctor` on the address of HTTP: served by this daemon, by another program, or by none."""

import socket
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from memoryd_server.doctor.checks import CheckResult
from memoryd_server.doctor.network import check_http

OK, WARNING, FAILED = CheckResult.OK, CheckResult.WARNING, CheckResult.FAILED
HOST = "127.0.0.1"


def check(port, verdict, mentions, *, running, tls=False):
    found = check_http(HOST, port, tls=tls, running=running, timeout_seconds=1.0)
    told = f"{found.detail} {found.meaning} {found.advice}"
    assert found.verdict is verdict, told
    assert mentions in told


@contextmanager
def program(body, status=200):
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(status)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_):
            pass

    with HTTPServer((HOST, 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield server.server_port
        finally:
            server.shutdown()
            thread.join()


def test_an_address_without_a_program():
    with socket.create_server((HOST, 0)) as taken:
        port = taken.getsockname()[1]
    check(port, OK, "no program listens", running=False)
    check(port, WARNING, "restart the daemon", running=True)
    check(0, OK, "serve-http", running=True)


def test_an_address_that_answers_as_memoryd_does():
    with program(b"ok\n") as port:
        check(port, OK, "/healthz answers", running=True)
        check(port, FAILED, "does not start", running=False)
        check(port, FAILED, "memoryd.http.listen", running=False)


@pytest.mark.slow
def test_another_program():
    with program(b"hello", 404) as port:
        check(port, FAILED, "answers at http://127.0.0.1", running=True)
    with program(b"a" * 1_000_000) as port:
        check(port, FAILED, "another program", running=True)
    with socket.create_server((HOST, 0)) as silent:
        check(silent.getsockname()[1], FAILED, "does not answer", running=True)
