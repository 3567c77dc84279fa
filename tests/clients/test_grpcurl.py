"""grpcurl against a real daemon: what an operator types, for every RPC of the contract."""

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from certificates import Authority, needs_openssl
from daemon_process import serving

REPOSITORY = Path(__file__).parents[2]
SERVICE = "memoryd.v1.MemoryService"


def grpcurl_command():
    local = REPOSITORY / ".tools" / "bin" / "grpcurl"
    return str(local) if local.exists() else shutil.which("grpcurl")


pytestmark = pytest.mark.skipif(
    grpcurl_command() is None, reason="grpcurl is not installed; `make grpcurl` installs it"
)


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    root = tmp_path_factory.mktemp("workspace")
    (root / "memory").mkdir()
    (root / "MEMORY.md").write_text("# Lasting\n\nThe harbour master is called Ilse.\n", "utf-8")
    home = tmp_path_factory.mktemp("home")
    with serving(root, tmp_path_factory.mktemp("state"), home=home) as daemon:
        yield daemon


@pytest.fixture
def grpcurl(served):
    def call(*arguments, data=None):
        given = ["-d", json.dumps(data)] if data is not None else []
        command = [grpcurl_command(), "-plaintext", "-max-time", "20", *given, served.address, *arguments]
        return subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)

    return call


def check(done, *expected):
    assert done.returncode == 0, done.stderr
    for text in expected:
        assert text in done.stdout
    return done


def test_services_are_listed(grpcurl):
    check(grpcurl("list"), SERVICE, "grpc.health.v1.Health")


def test_the_service_and_its_messages_are_described(grpcurl):
    check(
        grpcurl("describe", SERVICE), "rpc MemorySearch", "rpc ListFiles", "returns ( stream .memoryd.v1.SyncResponse"
    )
    check(grpcurl("describe", "memoryd.v1.SearchResult"), "snippet_start_line")


@pytest.mark.parametrize(
    ("method", "data", "expected"),
    [
        ("Sync", {}, ['"started"', '"completed"']),
        ("Sync", {"dry_run": True}, ['"estimate"']),
        ("MemorySearch", {"query": "who is the harbour master?"}, ["Ilse", "MEMORY.md#L1-L4"]),
        ("MemoryRecall", {"text": "who is the harbour master?"}, ["relevant-memories", "Ilse"]),
        ("MemoryGet", {"path": "MEMORY.md"}, ["The harbour master is called Ilse.", '"total_lines": 4']),
        ("Status", {}, ['"INDEX_STATE_READY"', '"SOURCE_MEMORY"']),
        ("FlushDecision", {"total_tokens": 190_000}, ['"flush": true', "NO_REPLY"]),
        ("ListAgents", {}, ['"agent_id": "main"']),
        ("ListFiles", {}, ['"MEMORY.md"', '"FILE_STATE_INDEXED"']),
        ("MemoryAppend", {"text": "Ilse has a dog.", "idempotency_key": "dog"}, ['"index_revision"']),
    ],
)
def test_an_rpc_answers(grpcurl, method, data, expected):
    check(grpcurl(f"{SERVICE}/Sync", data={}))
    check(grpcurl(f"{SERVICE}/{method}", data=data), *expected)


def test_a_watch_shows_the_state_immediately(served):
    command = [grpcurl_command(), "-plaintext", "-d", "{}", served.address, f"{SERVICE}/WatchIndex"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    seen = ""
    while "index_revision" not in seen:
        line = process.stdout.readline()
        assert line
        seen += line
    process.terminate()
    process.wait(10)
    process.stdout.close()
    assert "INDEX_STATE_" in seen


@pytest.mark.parametrize(
    ("method", "data", "expected"),
    [
        ("MemorySearch", {"query": " "}, ["InvalidArgument", "query: must not be blank", "field_violations"]),
        ("MemoryGet", {"path": "../../etc/passwd"}, ["PermissionDenied", "PATH_NOT_ALLOWED"]),
        ("MemoryGet", {"path": "memory/none.md"}, ["NotFound", "FILE_NOT_FOUND"]),
        ("Status", {"agent_id": "nobody"}, ["NotFound", "configured are: main"]),
        ("MemorySearch", {"query": "x", "mode": "SEARCH_MODE_VECTOR"}, ["FailedPrecondition", "KEYWORD or HYBRID"]),
    ],
)
def test_a_mistake_is_explained(grpcurl, method, data, expected):
    done = grpcurl(f"{SERVICE}/{method}", data=data)
    assert done.returncode != 0
    for text in expected:
        assert text in done.stderr


def test_health_is_serving(grpcurl):
    check(grpcurl("grpc.health.v1.Health/Check", data={}), '"SERVING"')
    check(grpcurl("grpc.health.v1.Health/Check", data={"service": SERVICE}), '"SERVING"')


@pytest.mark.slow
@needs_openssl
def test_over_tls_a_token_opens_reflection_health_and_calls(tmp_path):
    authority = Authority(tmp_path)
    certificate, key = authority.issue("daemon")
    (tmp_path / "memoryd.json5").write_text(
        json.dumps({"memoryd": {"tls": {"certFile": str(certificate), "keyFile": str(key)}}}), "utf-8"
    )
    with serving(tmp_path / "workspace", tmp_path, home=tmp_path, listen="127.0.0.1:0") as daemon:
        token = (tmp_path / "memoryd.token").read_text("utf-8").strip()

        def call(*arguments, header=f"authorization: Bearer {token}"):
            command = [grpcurl_command(), "-cacert", str(authority.ca), "-H", header, "-max-time", "20"]
            command += [daemon.address, *arguments]
            return subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)

        check(call("list"), SERVICE)
        check(call("grpc.health.v1.Health/Check"), '"SERVING"')
        check(call(f"{SERVICE}/ListAgents"), '"main"')
        for arguments in (("list",), ("grpc.health.v1.Health/Check",), (f"{SERVICE}/ListAgents",)):
            done = call(*arguments, header="authorization: Bearer wrong")
            assert done.returncode != 0
            assert "Unauthenticated" in done.stderr or "bearer token" in done.stderr
