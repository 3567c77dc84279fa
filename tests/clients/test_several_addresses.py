"""A client of several addresses distributes its calls over the daemons that answer, in every language."""

import shutil
import subprocess
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing

import grpc
import pytest

from certificates import needs_openssl
from clients.daemon_fixture import ClientsDaemon
from clients.languages import LANGUAGES, every_language
from clients.runner import Runner
from daemon_process import environment
from waiting import wait_until

pytestmark = [needs_openssl, pytest.mark.clients]

PATIENT_MS = 30_000
CALLS = 50
# A name in the certificates of all daemons, whatever the addresses are.
NAME = "memory.example"
NO_ROUTE, NO_NAME = "192.0.2.1:7627", "nowhere.invalid:7627"


def _started(folders, **kind):
    first = ClientsDaemon(folders.mktemp("r"), **kind).start()
    return first, ClientsDaemon(folders.mktemp("r"), **kind, replica_of=first).start()


@pytest.fixture(scope="module")
def fleets(tmp_path_factory):
    """Two daemons that accept the same token; a pair with TLS, or a plain one. Each is started when first used."""
    pairs = {}

    def fleet(**kind):
        key = str(kind)
        if key not in pairs:
            pairs[key] = _started(tmp_path_factory, **kind)
        for daemon in pairs[key]:
            if not daemon.listening:
                daemon.start()
        return pairs[key]

    yield fleet
    for daemon in (each for pair in pairs.values() for each in pair):
        daemon.stop()


def address_of(fleet):
    return ",".join(daemon.values()["tcp"] for daemon in fleet)


def connection(fleet, *, server_name=NAME):
    """What a client is given for a connection to both daemons."""
    given = fleet[0].connection("tls") | {"address": address_of(fleet)}
    return given if fleet[0].plain else given | {"tls": given["tls"] | {"server_name": server_name}}


def answering(runner):
    """The workspace of the daemon that answers the next call."""
    agents = runner.call("list_agents", timeout_ms=PATIENT_MS)["agents"]
    return next(agent["workspace"] for agent in agents if agent["agentId"] == "main")


def calls_by_workspace(runner, count):
    return Counter(answering(runner) for _ in range(count))


def both_answer(runner, fleet):
    """Wait until both daemons answer calls."""
    seen = set()

    def both():
        seen.add(answering(runner))
        return seen == {str(daemon.workspace) for daemon in fleet}

    return wait_until(both)


@pytest.mark.parametrize("runners", every_language(), indirect=True)
def test_calls_are_distributed_evenly(runners, fleets):
    fleet = fleets(plain=True)
    with runners() as runner:
        runner.connect(**connection(fleet))
        both_answer(runner, fleet)
        found = calls_by_workspace(runner, 20)
        assert sorted(found) == sorted(str(daemon.workspace) for daemon in fleet)
        assert min(found.values()) >= 8, found


@pytest.mark.parametrize("runners", every_language(), indirect=True)
def test_calls_and_streams_succeed_while_one_daemon_is_away(runners, fleets):
    first, second = fleet = fleets(plain=True)
    for killed, other in ((first, second), (second, first)):
        with runners() as runner:
            runner.connect(**connection(fleet))
            both_answer(runner, fleet)
            killed.stop(9)
            assert calls_by_workspace(runner, CALLS) == {str(other.workspace): CALLS}
            for stream in ("a", "b"):
                assert runner.ask("open", stream=stream, method="watch", request={}) == {"ok": {}}
                assert runner.ask("next", stream=stream)["ok"]["agentId"] == "main"
                runner.ask("cancel", stream=stream)
            killed.start()
            both_answer(runner, fleet)


@pytest.mark.parametrize("runners", every_language(), indirect=True)
def test_the_error_names_all_addresses_if_no_daemon_answers(runners, fleets):
    fleet = fleets(plain=True)
    with runners() as runner:
        runner.connect(**connection(fleet))
        both_answer(runner, fleet)
        for daemon in fleet:
            daemon.stop()
        for timeout_ms in (8000, 2000):
            error = runner.ask("call", method="list_agents", request={}, timeout_ms=timeout_ms)["error"]
            assert (error["code"], error.get("reason", "")) == ("UNAVAILABLE", ""), error
            for daemon in fleet:
                assert daemon.values()["tcp"] in error["message"], error
        assert runner.ask("open", stream="s", method="watch", request={}) == {"ok": {}}
        failed = runner.ask("next", stream="s")["error"]
        assert all(daemon.values()["tcp"] in failed["message"] for daemon in fleet), failed
        for daemon in fleet:
            daemon.start()
        both_answer(runner, fleet)


@pytest.mark.parametrize("runners", every_language(), indirect=True)
def test_one_server_name_is_verified_at_all_addresses(runners, fleets):
    fleet = fleets()
    given = connection(fleet)
    with runners() as runner:
        runner.connect(**given)
        both_answer(runner, fleet)
        for unreachable in (NO_ROUTE, NO_NAME):
            runner.connect(**given | {"address": f"{unreachable},{given['address']}"})
            both_answer(runner, fleet)
        runner.connect(**connection(fleet, server_name="other.example"))
        error = runner.ask("call", method="list_agents", request={}, timeout_ms=8000)["error"]
        assert (error["code"], error.get("reason", "")) == ("UNAVAILABLE", ""), error


@pytest.mark.parametrize("runners", every_language(), indirect=True)
def test_without_a_server_name_the_certificates_are_verified_for_the_host_of_the_address(runners, fleets):
    fleet = fleets()
    given = fleet[0].connection("tls")
    first, second = (daemon.values()["tcp"] for daemon in fleet)
    with runners() as runner:
        for addresses in ([first, second], [first.replace("127.0.0.1", "localhost"), second]):
            runner.connect(**given | {"address": ", ".join(addresses)})
            both_answer(runner, fleet)
        # 127.0.0.2 is the same machine, and no name in the certificates.
        runner.connect(**given | {"address": "127.0.0.2:1,127.0.0.3:1"})
        error = runner.ask("call", method="list_agents", request={}, timeout_ms=8000)["error"]
        assert error["code"] == "UNAVAILABLE", error


@pytest.mark.parametrize("runners", every_language(), indirect=True)
def test_a_list_has_at_most_sixty_four_addresses(runners, fleets):
    fleet = fleets(plain=True)
    unused = [f"127.0.0.1:{port}" for port in range(1, 64)]
    with runners() as runner:
        refused = runner.ask("connect", address=",".join([*unused, address_of(fleet)]))
        assert "64" in refused["refused"], refused
        runner.connect(**connection(fleet) | {"address": ",".join([*unused, fleet[0].values()["tcp"]])})
        assert answering(runner) == str(fleet[0].workspace)


class Answers(grpc.GenericRpcHandler):
    """Answers each call with an empty message, or fails it with UNAVAILABLE; `calls` counts them."""

    def __init__(self, *, available):
        self.available = available
        self.calls = 0

    def service(self, _):
        def answer(_, context):
            self.calls += 1
            if not self.available:
                context.abort(grpc.StatusCode.UNAVAILABLE, "stopping")
            return b""

        return grpc.unary_unary_rpc_method_handler(answer)


@pytest.mark.parametrize("language", every_language())
def test_a_call_that_fails_with_unavailable_is_retried_at_another_address(language, tmp_path):
    failing, answering = handlers = Answers(available=False), Answers(available=True)
    servers = [grpc.server(ThreadPoolExecutor(2), [handler]) for handler in handlers]
    ports = [server.add_insecure_port("127.0.0.1:0") for server in servers]
    for server in servers:
        server.start()
    try:
        with closing(Runner(language.or_skip().command, environment(tmp_path), tmp_path / "log")) as runner:
            runner.connect(address=",".join(f"127.0.0.1:{port}" for port in ports))
            for _ in range(10):
                runner.call("append", {"text": "x"}, timeout_ms=PATIENT_MS)
    finally:
        for server in servers:
            server.stop(None).wait()
    assert answering.calls == 10
    assert failing.calls >= 2


def _can_replace_hosts(hosts):
    if shutil.which("unshare") is None:
        return False
    return subprocess.run([*_with_hosts(hosts), "true"], capture_output=True, check=False).returncode == 0


def _with_hosts(hosts):
    """The beginning of a command that runs with this file as /etc/hosts."""
    script = f'mount --bind "{hosts}" /etc/hosts && exec "$@"'
    return ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", script, "sh"]


@pytest.fixture(scope="module")
def same_port(tmp_path_factory):
    """Two daemons with TLS at the same port of 127.0.0.1 and 127.0.0.2."""
    folder = tmp_path_factory.mktemp("p")
    (folder / "a").mkdir()
    (folder / "b").mkdir()
    first = ClientsDaemon(folder / "a").start()
    port = first.values()["tcp"].rpartition(":")[2]
    second = ClientsDaemon(folder / "b", replica_of=first)
    second.addresses = [f"unix:{second.root}/m.sock", f"127.0.0.2:{port}"]
    yield first, second.start()
    first.stop()
    second.stop()


@pytest.mark.parametrize("language", every_language())
def test_calls_are_distributed_over_the_addresses_of_one_host_name(language, same_port, tmp_path):
    hosts = tmp_path / "hosts"
    hosts.write_text(f"127.0.0.1 localhost\n127.0.0.1 {NAME}\n127.0.0.2 {NAME}\n")
    if not _can_replace_hosts(hosts):
        pytest.skip("a process here cannot have its own /etc/hosts")
    command = [*_with_hosts(hosts), *language.or_skip().command]
    port = same_port[0].values()["tcp"].rpartition(":")[2]
    with closing(Runner(command, environment(tmp_path), tmp_path / "log")) as runner:
        runner.connect(**same_port[0].connection("tls") | {"address": f"{NAME}:{port}"})
        both_answer(runner, same_port)
        same_port[1].stop(9)
        assert calls_by_workspace(runner, 20) == {str(same_port[0].workspace): 20}
        same_port[1].start()
        both_answer(runner, same_port)


@pytest.mark.timeout(300)
def test_changed_ip_addresses_of_a_host_name_are_used_within_a_minute(same_port, tmp_path):
    """All languages at the same time, because each of them waits half a minute before it looks up a name again."""
    first, second = same_port
    hosts = tmp_path / "hosts"
    hosts.write_text(f"127.0.0.1 localhost\n127.0.0.1 {NAME}\n")
    if not _can_replace_hosts(hosts):
        pytest.skip("a process here cannot have its own /etc/hosts")
    port = first.values()["tcp"].rpartition(":")[2]
    # Nothing listens at the second address.
    given = connection([first, second]) | {"address": f"{NAME}:{port},127.0.0.3:{port}"}
    ready = [language.or_skip() for language in LANGUAGES if not language.missing() or language.in_ci]
    with ExitStack() as stack:
        runners = {}
        for language in ready:
            folder = tmp_path / language.name
            folder.mkdir()
            runner = Runner([*_with_hosts(hosts), *language.command], environment(folder), folder / "log")
            runners[language.name] = stack.enter_context(closing(runner))
            runner.connect(**given)
            assert answering(runner) == str(first.workspace)
        hosts.write_text(f"127.0.0.1 localhost\n127.0.0.2 {NAME}\n")
        waiting = dict(runners)

        def all_use_the_second():
            for name, runner in list(waiting.items()):
                if answering(runner) == str(second.workspace):
                    del waiting[name]
            return not waiting

        wait_until(all_use_the_second, 120, pause=1)
        for runner in runners.values():
            assert calls_by_workspace(runner, 3) == {str(second.workspace): 3}
