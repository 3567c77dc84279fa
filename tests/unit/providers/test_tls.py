"""A server's certificate is checked, by the system's authorities too."""

import ssl
import time

import pytest

from certificates import Authority, needs_openssl
from fake_providers import fake_provider
from memoryd_server.errors import EmbeddingUnavailable
from memoryd_server.providers.openai import openai_compatible
from memoryd_server.providers.pacing import ThrottleConfig
from memoryd_server.providers.provider import RemoteConfig

pytestmark = needs_openssl
QUICK = ThrottleConfig(first_pause_seconds=0.01)


@pytest.fixture(scope="module")
def authority(tmp_path_factory):
    return Authority(tmp_path_factory.mktemp("ca"))


@pytest.fixture
def server(authority):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*authority.issue("server"))
    with fake_provider("openai-compatible") as server:
        server.speak_tls(context)
        yield server


def asked(server, host="127.0.0.1"):
    url = server.url.replace("127.0.0.1", host)
    provider = openai_compatible(RemoteConfig("openai-compatible", "m", url, ("k",), pace=QUICK))
    try:
        return provider.embed_query("a", time.monotonic() + 5)
    finally:
        provider.close()


def test_a_certificate_that_nobody_vouches_for_is_refused_before_anything_is_sent(server):
    with pytest.raises(EmbeddingUnavailable, match="CERTIFICATE_VERIFY_FAILED") as caught:
        asked(server)
    assert "tried" not in caught.value.message
    assert server.requests == []


def test_the_systems_authorities_are_believed(server, authority, monkeypatch):
    monkeypatch.setenv("SSL_CERT_FILE", str(authority.ca))
    assert asked(server).size
    assert len(server.requests) == 1


def test_a_certificate_for_another_host_is_refused(server, authority, monkeypatch):
    monkeypatch.setenv("SSL_CERT_FILE", str(authority.ca))
    monkeypatch.setenv("NO_PROXY", "*")
    with pytest.raises(EmbeddingUnavailable, match="CERTIFICATE_VERIFY_FAILED"):
        # The same machine by a name that the certificate does not have.
        asked(server, host="127.1")
    assert server.requests == []
