"""What many agents free is returned to the system once for all of them."""

import asyncio

from memoryd_server.agent.threads import MemoryTrimmer
from waiting import eventually


async def test_many_who_free_some_in_a_while_return_it_once():
    returned = []
    freed = MemoryTrimmer(0.05, lambda: returned.append(1))
    for _ in range(100):
        freed.note()
    await eventually(lambda: returned)
    await asyncio.sleep(0.1)
    assert returned == [1]
    freed.note()
    await eventually(lambda: returned == [1, 1])
