"""Every client repeats a call that fails with UNAVAILABLE, except the append that a repetition could do twice."""

from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import grpc
import pytest

from clients.languages import every_language
from clients.runner import Runner
from daemon_process import environment

ATTEMPTS = 5


class UnavailableDaemon(grpc.GenericRpcHandler):
    """Counts the calls by method, and fails each with UNAVAILABLE."""

    def __init__(self):
        self.calls = Counter()

    def service(self, details):
        def fail(_, context):
            self.calls[details.method.rpartition("/")[2]] += 1
            context.abort(grpc.StatusCode.UNAVAILABLE, "stopping")

        return grpc.unary_unary_rpc_method_handler(fail)


@pytest.fixture
def daemon(tmp_path):
    """A daemon that fails all calls, at the socket `m.sock`."""
    found = UnavailableDaemon()
    server = grpc.server(ThreadPoolExecutor(2), [found])
    server.add_insecure_port(f"unix:{tmp_path}/m.sock")
    server.start()
    yield found
    server.stop(None).wait()


@pytest.mark.slow
@pytest.mark.parametrize("language", every_language())
def test_only_the_append_of_records_is_not_retried(language, daemon, tmp_path):
    runner = Runner(language.or_skip().command, environment(tmp_path), tmp_path / "log")
    try:
        runner.connect(address=f"unix:{tmp_path}/m.sock")
        for request in ({}, {"expectedRecords": "0"}):
            pushed = {"sessionId": "s1", "records": ["{}"], **request}
            answer = runner.ask("call", method="session_append", request=pushed, timeout_ms=20_000)
            assert answer["error"]["code"] == "UNAVAILABLE", answer
        answer = runner.ask("call", method="append", request={"text": "x"}, timeout_ms=20_000)
        assert answer["error"]["code"] == "UNAVAILABLE", answer
    finally:
        runner.close()
    assert daemon.calls == {"SessionAppend": 2, "MemoryAppend": ATTEMPTS}
