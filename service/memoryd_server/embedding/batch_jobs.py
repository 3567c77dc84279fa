"""The provider's batch jobs, from making to cache.

The batch jobs of one index: when they are made, how they are waited for, and what becomes of those that fail.

What a job brings goes into the cache, where the pass over the chunks finds it. So neither a pass that is broken off
nor a daemon that is killed loses anything: the next one looks at the same jobs. Every step runs on a thread of its
own, which outlives the pass that began it.

One step of one batch job: making it, looking at it, taking its vectors in. Blocks, on a thread of its own.
"""

import secrets
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from typing import Any

from memoryd_server.errors import MemorydError, SyncCancelled
from memoryd_server.providers import (
    MOST_JOB_BYTES,
    MOST_TEXTS,
    BatchApi,
    BatchPolicy,
    CallerStopped,
    EmbeddingProvider,
    JobState,
    OutcomeUnknown,
    RequestRefused,
    ResourceMissing,
    WaitLimit,
)
from memoryd_server.store import BatchJob, BatchJobTable, CacheKey, VectorCache, VectorIdentity
from memoryd_server.threads import on_thread
from memoryd_server.vectors import FLOAT_BYTES, InvalidVector, to_blob, unit

_AT_ONCE = 256
_ENDLESS = float("inf")


@dataclass(frozen=True, slots=True)
class JobStep:
    """What a step showed: the job's state, None where the provider has no such job, and the texts it has brought."""

    state: JobState | None
    brought: frozenset[bytes] = frozenset()
    dimensions: int = 0


class JobRunner:
    """Carries steps out for jobs of one maker. For any thread."""

    def __init__(self, api: BatchApi, book: BatchJobTable, key: CacheKey, dimensions: int | None) -> None:
        self._api = api
        self._book = book
        self._key = key
        self._dimensions = dimensions
        self._patience = WaitLimit(_ENDLESS, lambda: False)

    def submit(self, job: BatchJob, texts: Mapping[bytes, str]) -> JobStep:
        """Makes a job that the book holds, and looks at it."""
        keyed = {each.hex(): text for each, text in texts.items()}
        return self._made(job, self._api.submit(job.name, keyed, self._patience))

    def go_on(self, job: BatchJob) -> JobStep:
        """Looks at a job; first for it, where it is not known whether it was made."""
        if job.job_id:
            return self._look(job, job.job_id)
        found = self._api.find(job.name, self._patience)
        return JobStep(None) if found is None else self._made(job, found)

    def cancel(self, job: BatchJob) -> None:
        """Lets the provider know that nobody waits for a job any more."""
        if job.job_id:
            self._api.cancel(job.job_id, self._patience)

    def _made(self, job: BatchJob, job_id: str) -> JobStep:
        self._book.made(job.name, job_id)
        return self._look(job, job_id)

    def _look(self, job: BatchJob, job_id: str) -> JobStep:
        state = self._api.job_state(job_id, self._patience)
        brought: set[bytes] = set()
        dimensions = 0
        for output in state.outputs if state.over else ():
            answers = self._api.answers(output, self._patience)
            while some := dict(islice(answers, _AT_ONCE)):
                vectors = self._usable(some)
                dimensions = len(next(iter(vectors.values()), b"")) // FLOAT_BYTES or dimensions
                brought.update(self._book.take(self._key, job.name, vectors))
        return JobStep(state, frozenset(brought), dimensions)

    def _usable(self, answers: Mapping[str, Any]) -> dict[bytes, bytes]:
        """Those that are vectors, by the hash of their text. The others are asked for without a job."""
        found: dict[bytes, bytes] = {}
        for key, values in answers.items():
            with suppress(InvalidVector, ValueError):
                found[bytes.fromhex(key)] = to_blob(unit(values, self._dimensions))
        return found


MOST_FAILURES = 2
"""So many failures in a row, and no job is made until the daemon starts again."""
MOST_TROUBLES = 3
"""So many looks at a job in a row that fail, and the pass no longer waits for it; the next one looks again."""
SEARCH_SECONDS = 10.0
"""How long a job that may have been made is looked for before it counts as never made."""

MINUTE_SECONDS = 60.0

_LOOK_UP_SECONDS = 0.05
_TELL_SECONDS = 1.0

Texts = Iterable[tuple[bytes, str]]
"""Hashes and texts that have no vector yet, each once."""


@dataclass(frozen=True, slots=True)
class BatchJobsState:
    """How the jobs fare. `failures` count since the start; `texts` are those that `jobs` jobs are to bring."""

    enabled: bool = False
    failures: int = 0
    last_error: str = ""
    jobs: int = 0
    texts: int = 0


class BatchJobs:
    """Belongs to the writer thread, but for `state`. `now_ms` is Unix time."""

    def __init__(
        self,
        provider: EmbeddingProvider,
        api: BatchApi,
        policy: BatchPolicy,
        cache: Callable[[], VectorCache | None],
        now_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
    ) -> None:
        self._name = provider.spec.provider
        self._dimensions = provider.spec.dimensions
        self._key = VectorIdentity.of(provider.spec).cache_key()
        self._api = api
        self._policy = policy
        self._cache = cache
        self._now_ms = now_ms
        self._born_ms = now_ms()
        self._lock = threading.Lock()
        self._steps: dict[str, Future[JobStep]] = {}
        self._next_look: dict[str, float] = {}
        self._troubles: dict[str, int] = {}
        self._unsure: set[str] = set()
        self._spoiled: set[bytes] = set()
        self._in_a_row = 0
        self._attempt = 1
        self._no_more = False
        self._given_up: set[str] = set()
        self._looked: set[str] = set()
        self.brought: set[bytes] = set()
        self.state = BatchJobsState(enabled=True)

    def begin(self) -> None:
        """A pass begins: it may make jobs, and waits for those under way."""
        self._no_more = self._in_a_row >= MOST_FAILURES
        self._given_up.clear()
        self._looked.clear()
        self.brought.clear()
        self._note()

    def are_due(self, texts: int) -> bool:
        """Whether jobs are to be made of so many texts."""
        return self._in_a_row < MOST_FAILURES and texts >= self._policy.least_texts

    def hashes(self) -> set[bytes]:
        """The texts that jobs under way are to bring."""
        cache = self._cache()
        return set() if cache is None else cache.jobs.hashes(self._key)

    def _jobs(self) -> list[BatchJob]:
        cache = self._cache()
        return [] if cache is None else cache.jobs.jobs(self._key)

    def make(self, texts: Texts, should_stop: Callable[[], bool]) -> bool:
        """Makes as many jobs of these texts as may be under way at once; whether there are more than fit into those."""
        cache = self._cache()
        most = 0 if cache is None else min(MOST_TEXTS, cache.max_entries // self._policy.max_jobs)
        if cache is None or self._no_more or most < self._policy.least_texts:
            return False
        left = (each for each in texts if each[0] not in self._spoiled)
        more = self._make(cache, left, most, should_stop)
        self._note()
        return more

    def _make(
        self, cache: VectorCache, left: Iterator[tuple[bytes, str]], most: int, should_stop: Callable[[], bool]
    ) -> bool:
        while some := _one_job(left, most, should_stop):
            if len(some) < self._policy.least_texts:
                return False
            if len(cache.jobs.jobs(self._key)) >= self._policy.max_jobs:
                return True
            name = f"memoryd-{secrets.token_hex(12)}"
            job = BatchJob(name, "", len(some), self._now_ms(), self._attempt)
            self._attempt = 1
            cache.jobs.begin(self._key, job, list(some))
            self._start(job, partial(self._made_steps(cache).submit, job, some))
        return False

    def _made_steps(self, cache: VectorCache) -> JobRunner:
        return JobRunner(self._api, cache.jobs, self._key, self._dimensions)

    def _start(self, job: BatchJob, call: Callable[[], JobStep]) -> None:
        self._steps[job.name] = on_thread("batch-job", call)

    def wait(self, tell: Callable[[int], None], should_stop: Callable[[], bool]) -> bool:
        """Waits until a job has come to its end; whether any was waited for.

        Where jobs are not to be waited for, each is looked at once.

        Raises:
            SyncCancelled: `should_stop` said so. The jobs stay, for the next pass.
        """
        before, told = {job.name for job in self._jobs()}, 0.0
        while waited := [job for job in self._jobs() if job.name not in self._given_up]:
            for job in waited:
                self._advance(job)
            if time.monotonic() >= told + _TELL_SECONDS:
                told = time.monotonic()
                tell(self._note().jobs)
            if before - {job.name for job in self._jobs()}:
                return True
            if not self._policy.wait and all(job.name in self._looked for job in waited):
                return False
            if should_stop():
                raise SyncCancelled("the sync run was cancelled; its batch jobs are looked at by the next one")
            time.sleep(_LOOK_UP_SECONDS)
        return bool(before - {job.name for job in self._jobs()})

    @property
    def reason(self) -> str:
        """Why texts are still without a vector; empty when none waits for a job."""
        state = self.state
        if not state.jobs:
            return ""
        jobs = "a batch job" if state.jobs == 1 else f"{state.jobs} batch jobs"
        later = "" if self._policy.wait else "; remote.batch.wait is off, so a later sync takes them in"
        trouble = f"; the last look failed: {state.last_error}" if self._given_up and state.last_error else ""
        return f"{state.texts} chunks are in {jobs} at {self._name}{later}{trouble}"

    def _advance(self, job: BatchJob) -> None:
        step = self._steps.get(job.name)
        if step is not None:
            if not step.done():
                return
            del self._steps[job.name]
            self._next_look[job.name] = time.monotonic() + self._policy.poll_seconds
            self._looked.add(job.name)
            self._settle(job, step)
        elif self._is_late(job) and job.name in self._looked:
            # Not before it was looked at: it may have been done while no daemon ran.
            self._time_out(job)
        elif time.monotonic() >= self._next_look.get(job.name, 0.0):
            self._look(job)

    def _look(self, job: BatchJob) -> None:
        cache = self._cache()
        if cache is not None:
            steps = self._made_steps(cache)
            self._start(job, lambda: steps.go_on(job))

    def _settle(self, job: BatchJob, future: "Future[JobStep]") -> None:
        try:
            step = future.result()
        except (OutcomeUnknown, CallerStopped):
            # Whether it was made is found out by its name.
            self._unsure.add(job.name)
        except ResourceMissing as error:
            self._fail(job, error.message, for_good=not self._may_be_made(job))
        except (MemorydError, RequestRefused) as error:
            self._trouble(job, str(error))
        else:
            self._troubles.pop(job.name, None)
            if step.state is None:
                self._not_found(job)
            elif step.state.over:
                self._over(job, step, step.state)

    def _trouble(self, job: BatchJob, reason: str) -> None:
        """A job that was not made is done with; one that cannot be looked at has been paid for, and stays."""
        if not self._may_be_made(job):
            self._fail(job, reason)
            return
        self._troubles[job.name] = self._troubles.get(job.name, 0) + 1
        self._said(reason)
        if self._troubles[job.name] >= MOST_TROUBLES:
            del self._troubles[job.name]
            self._given_up.add(job.name)

    def _may_be_made(self, job: BatchJob) -> bool:
        return (
            self._was_before(job)
            or job.name in self._unsure
            or any(each.job_id for each in self._jobs() if each.name == job.name)
        )

    def _was_before(self, job: BatchJob) -> bool:
        """Whether it was begun by a daemon that is no more."""
        return job.begun_at_ms < self._born_ms

    def _not_found(self, job: BatchJob) -> None:
        """It may be about to appear, where it was only just made."""
        if self._now_ms() - max(job.begun_at_ms, self._born_ms) < SEARCH_SECONDS * 1_000:
            return
        if self._was_before(job):
            self._end(job)
        else:
            self._fail(job, "the batch job was not made")

    def _over(self, job: BatchJob, step: JobStep, state: JobState) -> None:
        cache = self._cache()
        hashes = set() if cache is None else cache.jobs.hashes_of(job.name)
        self.brought |= step.brought
        # What it did not bring is asked for directly, where it shows whether the text is at fault.
        self._spoiled |= hashes - step.brought
        if state.reason or not step.brought:
            self._fail(job, f"batch job {job.job_id} {state.word}: {state.reason or 'it brought no vector'}")
            return
        self._in_a_row = 0
        self._end(job)

    def _is_late(self, job: BatchJob) -> bool:
        return self._now_ms() - job.begun_at_ms > self._policy.timeout_minutes * MINUTE_SECONDS * 1_000

    def _time_out(self, job: BatchJob) -> None:
        cache = self._cache()
        if cache is not None:
            steps = self._made_steps(cache)
            on_thread("batch-cancel", lambda: steps.cancel(job))
        again = job.attempt == 1
        self._fail(job, f"batch job {job.job_id} timed out after {self._policy.timeout_minutes} minutes")
        if again and self._in_a_row < MOST_FAILURES:
            self._attempt, self._no_more = 2, False

    def _fail(self, job: BatchJob, reason: str, *, for_good: bool = False) -> None:
        self._end(job)
        self._in_a_row = MOST_FAILURES if for_good else self._in_a_row + 1
        self._no_more = True
        self.state = replace(self.state, failures=self.state.failures + 1)
        self._said(f"{self._name}: {reason}" if not reason.startswith(self._name) else reason)

    def _end(self, job: BatchJob) -> None:
        cache = self._cache()
        if cache is not None:
            cache.jobs.end(job.name)
        self._note()

    def _said(self, reason: str) -> None:
        self._note(reason)

    def _note(self, error: str = "") -> BatchJobsState:
        jobs = self._jobs()
        self.state = replace(
            self.state,
            last_error=error or self.state.last_error,
            jobs=len(jobs),
            texts=sum(job.texts for job in jobs),
        )
        return self.state


def _one_job(texts: Iterator[tuple[bytes, str]], most: int, should_stop: Callable[[], bool]) -> dict[bytes, str]:
    """The texts of the next job; empty when there are none left."""
    some: dict[bytes, str] = {}
    size = 0
    for each, text in texts:
        if should_stop():
            raise SyncCancelled("the sync run was cancelled before its batch job was made")
        some[each] = text
        size += len(text.encode("utf-8", "replace"))
        if len(some) >= most or size >= MOST_JOB_BYTES:
            break
    return some
