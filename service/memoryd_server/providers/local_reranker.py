"""The reranker on this machine: llama.cpp with rank pooling, in a worker process of its own.

The process is not that of the embedding model, so that the vectors of queries do not wait for a reranking. One thread
owns it. It loads the model when a search needs it, scores passages one at a time until a call's deadline, and ends the
process after an idle period. From the measured speed follows how many passages a call can score in time.
"""

import contextlib
import importlib.util
import math
import queue
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field

from memoryd_server.errors import EmbeddingUnavailable
from memoryd_server.providers.model_files import BadModelFile, ModelFile, has_tensor, read_header
from memoryd_server.providers.reranker import MAX_PASSAGES, RerankFailure, RerankReply, clean_text
from memoryd_server.providers.worker_process import (
    ModelRefused,
    TextRefused,
    WorkerEnded,
    WorkerProcess,
    command,
)

WINDOW = 1024
"""Upper limit of the model's window in tokens, for the query and the passage together."""
FIRST_PAUSE_SECONDS = 1.0
MAX_PAUSE_SECONDS = 60.0

_PACKAGE = "llama_cpp"
_HEADS = ("cls.output.weight", "cls.weight")
_NOT_LOADED = "the model is not loaded; the next search loads it"
_LOADING = "the model is being loaded"
_CLOSED = "the local reranker is closed"
_POLL_SECONDS = 0.1
# How long after its deadline a call waits for a score that is being computed.
_GRACE_SECONDS = 10.0
# A measurement counts this much, and the earlier ones the rest.
_NEWEST = 0.2
# The time from the last score until the caller has the reply.
_RETURN_SECONDS = 0.01
# The share of a call's time that is planned; the rest is for the way to the worker and back.
_PLANNED = 0.8
_SAMPLE = ("which boat goes to the island?", "The red ferry sails to the island at dawn if the wind allows. " * 20)


@dataclass(frozen=True, slots=True)
class _Job:
    """A call; one without passages loads the model."""

    query: str = ""
    passages: tuple[str, ...] = ()
    deadline: float = 0.0
    answer: "Future[RerankReply]" = field(default_factory=Future)


class LocalReranker:
    """Scores by the model in one file. `threads` None means half the processors.

    The worker ends after `idle_seconds` without a call, which frees the model's memory. `first_pause_seconds` is the
    pause after a first failure; it doubles with each consecutive one. `start` starts a worker with a command.
    """

    provider = "local"
    endpoint = ""

    def __init__(
        self,
        file: ModelFile,
        *,
        idle_seconds: float = 300.0,
        threads: int | None = None,
        first_pause_seconds: float = FIRST_PAUSE_SECONDS,
        package: str = _PACKAGE,
        start: Callable[[Sequence[str]], WorkerProcess] = WorkerProcess,
    ) -> None:
        self.file = file
        file.when_ready(self._use_file)
        self.model = file.name
        self._idle_seconds = idle_seconds
        self._threads = threads
        self._first_pause_seconds = first_pause_seconds
        self._package = package
        self._start = start
        self._speed = _Speed()
        self._lock = threading.Lock()
        self._jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._worker: WorkerProcess | None = None
        self._problem = _NOT_LOADED
        self._not_before = 0.0
        self._failures = 0
        self._closed = False

    @property
    def problem(self) -> str:
        """See `Reranker`."""
        return _CLOSED if self._closed else self._problem

    def prepare(self) -> None:
        """See `Reranker`. Loads the model, unless it is being loaded or has just failed."""
        with self._lock:
            if self._closed or self._problem in ("", _LOADING) or time.monotonic() < self._not_before:
                return
            self._problem = _LOADING
            self._submit(_Job())

    def capacity(self, seconds: float) -> int:
        """See `Reranker`. As many as the measured speed allows; unlimited before the model was loaded."""
        return self._speed.pairs_in(seconds)

    def rerank(self, query: str, passages: Sequence[str], deadline: float) -> RerankReply:
        """See `Reranker`."""
        job = _Job(clean_text(query), tuple(map(clean_text, passages[:MAX_PASSAGES])), deadline)
        with self._lock:
            if self.problem:
                raise RerankFailure(self.problem)
            self._submit(job)
        try:
            return job.answer.result(max(0.0, deadline - time.monotonic()) + _GRACE_SECONDS)
        except TimeoutError:
            job.answer.cancel()
            raise RerankFailure("the local reranker did not answer in time") from None

    def close(self) -> None:
        """See `Reranker`. Returns after the worker has ended; stops a download."""
        with self._lock:
            self._closed = True
            thread = self._thread
        self.file.close()
        self._jobs.put(None)
        if thread is not None:
            # The thread may still start a worker until it takes the end of the jobs from the queue.
            while thread.is_alive():
                if (worker := self._worker) is not None:
                    worker.kill()
                thread.join(_POLL_SECONDS)

    def _use_file(self) -> None:
        """Load a file that was downloaded with the next search, without a pause."""
        with self._lock:
            self._not_before, self._failures = 0.0, 0
            if self._problem != _LOADING:
                self._problem = _NOT_LOADED

    def _submit(self, job: _Job) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="local-reranker", daemon=True)
            self._thread.start()
        self._jobs.put(job)

    # The methods below run on the thread that owns the worker.

    def _run(self) -> None:
        try:
            while (job := self._next()) is not None:
                if job.answer.set_running_or_notify_cancel():
                    self._process(job)
        finally:
            self._end_worker()

    def _next(self) -> _Job | None:
        while self._worker is not None:
            try:
                return self._jobs.get(timeout=self._idle_seconds)
            except queue.Empty:
                with self._lock:
                    self._problem = _NOT_LOADED
                self._end_worker()
        return self._jobs.get()

    def _process(self, job: _Job) -> None:
        try:
            if self._worker is None and not self._closed:
                self._load()
            job.answer.set_result(self._score(job) if job.passages else RerankReply((), 0))
        except RerankFailure as failure:
            job.answer.set_exception(failure)
        except (WorkerEnded, ModelRefused, EmbeddingUnavailable, BadModelFile, OSError) as error:
            job.answer.set_exception(RerankFailure(self._fail(str(error))))
        except Exception as fault:  # noqa: BLE001 -- an error must reach the caller, and never end this thread
            job.answer.set_exception(RerankFailure(self._fail(f"the reranking worker cannot run: {fault!r}")))
        # Else the failure and its frames would stay in memory until the next call.
        del job

    def _load(self) -> None:
        """Start the worker and measure its speed.

        Raises:
            EmbeddingUnavailable, BadModelFile, OSError, ModelRefused, WorkerEnded: the model cannot be used.
        """
        if importlib.util.find_spec(self._package) is None:
            raise EmbeddingUnavailable("llama-cpp-python is missing: install memoryd[local]")
        path = self.file.path()
        window = min(read_header(path).window, WINDOW)
        if not has_tensor(path, _HEADS):
            # llama.cpp loads such a file without an error, and its scores mean nothing.
            raise BadModelFile(f"{path.name} has no classification head, so it is not a reranking model")
        self._worker = self._start(command("rank", path, window, self._threads))
        try:
            self._worker.load()
            # The first score includes the preparations of llama.cpp and is not measured.
            self._worker.score(*_SAMPLE)
            self._measured(*_SAMPLE)
        except TextRefused as error:
            raise ModelRefused(str(error)) from error
        with self._lock:
            self._problem, self._failures = "", 0

    def _score(self, job: _Job) -> RerankReply:
        """Return the scores of a job up to its deadline; at least one passage is tried.

        Raises:
            RerankFailure: the deadline has passed, or no passage has a score.
            WorkerEnded: the worker ended.
        """
        scores: list[float | None] = [None] * len(job.passages)
        tokens, refusal = 0, "the time was used up before the first score"
        for place, passage in enumerate(job.passages):
            left = job.deadline - time.monotonic()
            if left <= 0 or (place and left < self._speed.pair_seconds + _RETURN_SECONDS):
                break
            try:
                scores[place], read = self._measured(job.query, passage)
                tokens += read
            except TextRefused as error:
                refusal = f"the local model cannot score the texts: {error}"
        if all(score is None for score in scores):
            raise RerankFailure(refusal)
        return RerankReply(tuple(scores), tokens)

    def _measured(self, query: str, passage: str) -> tuple[float, int]:
        worker = self._worker
        if worker is None:
            raise WorkerEnded("it is not running")
        began = time.monotonic()
        found = worker.score(query, passage)
        self._speed.add(found.tokens, time.monotonic() - began)
        if not 0 <= found.score <= 1:
            raise TextRefused("the score is not a number from 0 to 1")
        return found.score, found.tokens

    def _fail(self, problem: str) -> str:
        """End the worker and delay the next one. Return the message for the caller of the current job."""
        self._end_worker()
        pause = min(MAX_PAUSE_SECONDS, self._first_pause_seconds * 2.0 ** min(self._failures, 16))
        with self._lock:
            self._failures += 1
            self._not_before = time.monotonic() + pause
            self._problem = f"the local reranker cannot be used: {problem}"
            return self._problem

    def _end_worker(self) -> None:
        worker, self._worker = self._worker, None
        if worker is not None:
            # An error while the old worker is closed must not prevent the thread from starting the next one.
            with contextlib.suppress(OSError, ValueError):
                worker.close()


class _Speed:
    """The decayed means of the tokens of a pair and of the seconds of a token."""

    def __init__(self) -> None:
        self._tokens = self._token_seconds = 0.0

    @property
    def pair_seconds(self) -> float:
        """The seconds of a pair of mean length; 0 before the first measurement."""
        return self._tokens * self._token_seconds

    def add(self, tokens: int, seconds: float) -> None:
        """Count a pair."""
        each = seconds / max(1, tokens)
        share = _NEWEST if self._tokens else 1.0
        self._tokens += share * (tokens - self._tokens)
        self._token_seconds += share * (each - self._token_seconds)

    def pairs_in(self, seconds: float) -> int:
        """Return how many pairs can be scored in this time, at least 1 and at most `MAX_PASSAGES`."""
        if self.pair_seconds <= 0 or not math.isfinite(seconds):
            return MAX_PASSAGES
        return max(1, min(MAX_PASSAGES, int(_PLANNED * seconds / self.pair_seconds)))
