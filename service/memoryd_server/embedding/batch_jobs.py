"""BatchJobs: the provider's batch jobs of one index: submit, poll, store the vectors, retry.

A job's vectors go into the cache, from where the embedding run takes them. So neither an interrupted run nor a killed
daemon loses anything: the next run polls the same jobs. Each step of a job blocks, on a separate thread, which may
outlive the run that started it.
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

_VECTOR_BATCH = 256
_NO_LIMIT = float("inf")


@dataclass(frozen=True, slots=True)
class JobStep:
    """The job's state after a step (None if the provider has no such job), and the hashes of the texts delivered."""

    state: JobState | None
    brought: frozenset[bytes] = frozenset()
    dimensions: int = 0


class JobRunner:
    """Runs the steps of jobs at one provider. Thread-safe."""

    def __init__(self, api: BatchApi, table: BatchJobTable, key: CacheKey, dimensions: int | None) -> None:
        self._api = api
        self._table = table
        self._key = key
        self._dimensions = dimensions
        self._wait_limit = WaitLimit(_NO_LIMIT, lambda: False)

    def submit(self, job: BatchJob, texts: Mapping[bytes, str]) -> JobStep:
        """Submit a job that is in the table, and poll it."""
        keyed = {each.hex(): text for each, text in texts.items()}
        return self._poll_submitted(job, self._api.submit(job.name, keyed, self._wait_limit))

    def poll(self, job: BatchJob) -> JobStep:
        """Poll a job. Find it by its name first if it is unknown whether it was submitted."""
        if job.job_id:
            return self._poll(job, job.job_id)
        job_id = self._api.find(job.name, self._wait_limit)
        return JobStep(None) if job_id is None else self._poll_submitted(job, job_id)

    def cancel(self, job: BatchJob) -> None:
        """Cancel a job at the provider."""
        if job.job_id:
            self._api.cancel(job.job_id, self._wait_limit)

    def _poll_submitted(self, job: BatchJob, job_id: str) -> JobStep:
        self._table.set_job_id(job.name, job_id)
        return self._poll(job, job_id)

    def _poll(self, job: BatchJob, job_id: str) -> JobStep:
        state = self._api.job_state(job_id, self._wait_limit)
        brought: set[bytes] = set()
        dimensions = 0
        for output in state.outputs if state.over else ():
            answers = self._api.answers(output, self._wait_limit)
            while batch := dict(islice(answers, _VECTOR_BATCH)):
                vectors = self._valid_vectors(batch)
                dimensions = len(next(iter(vectors.values()), b"")) // FLOAT_BYTES or dimensions
                brought.update(self._table.put_vectors(self._key, job.name, vectors))
        return JobStep(state, frozenset(brought), dimensions)

    def _valid_vectors(self, answers: Mapping[str, Any]) -> dict[bytes, bytes]:
        """Return the valid vectors by the hash of their text. The other texts are embedded without a job."""
        vectors: dict[bytes, bytes] = {}
        for key, values in answers.items():
            with suppress(InvalidVector, ValueError):
                vectors[bytes.fromhex(key)] = to_blob(unit(values, self._dimensions))
        return vectors


MAX_FAILURES = 2
"""After this many failures in a row, no job is submitted until the daemon starts again."""
MAX_POLL_FAILURES = 3
"""After this many failed polls of a job in a row, the run stops waiting for it; the next run polls it again."""
SEARCH_SECONDS = 10.0
"""How long a job that may have been submitted is searched for before it counts as not submitted."""

MINUTE_SECONDS = 60.0

_CHECK_SECONDS = 0.05
_REPORT_SECONDS = 1.0

Texts = Iterable[tuple[bytes, str]]
"""Texts without a vector, with their hashes, each text once."""


@dataclass(frozen=True, slots=True)
class BatchJobsState:
    """The state of the batch jobs. `failures` counts since the start; `texts` is the number of texts in the `jobs`."""

    enabled: bool = False
    failures: int = 0
    last_error: str = ""
    jobs: int = 0
    texts: int = 0


class BatchJobs:
    """The batch jobs of one index. For the writer thread, except `state`. `now_ms` is Unix milliseconds."""

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
        self._started_ms = now_ms()
        self._lock = threading.Lock()
        self._steps: dict[str, Future[JobStep]] = {}
        self._next_poll: dict[str, float] = {}
        self._poll_failures: dict[str, int] = {}
        self._maybe_submitted: set[str] = set()
        self._undelivered: set[bytes] = set()
        self._failures_in_a_row = 0
        self._attempt = 1
        self._submits_no_more = False
        self._abandoned: set[str] = set()
        self._polled: set[str] = set()
        self.brought: set[bytes] = set()
        self.state = BatchJobsState(enabled=True)

    def begin_run(self) -> None:
        """Begin an embedding run, which may submit jobs and waits for the running ones."""
        self._submits_no_more = self._failures_in_a_row >= MAX_FAILURES
        self._abandoned.clear()
        self._polled.clear()
        self.brought.clear()
        self._update_state()

    def are_due(self, texts: int) -> bool:
        """Return whether this number of texts is enough for batch jobs."""
        return self._failures_in_a_row < MAX_FAILURES and texts >= self._policy.least_texts

    def hashes(self) -> set[bytes]:
        """Return the hashes of the texts in running jobs."""
        cache = self._cache()
        return set() if cache is None else cache.jobs.hashes(self._key)

    def _jobs(self) -> list[BatchJob]:
        cache = self._cache()
        return [] if cache is None else cache.jobs.jobs(self._key)

    def submit(self, texts: Texts, should_stop: Callable[[], bool]) -> bool:
        """Submit these texts in as many jobs as may run concurrently; return whether texts are left."""
        cache = self._cache()
        max_texts = 0 if cache is None else min(MOST_TEXTS, cache.max_entries // self._policy.max_jobs)
        if cache is None or self._submits_no_more or max_texts < self._policy.least_texts:
            return False
        remaining = (each for each in texts if each[0] not in self._undelivered)
        more = self._submit_all(cache, remaining, max_texts, should_stop)
        self._update_state()
        return more

    def _submit_all(
        self, cache: VectorCache, texts: Iterator[tuple[bytes, str]], max_texts: int, should_stop: Callable[[], bool]
    ) -> bool:
        while batch := _next_job(texts, max_texts, should_stop):
            if len(batch) < self._policy.least_texts:
                return False
            if len(cache.jobs.jobs(self._key)) >= self._policy.max_jobs:
                return True
            name = f"memoryd-{secrets.token_hex(12)}"
            job = BatchJob(name, "", len(batch), self._now_ms(), self._attempt)
            self._attempt = 1
            cache.jobs.add(self._key, job, list(batch))
            self._start(job, partial(self._runner(cache).submit, job, batch))
        return False

    def _runner(self, cache: VectorCache) -> JobRunner:
        return JobRunner(self._api, cache.jobs, self._key, self._dimensions)

    def _start(self, job: BatchJob, step: Callable[[], JobStep]) -> None:
        self._steps[job.name] = on_thread("batch-job", step)

    def wait(self, report: Callable[[int], None], should_stop: Callable[[], bool]) -> bool:
        """Wait until a job has ended; return whether one has. `report` is called with the number of jobs.

        If the policy does not wait for jobs, each job is polled once.

        Raises:
            SyncCancelled: `should_stop` returned true. The jobs keep running, for the next run.
        """
        before, reported = {job.name for job in self._jobs()}, 0.0
        while waiting := [job for job in self._jobs() if job.name not in self._abandoned]:
            for job in waiting:
                self._advance(job)
            if time.monotonic() >= reported + _REPORT_SECONDS:
                reported = time.monotonic()
                report(self._update_state().jobs)
            if before - {job.name for job in self._jobs()}:
                return True
            if not self._policy.wait and all(job.name in self._polled for job in waiting):
                return False
            if should_stop():
                raise SyncCancelled("the sync run was cancelled; its batch jobs continue, and the next run polls them")
            time.sleep(_CHECK_SECONDS)
        return bool(before - {job.name for job in self._jobs()})

    @property
    def reason(self) -> str:
        """Why texts are still without a vector; empty if none is in a job."""
        state = self.state
        if not state.jobs:
            return ""
        jobs = "a batch job" if state.jobs == 1 else f"{state.jobs} batch jobs"
        later = "" if self._policy.wait else "; remote.batch.wait is off, so a later sync stores their vectors"
        problem = f"; the last poll failed: {state.last_error}" if self._abandoned and state.last_error else ""
        return f"{state.texts} chunks are in {jobs} at {self._name}{later}{problem}"

    def _advance(self, job: BatchJob) -> None:
        step = self._steps.get(job.name)
        if step is not None:
            if not step.done():
                return
            del self._steps[job.name]
            self._next_poll[job.name] = time.monotonic() + self._policy.poll_seconds
            self._polled.add(job.name)
            self._settle(job, step)
        elif self._is_late(job) and job.name in self._polled:
            # Only after a poll: the job may have ended while no daemon ran.
            self._time_out(job)
        elif time.monotonic() >= self._next_poll.get(job.name, 0.0):
            self._poll(job)

    def _poll(self, job: BatchJob) -> None:
        cache = self._cache()
        if cache is not None:
            runner = self._runner(cache)
            self._start(job, lambda: runner.poll(job))

    def _settle(self, job: BatchJob, future: "Future[JobStep]") -> None:
        try:
            step = future.result()
        except (OutcomeUnknown, CallerStopped):
            # The next poll searches for the job by its name.
            self._maybe_submitted.add(job.name)
        except ResourceMissing as error:
            self._fail(job, error.message, for_good=not self._may_exist(job))
        except (MemorydError, RequestRefused) as error:
            self._record_error(job, str(error))
        else:
            self._poll_failures.pop(job.name, None)
            if step.state is None:
                self._handle_not_found(job)
            elif step.state.over:
                self._handle_end(job, step, step.state)

    def _record_error(self, job: BatchJob, reason: str) -> None:
        """End a job that was not submitted; keep one that cannot be polled, because it has been paid for."""
        if not self._may_exist(job):
            self._fail(job, reason)
            return
        self._poll_failures[job.name] = self._poll_failures.get(job.name, 0) + 1
        self._update_state(reason)
        if self._poll_failures[job.name] >= MAX_POLL_FAILURES:
            del self._poll_failures[job.name]
            self._abandoned.add(job.name)

    def _may_exist(self, job: BatchJob) -> bool:
        """Return whether the job may exist at the provider."""
        return (
            self._is_older(job)
            or job.name in self._maybe_submitted
            or any(each.job_id for each in self._jobs() if each.name == job.name)
        )

    def _is_older(self, job: BatchJob) -> bool:
        """Return whether an earlier daemon process added the job."""
        return job.begun_at_ms < self._started_ms

    def _handle_not_found(self, job: BatchJob) -> None:
        """End a job that the provider does not have, unless it was submitted so recently that it may still appear."""
        if self._now_ms() - max(job.begun_at_ms, self._started_ms) < SEARCH_SECONDS * 1_000:
            return
        if self._is_older(job):
            self._end(job)
        else:
            self._fail(job, f"batch job {job.name} was not created: the provider has no job of that name")

    def _handle_end(self, job: BatchJob, step: JobStep, state: JobState) -> None:
        cache = self._cache()
        hashes = set() if cache is None else cache.jobs.hashes_of(job.name)
        self.brought |= step.brought
        # Texts without a vector are embedded directly, which shows whether the provider refuses them.
        self._undelivered |= hashes - step.brought
        if state.reason or not step.brought:
            self._fail(job, f"batch job {job.job_id} {state.word}: {state.reason or 'it returned no vector'}")
            return
        self._failures_in_a_row = 0
        self._end(job)

    def _is_late(self, job: BatchJob) -> bool:
        return self._now_ms() - job.begun_at_ms > self._policy.timeout_minutes * MINUTE_SECONDS * 1_000

    def _time_out(self, job: BatchJob) -> None:
        cache = self._cache()
        if cache is not None:
            runner = self._runner(cache)
            on_thread("batch-cancel", lambda: runner.cancel(job))
        retry = job.attempt == 1
        self._fail(job, f"batch job {job.job_id} timed out after {self._policy.timeout_minutes} minutes")
        if retry and self._failures_in_a_row < MAX_FAILURES:
            self._attempt, self._submits_no_more = 2, False

    def _fail(self, job: BatchJob, reason: str, *, for_good: bool = False) -> None:
        self._end(job)
        self._failures_in_a_row = MAX_FAILURES if for_good else self._failures_in_a_row + 1
        self._submits_no_more = True
        self.state = replace(self.state, failures=self.state.failures + 1)
        self._update_state(f"{self._name}: {reason}" if not reason.startswith(self._name) else reason)

    def _end(self, job: BatchJob) -> None:
        cache = self._cache()
        if cache is not None:
            cache.jobs.delete(job.name)
        self._update_state()

    def _update_state(self, error: str = "") -> BatchJobsState:
        jobs = self._jobs()
        self.state = replace(
            self.state,
            last_error=error or self.state.last_error,
            jobs=len(jobs),
            texts=sum(job.texts for job in jobs),
        )
        return self.state


def _next_job(texts: Iterator[tuple[bytes, str]], max_texts: int, should_stop: Callable[[], bool]) -> dict[bytes, str]:
    """Return the texts of the next job by hash; empty if none are left."""
    batch: dict[bytes, str] = {}
    size = 0
    for content_hash, text in texts:
        if should_stop():
            raise SyncCancelled("the sync run was cancelled before its batch job was submitted")
        batch[content_hash] = text
        size += len(text.encode("utf-8", "replace"))
        if len(batch) >= max_texts or size >= MOST_JOB_BYTES:
            break
    return batch
