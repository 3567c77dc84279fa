"""Replies of a provider that are large and useless: their memory is returned to the system."""

import time
from concurrent.futures import ThreadPoolExecutor

import psutil
import pytest

from e2e.daemon_fixture import client
from fake_providers import Fault, embedding_server
from memoryd.client import MemorydError
from memoryd.messages import SEARCH_MODE_VECTOR

pytestmark = [pytest.mark.attacks, pytest.mark.slow]

# Their growing buffers were kept at the ends of the heaps of all threads that had received one.
REPLY_BYTES = tuple(size << 20 for size in (20, 40, 30, 40))
CALLS = 40
CONCURRENCY = 8
MOST_BYTES = 60 * 2**20
TIMEOUT = 10


def test_large_replies_leave_no_memory_behind(daemons):
    with embedding_server() as provider:
        search = {"provider": "openai-compatible", "model": "words", "remote": {"baseUrl": provider.url}}
        daemons.configure(watch=False, search=search)
        daemons.write("memory/note.md", "the heron stands in the reeds\n")
        served = daemons.start()
        with client(served) as connection:
            for _ in connection.sync():
                pass
            connection.search(query="heron", mode=SEARCH_MODE_VECTOR)
            before = psutil.Process(served.process.pid).memory_info().rss
            sizes = iter(REPLY_BYTES * CALLS)
            provider.refuse = lambda _texts: Fault(body=b" " * next(sizes))

            def search_in_vain(number):
                with pytest.raises(MemorydError):
                    connection.search(query=f"heron {number}", mode=SEARCH_MODE_VECTOR, timeout=60)

            with ThreadPoolExecutor(CONCURRENCY) as threads:
                list(threads.map(search_in_vain, range(CALLS)))
            # A reply that no call waits for any more may still arrive.
            deadline = time.monotonic() + TIMEOUT
            while (grown := psutil.Process(served.process.pid).memory_info().rss - before) >= MOST_BYTES:
                assert time.monotonic() < deadline, f"{grown / 2**20:.0f} MiB"
                time.sleep(0.2)
    # How many of the calls ask the provider depends on the pauses after its failures.
    assert len(provider.requests) > CONCURRENCY
