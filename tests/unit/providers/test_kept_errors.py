"""The error of a failed call is kept as the reason of later answers; the provider's reply is not kept with it."""

import time
import traceback

import pytest

from fake_providers import Fault
from memoryd_server.errors import EmbeddingUnavailable
from memoryd_server.providers.openai import openai_compatible
from memoryd_server.providers.pacing import ThrottleConfig
from memoryd_server.providers.provider import RemoteConfig

REPLY = b" " * (4 << 20)
KEPT_BYTES = 1 << 14
QUICK = ThrottleConfig(first_pause_seconds=0.01)


def sizes(error):
    """Yield the lengths of all strings and bytes that an error, its causes and their frames refer to."""
    while error is not None:
        for frame, _ in traceback.walk_tb(error.__traceback__):
            yield from (len(value) for value in frame.f_locals.values() if isinstance(value, str | bytes | bytearray))
        yield len(getattr(error, "doc", ""))
        error = error.__cause__ or error.__context__


@pytest.mark.parametrize(
    "fault",
    [Fault(body=REPLY), Fault(400, REPLY), Fault(500, REPLY), Fault(body=REPLY, reset=True)],
    ids=["200", "400", "500", "reset"],
)
def test_an_error_does_not_keep_the_reply(server, fault):
    server.refuse = lambda _texts: fault
    provider = openai_compatible(RemoteConfig("openai-compatible", "m", server.url, (), (), None, pace=QUICK))
    try:
        with pytest.raises(EmbeddingUnavailable) as raised:
            provider.embed_query("heron", time.monotonic() + 20)
        assert max(sizes(raised.value)) < KEPT_BYTES
    finally:
        provider.close()
