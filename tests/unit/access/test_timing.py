"""How long it takes to refuse a token tells nothing of the tokens there are.

Times are taken in turns, in the process's own time, and their medians compared: a slow machine slows all of them.
"""

import io
import statistics
import time
from datetime import UTC, datetime

import pytest

from memoryd_server.access.token_store import TokenStore
from memoryd_server.access.tokens import TokenVerifier, read_tokens
from memoryd_server.observe.log import make_log

pytestmark = pytest.mark.attacks

NOW = datetime(2026, 5, 4, tzinfo=UTC)
TOKENS = 200
ROUNDS = 300
MOST_RATIO = 1.3


def medians(kinds, work):
    """The median time of `work` on each of `kinds`, taken in turns."""
    times = {name: [] for name in kinds}
    for _ in range(ROUNDS):
        for name, token in kinds.items():
            began = time.process_time_ns()
            work(token)
            times[name].append(time.process_time_ns() - began)
    return {name: statistics.median(values) for name, values in times.items()}


def ratio(kinds, work):
    """How many times longer the slowest takes than the fastest; the least of a few tries."""
    found = []
    for _ in range(4):
        taken = medians(kinds, work).values()
        found.append(max(taken) / min(taken))
        if found[-1] < MOST_RATIO:
            break
    return min(found)


@pytest.fixture
def ring(files):
    store = TokenStore(files.store)
    plain = [f"plain-{number:060}" for number in range(TOKENS // 2)]
    files.plain.parent.mkdir(parents=True, exist_ok=True)
    files.plain.write_text("\n".join(plain))
    files.plain.chmod(0o600)
    assert read_tokens(files.plain) == tuple(plain)
    made = [store.add("", None, NOW, None)[1] for _ in range(TOKENS // 2)]
    ring = TokenVerifier(files, lambda: NOW, make_log("error", "json", io.StringIO()))
    ring.refresh()
    return ring, [*plain, *made]


def kinds_of(tokens):
    first, last = tokens[0], tokens[-1]
    return {
        "the first": first.encode(),
        "the last": last.encode(),
        "all of one but its end": (last[:-1] + "#").encode(),
        "the beginning of one": (last[:20] + "#" * (len(last) - 20)).encode(),
        "nothing of any": b"#" * len(last),
    }


def test_every_token_takes_the_same_time(ring):
    keyring, tokens = ring
    assert keyring.grant(tokens[0].encode())
    assert keyring.grant(tokens[-1].encode())
    assert keyring.grant(b"wrong") is None
    assert ratio(kinds_of(tokens), keyring.grant) < MOST_RATIO


def test_a_comparison_that_ends_early_would_be_seen(ring):
    """Otherwise the test above would show nothing."""
    _, tokens = ring
    known = [token.encode() for token in tokens]

    def first_that_is_equal(shown):
        return next((token for token in known if token == shown), None)

    assert ratio(kinds_of(tokens), first_that_is_equal) > MOST_RATIO
