"""Callers over TCP, as their operator meets them: tokens, TLS, and a second daemon that is refused."""

import json
import re

import pytest

from certificates import Authority, needs_openssl
from daemon_process import memoryd, serving

CONFIG = {"agents": {"list": [{"id": "main", "default": True}, {"id": "work"}]}}


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    return tmp_path_factory.mktemp("home")


@pytest.fixture(scope="module")
def workspace(tmp_path_factory):
    root = tmp_path_factory.mktemp("workspace")
    (root / "MEMORY.md").write_text("# Lasting\n\nThe harbour master is called Ilse.\n", "utf-8")
    return root


def state_of(folder, **ours):
    (folder / "memoryd.json5").write_text(json.dumps({**CONFIG, "memoryd": ours}), "utf-8")
    return folder


@pytest.fixture(scope="module")
def served(workspace, tmp_path_factory, home):
    state = state_of(tmp_path_factory.mktemp("state"))
    with serving(workspace, state, home=home, listen="127.0.0.1:0") as daemon:
        yield daemon


def check(done, *, code=0, out="", err=""):
    assert done.returncode == code, (done.stdout, done.stderr)
    assert re.search(out, done.stdout, re.DOTALL | re.MULTILINE), done.stdout
    assert re.search(err, done.stderr, re.DOTALL), done.stderr
    return done


def made(served, tmp_path, *arguments):
    """A new token, in a file for a client."""
    done = check(served.memoryd("token", "new", *arguments), out=r"\Amemoryd_[\w-]{43}\n\Z", err="Not shown again")
    file = tmp_path / "token"
    file.write_text(done.stdout)
    file.chmod(0o600)
    return re.match(r"Token ([0-9a-f]{8}), for (.*), (until|without)", done.stderr)[1], file


def elsewhere(served, token, *arguments):
    """A command that knows nothing but the daemon's address and a token."""
    return memoryd(*arguments, "--address", served.address, "--token-file", token, home=served.home)


@pytest.mark.slow
def test_a_token_is_made_used_and_revoked_while_the_daemon_runs(served, tmp_path):
    token_id, file = made(served, tmp_path, "--agent", "WORK", "--name", "gateway", "--expires", "90d")
    check(elsewhere(served, file, "agents"), out=r"\Awork: \w+.*\n\Z")
    check(elsewhere(served, file, "search", "--agent", "work", "x"))
    check(elsewhere(served, file, "search", "Ilse"), code=4, err="'main'.*AGENT_FORBIDDEN")
    check(served.memoryd("token", "list"), out=rf"^{token_id}  \S+  until \S+ \S+ UTC  work  admin  gateway$")
    check(served.memoryd("token", "revoke", token_id), out=f"Revoked: {token_id}")
    check(elsewhere(served, file, "agents"), code=4, err="TOKEN_INVALID")
    assert token_id not in served.memoryd("token", "list").stdout
    check(served.memoryd("token", "revoke", token_id), code=3, err="there is no token")


@pytest.mark.slow
def test_commands_of_the_owner_find_the_first_token_by_themselves(served):
    check(served.memoryd("agents"), out="main")
    check(served.memoryd("index", "--agent", "main"))
    check(served.memoryd("search", "harbour"), out="Ilse")
    check(served.memoryd("token", "list"), out=r"1 in .*/memoryd\.token, for every agent")
    check(served.memoryd("doctor"), out="ok   tokens: .* in force")


@pytest.mark.slow
def test_tokens_in_json_tell_everything_but_the_token(served):
    new = json.loads(check(served.memoryd("token", "new", "--json", "--agent", "main")).stdout)
    listed = json.loads(check(served.memoryd("token", "list", "--json")).stdout)
    assert new["token"].startswith("memoryd_")
    (found,) = [entry for entry in listed if entry["id"] == new["id"]]
    assert found == {key: value for key, value in new.items() if key != "token"}
    assert (found["agents"], found["expires"], found["expired"]) == (["main"], None, False)
    assert new["token"] not in json.dumps(listed)


@pytest.mark.slow
def test_a_client_s_token_file_must_be_private_and_hold_a_token(served, tmp_path):
    _, file = made(served, tmp_path)
    file.chmod(0o644)
    check(elsewhere(served, file, "agents"), code=2, err=f"chmod 600 {file}")
    file.chmod(0o600)
    check(elsewhere(served, file, "agents"), out="main")
    file.write_text("# none\n")
    check(elsewhere(served, file, "agents"), code=2, err="contains no token")
    check(elsewhere(served, tmp_path / "none", "agents"), code=2, err="does not exist")


@pytest.mark.slow
def test_a_daemon_that_refuses_the_token_is_not_taken_for_one_that_is_away(workspace, tmp_path, home):
    (tmp_path / "state").mkdir()
    state = state_of(tmp_path / "state")
    token = tmp_path / "token"
    token.write_text(memoryd("token", "new", "--state-dir", state, home=home).stdout)
    token.chmod(0o600)
    with serving(workspace, state, home=home, listen="127.0.0.1:0") as daemon:
        check(daemon.memoryd("agents"), code=4, err="TOKEN_MISSING")
        check(daemon.memoryd("agents", "--token-file", token), out="main")


@pytest.mark.slow
def test_a_second_daemon_on_the_same_port_is_refused(served, workspace, tmp_path, home):
    for listen in (served.address, served.address.replace("127.0.0.1", "localhost")):
        done = memoryd("serve", "--workspace", workspace, "--state-dir", tmp_path, "--listen", listen, home=home)
        check(done, code=2, err=f"cannot listen at {re.escape(listen)}: the port is taken, perhaps by another memoryd")
    check(served.memoryd("agents"), out="main")


@pytest.mark.slow
def test_a_second_daemon_on_the_same_index_is_refused_also_over_tcp(served, workspace, home):
    done = memoryd("serve", "--workspace", workspace, "--state-dir", served.state, "--listen", "127.0.0.1:0", home=home)
    check(done, code=5, err=rf"in use by another memoryd \(process {served.process.pid}\)")
    check(served.memoryd("agents"), out="main")


@pytest.mark.slow
def test_a_token_is_not_sent_in_the_clear_beyond_this_machine(served, tmp_path, home):
    _, file = made(served, tmp_path)
    done = memoryd("agents", "--address", "192.0.2.1:7627", "--token-file", file, home=home)
    check(done, code=2, err="refusing to send the token to 192.0.2.1:7627 in the clear; use --tls")


@pytest.mark.slow
def test_of_several_addresses_the_first_that_can_be_connected_to_is_called(served, tmp_path, home):
    _, file = made(served, tmp_path)

    def command(name, addresses, *options):
        return memoryd(name, "--address", addresses, *options, home=home)

    token = ("--token-file", file)
    check(command("agents", f"127.0.0.1:1, {served.address}", *token), out="main")
    check(command("health", f"127.0.0.1:1,localhost:2,{served.address}", *token), out="^SERVING$")
    check(command("agents", "127.0.0.1:1,127.0.0.1:2", *token), code=5, err=r"addresses: 127.0.0.1:1, 127.0.0.1:2")
    check(command("agents", "a.invalid:1,b.invalid:1"), code=5, err="cannot resolve any host name of a.invalid:1, b")
    check(command("health", "a.invalid:1,b.invalid:1"), code=5, err="cannot resolve any host name of a.invalid:1, b")
    check(
        command("agents", f"{served.address},192.0.2.1:7627", *token),
        code=2,
        err="token to 192.0.2.1:7627 in the clear",
    )
    check(command("agents", f"{served.address},,127.0.0.1:1", *token), code=2, err="contains an empty address")


@pytest.mark.slow
@needs_openssl
@pytest.mark.parametrize("mutual", [False, True])
def test_a_daemon_beyond_loopback_serves_over_tls(workspace, tmp_path, home, mutual):
    authority, clients = Authority(tmp_path), Authority(tmp_path, "clients")
    certificate, key = authority.issue("daemon", days=90)
    tls = {"certFile": str(certificate), "keyFile": str(key), **({"clientCaFile": str(clients.ca)} if mutual else {})}
    mine = clients.issue("mine")
    shown = ("--tls-cert", mine[0], "--tls-key", mine[1]) if mutual else ()
    (tmp_path / "state").mkdir()
    state = state_of(tmp_path / "state", tls=tls)
    with serving(workspace, state, home=home, listen="0.0.0.0:0") as daemon:
        _, token = made(daemon, tmp_path)
        address = f"localhost:{daemon.address.rpartition(':')[2]}"
        named = ("agents", "--address", address, "--token-file", token)
        check(memoryd(*named, "--tls-ca", authority.ca, *shown, home=home), out="main")
        check(memoryd(*named, "--tls-ca", clients.ca, *shown, home=home), code=5)
        check(memoryd(*named, home=home), code=5)
        if mutual:
            check(memoryd(*named, "--tls-ca", authority.ca, home=home), code=5)
        # On this machine the daemon's own certificate is known.
        check(daemon.memoryd("agents", *shown), out="main")
        check(daemon.memoryd("doctor", *shown), out="ok   certificate: .* is valid until")


@pytest.mark.slow
def test_tls_options_that_make_no_sense_are_refused(served, tmp_path):
    check(served.memoryd("agents", "--tls-cert", tmp_path / "c"), code=2, err="--tls-cert and --tls-key")
    done = memoryd("agents", "--address", served.address, "--tls-ca", tmp_path / "none", home=served.home)
    check(done, code=2, err="cannot read .*none")
