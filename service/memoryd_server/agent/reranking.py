"""Reranking of the candidates of a search by a model: the third, optional stage.

`RerankStage` decides whether the reranker is called, and how long a search waits for it: until the timeout of the
settings or the caller's deadline. A reranker that fails, or is late several times in a row, is not called for a
growing pause. Scores are cached, also those that arrive too late, so a repeated search needs no call. `SharedReranking`
has the stage of the settings in force, which all agents share.
"""

import asyncio
import hashlib
import math
import secrets
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial

from memoryd_server.model import Degradation, DegradationKind
from memoryd_server.providers import PLAIN_TEXT, RerankConfig, Reranker, RerankFailure, RerankReply, make_reranker
from memoryd_server.search import RerankReport
from memoryd_server.threads import DaemonExecutor

CONCURRENT_CALLS = 4
"""Further searches are answered without the reranker."""
CACHED_SCORES = 20_000
LATE_CALLS = 3
"""The number of late calls in a row after which the reranker is not called for a while."""
FIRST_PAUSE_SECONDS = 2.0
LONGEST_PAUSE_SECONDS = 60.0
LONGEST_REQUESTED_PAUSE_SECONDS = 300.0
PROBE_SECONDS = 5.0
LEFT_FOR_THE_ANSWER_SECONDS = 0.1
"""The part of the caller's time that is left for the answer."""

_KEY_BYTES = 16
_NEARLY = 0.9
# Protobuf stores 64 bits.
_MOST = 2**62


@dataclass(frozen=True, slots=True)
class RerankPolicy:
    """How many candidates are scored at most, and how long a search waits."""

    candidates: int = 30
    timeout_seconds: float = 0.3


@dataclass(frozen=True, slots=True)
class RerankOutcome:
    """The reranking of one search. `scores` are in the order of its passages, None for a passage without a score.

    `scores` itself is None if the search is answered without them; `skipped` is then the reason, and empty if there was
    nothing to rank. `cached` is the number of scores from the cache.
    """

    provider: str
    model: str
    scores: tuple[float | None, ...] | None = None
    cached: int = 0
    elapsed_seconds: float = 0.0
    skipped: str = ""

    @property
    def candidates(self) -> int:
        """The number of candidates with a score."""
        return sum(score is not None for score in self.scores or ())

    @property
    def report(self) -> RerankReport:
        """What an answer reports of it."""
        return RerankReport(self.provider, self.model, self.candidates, self.cached, self.elapsed_seconds)

    @property
    def degradation(self) -> Degradation | None:
        """Why the search was answered without the scores; None if it was not."""
        if not self.skipped:
            return None
        wanted = f"{self.provider} {self.model}".strip()
        return Degradation(DegradationKind.RERANKING_SKIPPED, wanted, "order of the search", self.skipped)


@dataclass(frozen=True, slots=True)
class RerankUsage:
    """Counts since the stage was made.

    `tokens` are those of the calls, `failures` the calls that failed, `late` the searches that did not get their scores
    in time, `cache_hits` the scores that were not requested because they were cached, and `candidates` all scores that
    searches used.
    """

    calls: int = 0
    tokens: int = 0
    failures: int = 0
    late: int = 0
    cache_hits: int = 0
    candidates: int = 0


@dataclass(frozen=True, slots=True)
class RerankStatus:
    """The reranker. `reason` says why it is not expected to answer; `candidates` is how many a search sends at most."""

    provider: str
    model: str
    endpoint: str
    reason: str
    candidates: int
    usage: RerankUsage


class RerankStage:
    """Reranks with one reranker, for all agents. Use it only on the event loop's thread; `status` on any thread."""

    def __init__(
        self,
        reranker: Reranker,
        policy: RerankPolicy,
        *,
        first_pause_seconds: float = FIRST_PAUSE_SECONDS,
        cached_scores: int = CACHED_SCORES,
        key: bytes | None = None,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self.reranker = reranker
        self.policy = policy
        self._threads = DaemonExecutor(CONCURRENT_CALLS, "rerank")
        self._cache = _ScoreCache(cached_scores, key or secrets.token_bytes(_KEY_BYTES))
        self._breaker = _CallBreaker(first_pause_seconds, monotonic)
        self._monotonic = monotonic
        self._under_way = 0
        # The calls under way, by the key of each passage. A search that needs the same scores waits for the same call.
        self._requested: dict[bytes, asyncio.Future[str]] = {}
        self._usage = RerankUsage()

    @property
    def candidates(self) -> int:
        """How many candidates a search sends at most."""
        return min(self.policy.candidates, self.reranker.capacity(self.policy.timeout_seconds))

    def status(self) -> RerankStatus:
        """Return the state and the counters known without I/O."""
        own = self.reranker
        reason = own.problem or self._breaker.reason
        return RerankStatus(own.provider, own.model, own.endpoint, reason, self.candidates, self._usage)

    async def scores(self, agent_id: str, query: str, passages: Sequence[str], deadline: float) -> RerankOutcome:
        """Return the scores of an agent's passages, best candidates first, before `deadline` in `time.monotonic()`.

        The cache is by agent: whether another agent searched for the same cannot be seen from an answer.
        """
        began = self._monotonic()
        keys = self._cache.keys(agent_id, query, passages)
        known = [self._cache.get(key) for key in keys]
        missing = [place for place, score in enumerate(known) if score is None]
        skipped, cached = "", len(known) - len(missing)
        if len(passages) > 1 and missing:
            latest = min(deadline - LEFT_FOR_THE_ANSWER_SECONDS, began + self.policy.timeout_seconds)
            skipped = await self._request(query, [(keys[place], passages[place]) for place in missing], latest)
            known = [self._cache.get(key) if score is None else score for key, score in zip(keys, known, strict=True)]
        usable = len(passages) > 1 and not skipped
        self._count(cache_hits=cached, candidates=sum(score is not None for score in known) if usable else 0)
        return RerankOutcome(
            self.reranker.provider,
            self.reranker.model,
            tuple(known) if usable else None,
            cached if usable else 0,
            self._monotonic() - began,
            skipped,
        )

    async def probe(self, deadline: float) -> None:
        """Call the reranker once, before `deadline` in `time.monotonic()`, so that `status` is current."""
        texts = (PLAIN_TEXT, PLAIN_TEXT * 2)
        keys = self._cache.keys("", PLAIN_TEXT, texts)
        latest = min(deadline - LEFT_FOR_THE_ANSWER_SECONDS, self._monotonic() + PROBE_SECONDS)
        await self._request(PLAIN_TEXT, list(zip(keys, texts, strict=True)), latest)

    async def _request(self, query: str, missing: Sequence[tuple[bytes, str]], latest: float) -> str:
        """Request scores and put them into the cache. Return why they are not there at `latest`, else an empty text."""
        now = self._monotonic()
        calls = {self._requested[key] for key, _ in missing if key in self._requested}
        unrequested = [(key, text) for key, text in missing if key not in self._requested]
        if unrequested:
            reason = self._obstacle(now, latest)
            if reason:
                return reason
            calls.add(self._call(query, unrequested, now, latest))
        _, running = await asyncio.wait(calls, timeout=max(0.0, latest - now))
        if not running:
            return next(filter(None, (call.result() for call in calls)), "")
        self._count(late=1)
        waited, timeout = latest - now, self.policy.timeout_seconds
        # A caller with less time than the timeout says nothing about the reranker.
        if waited < _NEARLY * timeout:
            return f"the reranker did not answer within {waited:.2g} s, before the caller's deadline"
        problem = f"the reranker did not answer within {timeout:g} s"
        self._breaker.late(now, problem)
        return problem

    def _call(
        self, query: str, passages: Sequence[tuple[bytes, str]], now: float, latest: float
    ) -> "asyncio.Future[str]":
        """Call the reranker. Return a future of why there are no scores, which is an empty text if there are some."""
        loop = asyncio.get_running_loop()
        # Never an exception, because the callers may leave before it is set.
        finished: asyncio.Future[str] = loop.create_future()
        keys = [key for key, _ in passages]
        self._requested |= dict.fromkeys(keys, finished)
        self._under_way += 1
        self._count(calls=1)
        call = self._threads.submit(self.reranker.rerank, query, [text for _, text in passages], latest)
        call.add_done_callback(partial(_in_loop, loop, partial(self._record, keys, now, finished)))
        return finished

    def _obstacle(self, now: float, latest: float) -> str:
        """Return why the reranker is not called now; empty if it is."""
        if self.reranker.problem:
            self.reranker.prepare()
            return self.reranker.problem or "the reranker has just become available"
        if latest <= now:
            return "the caller's deadline leaves no time for reranking"
        if self._under_way >= CONCURRENT_CALLS:
            return f"{self._under_way} earlier calls of the reranker have not ended"
        return self._breaker.obstacle(now, trying=self._under_way > 0)

    def _record(
        self, keys: Sequence[bytes], began: float, finished: asyncio.Future[str], call: Future[RerankReply]
    ) -> None:
        self._under_way -= 1
        for key in keys:
            self._requested.pop(key, None)
        reason = ""
        try:
            reply = call.result()
        except RerankFailure as failure:
            reason = str(failure)
            self._count(failures=1)
            self._breaker.failed(began, reason, failure.retry_after_seconds)
        except Exception as error:  # noqa: BLE001 -- the search is answered without the scores
            reason = f"the reranker failed: {error}"
            self._count(failures=1)
            self._breaker.failed(began, reason)
        else:
            self._count(tokens=reply.tokens)
            for key, score in zip(keys, reply.scores, strict=True):
                if score is not None:
                    self._cache.put(key, score)
            if self._monotonic() - began <= self.policy.timeout_seconds:
                self._breaker.worked()
        finished.set_result(reason)

    def _count(self, **more: int) -> None:
        counted = {name: min(getattr(self._usage, name) + count, _MOST) for name, count in more.items()}
        self._usage = replace(self._usage, **counted)

    def shut_down(self) -> None:
        """Call the reranker no more. Searches that wait are answered without the scores immediately."""
        self._threads.shutdown()

    def close(self) -> None:
        """Release the reranker. Blocks until its process has ended."""
        self._threads.shutdown()
        self.reranker.close()


def _in_loop(
    loop: asyncio.AbstractEventLoop, record: Callable[[Future[RerankReply]], None], call: Future[RerankReply]
) -> None:
    # The loop is closed if the daemon has stopped during the call.
    with suppress(RuntimeError):
        loop.call_soon_threadsafe(record, call)


class _CallBreaker:
    """Prevents calls for a pause after a failure or after several late replies in a row.

    The pause doubles with each failure. When it has ended, one call is tried; if it works, the others follow.
    """

    def __init__(self, first_pause_seconds: float, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._first_pause_seconds = first_pause_seconds
        self._pause_seconds = 0.0
        self._paused_until = 0.0
        self._failed_at = -math.inf
        self._late = 0
        self._problem = ""

    @property
    def reason(self) -> str:
        """Why the last call failed; empty if it worked."""
        return self._problem

    def obstacle(self, now: float, *, trying: bool) -> str:
        """Return why no call may be made; empty if one may. `trying` is whether a call is under way."""
        if not self._problem:
            return ""
        left = self._paused_until - now
        if left > 0:
            return f"{self._problem}; it is called again in {left:.1f} s"
        return f"{self._problem}; it is being called again" if trying else ""

    def failed(self, began: float, problem: str, requested_seconds: float | None = None) -> None:
        """Begin a pause, unless the call `began` before the last failure and so belongs to it."""
        if began <= self._failed_at:
            return
        self._failed_at = self._monotonic()
        self._pause_seconds = min(LONGEST_PAUSE_SECONDS, max(self._first_pause_seconds, 2 * self._pause_seconds))
        requested = min(requested_seconds or 0.0, LONGEST_REQUESTED_PAUSE_SECONDS)
        self._paused_until = self._failed_at + max(self._pause_seconds, requested)
        self._problem, self._late = problem, 0

    def late(self, began: float, problem: str) -> None:
        """Count a late call. It counts as a failure if it follows a failure or other late calls."""
        self._late += 1
        if self._problem or self._late >= LATE_CALLS:
            self.failed(began, problem)

    def worked(self) -> None:
        """Allow all calls again."""
        self._pause_seconds = self._paused_until = 0.0
        self._late, self._problem = 0, ""


class _ScoreCache:
    """The most recently used scores, by a keyed hash of agent, query and passage. Holds no text."""

    def __init__(self, most: int, key: bytes) -> None:
        self._most = most
        self._key = key
        self._scores: OrderedDict[bytes, float] = OrderedDict()

    def keys(self, agent_id: str, query: str, passages: Sequence[str]) -> list[bytes]:
        """Return the key of each passage."""
        shared = hashlib.blake2b(digest_size=_KEY_BYTES, key=self._key)
        for text in (agent_id, query):
            data = text.encode("utf-8", "surrogatepass")
            shared.update(len(data).to_bytes(8, "big") + data)
        found = []
        for passage in passages:
            own = shared.copy()
            own.update(passage.encode("utf-8", "surrogatepass"))
            found.append(own.digest())
        return found

    def get(self, key: bytes) -> float | None:
        """Return a score; None if it is not known."""
        score = self._scores.get(key)
        if score is not None:
            self._scores.move_to_end(key)
        return score

    def put(self, key: bytes, score: float) -> None:
        """Add a score, in place of the least recently used one if the cache is full."""
        self._scores[key] = score
        self._scores.move_to_end(key)
        if len(self._scores) > self._most:
            self._scores.popitem(last=False)


class SharedReranking:
    """The stage of the settings in force; `current` is None if reranking is disabled. All agents share it."""

    def __init__(self, make: Callable[[RerankConfig], Reranker | None] = make_reranker) -> None:
        self._make = make
        self._config = RerankConfig()
        self.current: RerankStage | None = None

    def start(self, config: RerankConfig, policy: RerankPolicy) -> None:
        """Use these settings. Sends nothing; takes some tens of milliseconds."""
        reranker = self._make(config)
        self._config, self.current = config, None if reranker is None else RerankStage(reranker, policy)

    async def change(self, config: RerankConfig, policy: RerankPolicy) -> None:
        """Use these settings from the next search on. Another reranker begins without cached scores and counts."""
        former = self.current
        if config != self._config:
            reranker = await asyncio.to_thread(self._make, config)
            self._config, self.current = config, None if reranker is None else RerankStage(reranker, policy)
            if former is not None:
                await asyncio.to_thread(former.close)
        elif former is not None:
            former.policy = policy

    def shut_down(self) -> None:
        """Call the reranker no more; see `RerankStage.shut_down`."""
        if self.current is not None:
            self.current.shut_down()

    def close(self) -> None:
        """Release the reranker. Blocks until its process has ended."""
        if self.current is not None:
            self.current.close()
