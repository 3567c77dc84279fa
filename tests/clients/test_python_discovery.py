"""How the Python client finds a daemon; tests/clients/cases.json has the tests of all languages."""

import json
from pathlib import Path

import pytest

from memoryd.client import connect
from memoryd.discovery import Endpoint, Environment, find_endpoint, recorded_addresses, tls_from
from memoryd.tls import Tls


def environment(home, **environ):
    return Environment(environ, home)


@pytest.fixture
def home(tmp_path):
    (tmp_path / ".openclaw").mkdir()
    return tmp_path


def test_default_address_is_the_default_socket_of_a_daemon(home):
    assert find_endpoint(environment(home)) == Endpoint(f"unix:{home}/.openclaw/run/memoryd.sock")
    assert find_endpoint(environment(home, XDG_RUNTIME_DIR="/run/user/7")) == Endpoint(
        "unix:/run/user/7/memoryd/memoryd.sock"
    )
    assert find_endpoint(environment(home, XDG_RUNTIME_DIR="run")) == Endpoint(
        f"unix:{home}/.openclaw/run/memoryd.sock"
    )


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('{"addresses": ["unix:/a", "127.0.0.1:7627"]}', ["unix:/a", "127.0.0.1:7627"]),
        ('{"addresses": 7}', []),
        ('{"pid": 7}', []),
        ("[]", []),
        ("nonsense", []),
        ("", []),
    ],
)
def test_invalid_endpoint_file_is_ignored(home, text, expected):
    (home / "memoryd.endpoint.json").write_text(text)
    assert recorded_addresses(home) == expected
    assert recorded_addresses(home / "nowhere") == []


def test_recorded_socket_is_used_only_if_it_exists(home):
    socket = home / "m.sock"
    (home / ".openclaw" / "memoryd.endpoint.json").write_text(
        json.dumps({"addresses": [f"unix:{socket}", "[::1]:7627"]})
    )
    assert find_endpoint(environment(home)) == Endpoint("[::1]:7627")
    socket.touch()
    assert find_endpoint(environment(home)) == Endpoint(f"unix:{socket}")


@pytest.mark.parametrize(
    "address", ["7627", "host", "host:port", "http://host:1", "dns:///host:1", "::1:7627", "a b:1"]
)
def test_invalid_address_is_refused(home, address):
    with pytest.raises(ValueError, match="is not an address; write unix:PATH or HOST:PORT"):
        find_endpoint(environment(home), address)


@pytest.mark.parametrize("address", ["127.0.0.1:1", "127.8.9.1:1", "localhost:1", "LOCALHOST:1", "[::1]:1"])
def test_token_is_sent_in_the_clear_on_this_machine(home, address):
    assert find_endpoint(environment(home), address, "t") == Endpoint(address, "t")


@pytest.mark.parametrize("address", ["192.0.2.1:1", "[2001:db8::1]:1", "localhost.example:1", "127.0.0.1.example:1"])
def test_token_is_not_sent_in_the_clear_to_another_machine(home, address):
    with pytest.raises(ValueError, match=r"refusing to send the token to .* in the clear") as caught:
        find_endpoint(environment(home), address, "t0ken")
    assert "t0ken" not in str(caught.value)
    assert find_endpoint(environment(home), address, "t0ken", Tls()) == Endpoint(address, "t0ken", Tls())
    assert find_endpoint(environment(home), address) == Endpoint(address)


def test_an_empty_token_and_false_override_the_environment(home):
    (home / "token").write_text("t\n")
    (home / ".openclaw" / "memoryd.token").write_text("own\n")
    given = environment(home, MEMORYD_TOKEN_FILE="~/token", MEMORYD_TLS_CA="~/ca.pem", MEMORYD_TLS_SERVER_NAME="n")
    assert find_endpoint(given, "127.0.0.1:1") == Endpoint("127.0.0.1:1", "t", Tls(home / "ca.pem", server_name="n"))
    assert find_endpoint(given, "127.0.0.1:1", "", tls=False) == Endpoint("127.0.0.1:1")
    assert find_endpoint(environment(home), "127.0.0.1:1") == Endpoint("127.0.0.1:1", "own")
    assert find_endpoint(environment(home), "host:1") == Endpoint("host:1")


def test_token_file_without_a_token_is_ignored_unless_it_is_named(home):
    (home / ".openclaw" / "memoryd.token").write_text("\n# none\n")
    assert find_endpoint(environment(home), "localhost:1") == Endpoint("localhost:1")
    with pytest.raises(ValueError, match=r"the token file .*memoryd\.token contains no token"):
        find_endpoint(environment(home, MEMORYD_TOKEN_FILE="~/.openclaw/memoryd.token"), "localhost:1")


def test_memoryd_tls_takes_precedence_over_the_other_variables(home):
    for yes in ("1", " Yes ", "TRUE", "on"):
        assert tls_from(environment(home, MEMORYD_TLS=yes)) == Tls()
    for no in ("0", "No", "false", "OFF"):
        assert tls_from(environment(home, MEMORYD_TLS=no, MEMORYD_TLS_CA="ca.pem")) is None
    everything = environment(home, MEMORYD_TLS="1", MEMORYD_TLS_CA="~/ca.pem", MEMORYD_TLS_SERVER_NAME="n")
    assert tls_from(everything) == Tls(home / "ca.pem", server_name="n")
    with pytest.raises(ValueError, match=r"^MEMORYD_TLS is 'maybe'; write 1 for yes or 0 for no$"):
        find_endpoint(environment(home, MEMORYD_TLS="maybe"), "127.0.0.1:1")
    assert find_endpoint(environment(home, MEMORYD_TLS="maybe"), "unix:/m.sock") == Endpoint("unix:/m.sock")


def test_certificate_requires_its_key(home):
    assert tls_from(environment(home, MEMORYD_TLS_SERVER_NAME="n")) is None
    with pytest.raises(ValueError, match=r"MEMORYD_TLS_CERT, MEMORYD_TLS_KEY: .* set together"):
        tls_from(environment(home, MEMORYD_TLS_CERT="c.pem"))


def test_missing_tls_file_is_named_in_the_error(tmp_path):
    with pytest.raises(FileNotFoundError, match="none"):
        connect("127.0.0.1:1", tls=Tls(ca_file=tmp_path / "none"))


def test_variables_are_documented_in_the_readme():
    source = Path(find_endpoint.__code__.co_filename).read_text("utf-8")
    page = (Path(__file__).parents[2] / "clients" / "README.md").read_text("utf-8")
    for name in ("ADDRESS", "TOKEN_FILE", "STATE_DIR", "TLS", "TLS_SERVER_NAME"):
        assert f'"MEMORYD_{name}"' in source
        assert f"`MEMORYD_{name}`" in page
