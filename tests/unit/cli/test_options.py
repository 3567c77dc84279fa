"""TLS options of a connection to a named daemon."""

from pathlib import Path

import pytest

from memoryd.tls import Tls
from memoryd_server.cli.connection import client_tls
from memoryd_server.cli.options import CommonOptions
from memoryd_server.errors import SettingsError

NAMED = {"MEMORYD_TLS_CA": "~/ca.pem", "MEMORYD_TLS_CERT": "/c.pem", "MEMORYD_TLS_KEY": "/k.pem"}


@pytest.fixture
def tls(monkeypatch, tmp_path):
    def tls(given=None, **environ):
        monkeypatch.setenv("HOME", str(tmp_path))
        for name in (*NAMED, "MEMORYD_TLS", "MEMORYD_TLS_SERVER_NAME"):
            monkeypatch.delenv(name, raising=False)
        for name, value in environ.items():
            monkeypatch.setenv(name, value)
        return client_tls(CommonOptions(None, None, None, "host:1", None, given))

    return tls


def test_default_is_no_tls(tls):
    assert tls() is None
    assert tls(MEMORYD_TLS_CA=" ") is None


def test_environment_names_the_files_as_for_every_client(tls, tmp_path):
    expected = Tls(tmp_path / "ca.pem", Path("/c.pem"), Path("/k.pem"), "memory.example")
    assert tls(**NAMED, MEMORYD_TLS_SERVER_NAME="memory.example") == expected


def test_environment_enables_or_disables_tls(tls):
    assert tls(MEMORYD_TLS="1") == Tls()
    assert tls(MEMORYD_TLS="Yes", MEMORYD_TLS_SERVER_NAME="memory.example") == Tls(server_name="memory.example")
    assert tls(**NAMED, MEMORYD_TLS="0") is None
    with pytest.raises(SettingsError, match=r"^MEMORYD_TLS is 'maybe'; write 1 for yes or 0 for no$"):
        tls(MEMORYD_TLS="maybe")


def test_options_take_precedence_over_the_environment(tls):
    assert tls(Tls(ca_file="mine.pem"), **NAMED) == Tls(ca_file="mine.pem")


def test_certificate_without_its_key_is_refused(tls):
    with pytest.raises(SettingsError, match=r"MEMORYD_TLS_CERT, MEMORYD_TLS_KEY: .*together"):
        tls(MEMORYD_TLS_CERT="/c.pem")
