"""The client side of the load benchmark, in a separate process: calls a daemon from concurrent tasks.

Reads one JSON object from standard input (address, kind, concurrency, seconds, questions, paths) and writes one to
standard output: the milliseconds of each call by kind, the errors, and its own CPU time. Optional: `addresses` instead
of one address, `connections` (default 1), which use the addresses in turn, as the callers use the connections, and the
`token` for TCP.
"""

import asyncio
import itertools
import json
import random
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from typing import Any

import grpc

from memoryd.v1 import memory_service_pb2 as pb
from memoryd.v1 import memory_service_pb2_grpc as stubs

TIMEOUT_SECONDS = 10.0
# Calls of the mix in percent, as made by a gateway with many sessions.
MIX = {"search": 70, "get": 20, "append": 9, "sync": 1}

Call = Callable[[], Awaitable[Any]]


class Calls:
    """One method per kind of call."""

    def __init__(self, channel: grpc.aio.Channel, told: dict[str, Any], seed: int) -> None:
        questions, paths = told["questions"][seed:] + told["questions"][:seed], told["paths"]
        self._stub = stubs.MemoryServiceStub(channel)
        self._metadata = (("authorization", f"Bearer {told['token']}"),) if told.get("token") else None
        self._questions = itertools.cycle(questions)
        self._paths = itertools.cycle(paths)
        self._random = random.Random(seed)
        self._number = itertools.count()
        self._seed = seed

    def of(self, kind: str) -> tuple[str, Call]:
        """Return the call of a kind; for the mix, of a random kind."""
        if kind == "mix":
            kind = self._random.choices(list(MIX), list(MIX.values()))[0]
        return kind, getattr(self, f"_{kind}")

    async def _search(self) -> None:
        answer = await self._stub.MemorySearch(
            pb.MemorySearchRequest(query=next(self._questions)), timeout=TIMEOUT_SECONDS, metadata=self._metadata
        )
        if not answer.results:
            raise ValueError("a search found nothing")

    async def _get(self) -> None:
        request = pb.MemoryGetRequest(path=next(self._paths), line_count=20)
        await self._stub.MemoryGet(request, timeout=TIMEOUT_SECONDS)

    async def _append(self) -> None:
        number = next(self._number)
        # Use a new log after a few hundred lines, the length of a typical day.
        path = f"memory/load-{self._seed}-{number // 200}.md"
        request = pb.MemoryAppendRequest(text=f"- noted {number} by the load benchmark", path=path)
        await self._stub.MemoryAppend(request, timeout=TIMEOUT_SECONDS)

    async def _sync(self) -> None:
        async for _ in self._stub.Sync(pb.SyncRequest(), timeout=6 * TIMEOUT_SECONDS):
            pass


async def load(told: dict[str, Any]) -> dict[str, Any]:
    """Make calls for the requested time, and return the results."""
    times: dict[str, list[float]] = defaultdict(list)
    errors: Counter[str] = Counter()
    ends = time.perf_counter() + told["seconds"]
    addresses, connections = told.get("addresses") or [told["address"]], told.get("connections", 1)
    async with AsyncExitStack() as stack:
        # Channels to the same address would otherwise share one connection.
        options = (("grpc.use_local_subchannel_pool", 1),)
        channels = [
            await stack.enter_async_context(grpc.aio.insecure_channel(addresses[number % len(addresses)], options))
            for number in range(connections)
        ]

        async def caller(number: int) -> None:
            calls = Calls(channels[number % connections], told, number)
            while time.perf_counter() < ends:
                kind, call = calls.of(told["kind"])
                began = time.perf_counter()
                try:
                    await call()
                except (grpc.RpcError, ValueError) as error:
                    errors[_words(kind, error)] += 1
                times[kind].append((time.perf_counter() - began) * 1_000)

        # The time of the imports is not a cost of the calls.
        began, spent = time.perf_counter(), time.process_time()
        await asyncio.gather(*(caller(number) for number in range(told["concurrency"])))
        seconds, cpu_seconds = time.perf_counter() - began, time.process_time() - spent
    return {"times_ms": times, "errors": errors, "seconds": seconds, "cpu_seconds": cpu_seconds}


def _words(kind: str, error: Exception) -> str:
    return f"{kind}: {error.code().name}: {error.details()}" if isinstance(error, grpc.RpcError) else f"{kind}: {error}"


if __name__ == "__main__":
    json.dump(asyncio.run(load(json.load(sys.stdin))), sys.stdout)
