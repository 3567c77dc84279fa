"""What the Python client finds by itself; the table of all clients has what is alike in every language."""

import json
from pathlib import Path

import pytest

from memoryd.client import connect
from memoryd.discovery import Endpoint, Surroundings, find, named_tls, noted_addresses
from memoryd.tls import Tls


def around(home, **environ):
    return Surroundings(environ, home)


@pytest.fixture
def home(tmp_path):
    (tmp_path / ".openclaw").mkdir()
    return tmp_path


def test_without_anything_the_socket_is_where_a_daemon_would_listen(home):
    assert find(around(home)) == Endpoint(f"unix:{home}/.openclaw/run/memoryd.sock")
    assert find(around(home, XDG_RUNTIME_DIR="/run/user/7")) == Endpoint("unix:/run/user/7/memoryd/memoryd.sock")
    assert find(around(home, XDG_RUNTIME_DIR="run")) == Endpoint(f"unix:{home}/.openclaw/run/memoryd.sock")


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
def test_a_note_without_sense_is_none(home, text, expected):
    (home / "memoryd.endpoint.json").write_text(text)
    assert noted_addresses(home) == expected
    assert noted_addresses(home / "nowhere") == []


def test_a_noted_socket_counts_only_while_it_is_there(home):
    socket = home / "m.sock"
    (home / ".openclaw" / "memoryd.endpoint.json").write_text(
        json.dumps({"addresses": [f"unix:{socket}", "[::1]:7627"]})
    )
    assert find(around(home)) == Endpoint("[::1]:7627")
    socket.touch()
    assert find(around(home)) == Endpoint(f"unix:{socket}")


@pytest.mark.parametrize(
    "address", ["7627", "host", "host:port", "http://host:1", "dns:///host:1", "::1:7627", "a b:1"]
)
def test_an_invalid_address_is_refused(home, address):
    with pytest.raises(ValueError, match="is no address; write unix:PATH or HOST:PORT"):
        find(around(home), address)


@pytest.mark.parametrize("address", ["127.0.0.1:1", "127.8.9.1:1", "localhost:1", "LOCALHOST:1", "[::1]:1"])
def test_a_token_may_travel_in_the_clear_on_this_machine(home, address):
    assert find(around(home), address, "t") == Endpoint(address, "t")


@pytest.mark.parametrize("address", ["192.0.2.1:1", "[2001:db8::1]:1", "localhost.example:1", "127.0.0.1.example:1"])
def test_a_token_does_not_travel_in_the_clear_beyond_it(home, address):
    with pytest.raises(ValueError, match=r"refusing to send the token to .* in the clear") as caught:
        find(around(home), address, "t0ken")
    assert "t0ken" not in str(caught.value)
    assert find(around(home), address, "t0ken", Tls()) == Endpoint(address, "t0ken", Tls())
    assert find(around(home), address) == Endpoint(address)


def test_nothing_and_no_are_different(home):
    (home / "token").write_text("t\n")
    (home / ".openclaw" / "memoryd.token").write_text("own\n")
    told = around(home, MEMORYD_TOKEN_FILE="~/token", MEMORYD_TLS_CA="~/ca.pem", MEMORYD_TLS_SERVER_NAME="n")
    assert find(told, "127.0.0.1:1") == Endpoint("127.0.0.1:1", "t", Tls(home / "ca.pem", server_name="n"))
    assert find(told, "127.0.0.1:1", "", tls=False) == Endpoint("127.0.0.1:1")
    assert find(around(home), "127.0.0.1:1") == Endpoint("127.0.0.1:1", "own")
    assert find(around(home), "host:1") == Endpoint("host:1")


def test_an_own_token_file_without_a_token_is_none_and_a_named_one_is_refused(home):
    (home / ".openclaw" / "memoryd.token").write_text("\n# none\n")
    assert find(around(home), "localhost:1") == Endpoint("localhost:1")
    with pytest.raises(ValueError, match=r"there is no token in the token file .*memoryd\.token"):
        find(around(home, MEMORYD_TOKEN_FILE="~/.openclaw/memoryd.token"), "localhost:1")


def test_one_variable_decides_tls_over_every_other_setting(home):
    for yes in ("1", " Yes ", "TRUE", "on"):
        assert named_tls(around(home, MEMORYD_TLS=yes)) == Tls()
    for no in ("0", "No", "false", "OFF"):
        assert named_tls(around(home, MEMORYD_TLS=no, MEMORYD_TLS_CA="ca.pem")) is None
    everything = around(home, MEMORYD_TLS="1", MEMORYD_TLS_CA="~/ca.pem", MEMORYD_TLS_SERVER_NAME="n")
    assert named_tls(everything) == Tls(home / "ca.pem", server_name="n")
    with pytest.raises(ValueError, match=r"^MEMORYD_TLS is 'maybe'; write 1 for yes or 0 for no$"):
        find(around(home, MEMORYD_TLS="maybe"), "127.0.0.1:1")
    assert find(around(home, MEMORYD_TLS="maybe"), "unix:/m.sock") == Endpoint("unix:/m.sock")


def test_a_certificate_is_named_with_its_key(home):
    assert named_tls(around(home, MEMORYD_TLS_SERVER_NAME="n")) is None
    with pytest.raises(ValueError, match=r"MEMORYD_TLS_CERT, MEMORYD_TLS_KEY: .* needed together"):
        named_tls(around(home, MEMORYD_TLS_CERT="c.pem"))


def test_a_file_of_tls_that_cannot_be_read_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match="none"):
        connect("127.0.0.1:1", tls=Tls(ca_file=tmp_path / "none"))


def test_the_variables_are_those_that_the_readme_names():
    source = Path(find.__code__.co_filename).read_text("utf-8")
    page = (Path(__file__).parents[2] / "clients" / "README.md").read_text("utf-8")
    for name in ("ADDRESS", "TOKEN_FILE", "STATE_DIR", "TLS", "TLS_SERVER_NAME"):
        assert f'"MEMORYD_{name}"' in source
        assert f"`MEMORYD_{name}`" in page
