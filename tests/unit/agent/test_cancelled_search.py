"""A caller who leaves during a search leaves no exception behind that the log reports as a fault."""

import asyncio
import gc
import math
import time
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import pytest

from memoryd_server.agent.reranking import SharedReranking
from memoryd_server.agent.search import IndexSearch
from memoryd_server.errors import DeadlineTooShort
from memoryd_server.search import SearchMode, SearchQuery


class LateEngine:
    """The keyword search of a query whose deadline has passed."""

    def search_keywords(self, _query):
        raise DeadlineTooShort("the search")


class SlowEmbedding:
    """A provider that does not answer; the keyword search runs beside it."""

    is_configured = True

    def __init__(self):
        self.began = asyncio.Event()

    async def query_vector(self, _query, search_keywords):
        search_keywords()
        self.began.set()
        await asyncio.sleep(math.inf)


async def test_a_failed_keyword_search_of_a_cancelled_call_is_not_reported():
    reported = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: reported.append(context["message"]))
    query = SearchQuery("heron", 6, None, False, (), SearchMode.HYBRID, 700, False, None, time.monotonic())
    with ThreadPoolExecutor(1) as quick:
        index = SimpleNamespace(quick=quick, readers=None, embedding=SlowEmbedding(), record_search=lambda: None)
        search = asyncio.create_task(IndexSearch(index, LateEngine(), SharedReranking()).search(query))
        await index.embedding.began.wait()
        search.cancel()
        with pytest.raises(asyncio.CancelledError):
            await search
    del search
    gc.collect()
    await asyncio.sleep(0)
    assert reported == []
