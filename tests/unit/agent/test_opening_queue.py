"""Who waits is opened in order, who is asked for at once, and each one time only."""

import asyncio

import pytest

from memoryd_server.agent.lifecycle import OpeningQueue
from waiting import eventually


class Opener:
    """Opens when the test lets it; `began` tells who, in order, and whether they were asked for."""

    def __init__(self):
        self.began, self.ended, self.errors = [], [], {}
        self.free = asyncio.Event()
        self.most = 0

    async def __call__(self, agent_id, asked):
        self.began.append((agent_id, asked))
        self.most = max(self.most, len(self.began) - len(self.ended))
        await self.free.wait()
        self.ended.append(agent_id)
        if agent_id in self.errors:
            raise self.errors[agent_id]


@pytest.fixture
def opener():
    return Opener()


@pytest.fixture
async def queue(opener):
    queue = OpeningQueue(opener)
    queue.add("abcdef")
    yield queue
    queue.drop()
    opener.free.set()
    await queue.end(10)


def names(began):
    return "".join(name for name, _ in began)


async def test_some_are_opened_in_order_and_so_many_at_once(queue, opener):
    opener.free.set()
    await queue.open_some(4, most_concurrent=2)
    assert names(opener.began) == "abcd"
    assert opener.most <= 2
    assert len(queue) == 2
    await queue.open_some(4, most_concurrent=2)
    assert names(opener.began) == "abcdef"
    assert all(asked for _, asked in opener.began)


async def test_an_error_is_raised_when_all_have_come_to_their_end(queue, opener):
    opener.free.set()
    opener.errors = {"b": ValueError("b"), "c": ValueError("c")}
    with pytest.raises(ValueError, match="b"):
        await queue.open_some(4, most_concurrent=4)
    assert sorted(opener.ended) == list("abcd")


async def test_the_rest_goes_on_where_one_fails(queue, opener):
    opener.free.set()
    opener.errors = {"b": ValueError("b")}
    queue.open_rest(most_concurrent=1)
    await eventually(lambda: len(opener.ended) == 6)
    assert opener.began == [(name, False) for name in "abcdef"]


async def test_who_is_asked_for_is_opened_at_once_and_once(queue, opener):
    queue.open_rest(most_concurrent=1)
    await eventually(lambda: opener.began)
    for _ in range(3):
        queue.open_now("e")
    queue.open_now("a")
    await eventually(lambda: len(opener.began) == 2)
    assert opener.began == [("a", False), ("e", True)]
    opener.free.set()
    await eventually(lambda: len(opener.ended) == 6)
    assert names(opener.began) == "aebcdf"


async def test_who_is_dropped_is_not_opened_and_the_end_waits_for_who_is_being_opened(queue, opener):
    queue.open_rest(most_concurrent=2)
    await eventually(lambda: len(opener.began) == 2)
    assert queue.drop() == list("cdef")
    ending = asyncio.ensure_future(queue.end(10))
    await asyncio.sleep(0.02)
    assert not ending.done()
    opener.free.set()
    await ending
    assert opener.ended == ["a", "b"]
    assert names(opener.began) == "ab"


async def test_unexpected_exception_of_an_opening_is_reported(queue, opener):
    reported = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: reported.append(str(context["exception"])))
    opener.free.set()
    opener.errors = {"b": ValueError("a fault")}
    queue.open_rest(most_concurrent=2)
    await eventually(lambda: len(opener.ended) == 6)
    assert reported == ["a fault"]
