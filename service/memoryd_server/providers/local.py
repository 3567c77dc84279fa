"""Embeddings on this machine: llama.cpp in one worker process, shared by all agents.

One thread owns the worker. It starts the worker for the first text, passes texts to it one at a time, queries before
documents, and ends it after an idle period. When the worker dies, the text under way fails; the next worker starts
after a pause that doubles with each consecutive death.
"""

import contextlib
import importlib.util
import itertools
import queue
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from enum import IntEnum

import numpy as np

from memoryd_server.errors import EmbeddingOutage, EmbeddingUnavailable
from memoryd_server.model import EmbeddingSpec
from memoryd_server.providers.batching import Answer
from memoryd_server.providers.model_files import BadModelFile, ModelFile, ModelHeader, read_header
from memoryd_server.providers.provider import (
    LOCAL_WINDOW,
    PLAIN_TEXT,
    EmbeddingFailure,
    ProviderState,
    ProviderStatus,
    spec_for,
)
from memoryd_server.providers.worker_process import (
    ModelRefused,
    TextRefused,
    WorkerEnded,
    WorkerProcess,
    WorkerVector,
    command,
)
from memoryd_server.vectors import InvalidVector, Vector, unit

PACKAGE = "llama_cpp"
FIRST_PAUSE_SECONDS = 1.0
MAX_PAUSE_SECONDS = 60.0
MAX_WAIT_FOR_RESTART_SECONDS = 5.0
"""Indexing waits for a restart that is at most this far away; otherwise its texts stay pending."""

_INDEXING_SECONDS = 600.0
_POLL_SECONDS = 0.1
_MAX_DEATHS_PER_TEXT = 2
# Bounds the text that is sent to the tokenizer: tokens are shorter, except in whitespace and noise.
_MAX_CHARS_PER_TOKEN = 64


class _Priority(IntEnum):
    END = 0
    QUERY = 1
    DOCUMENT = 2


@dataclass(order=True, slots=True)
class _Job:
    priority: _Priority
    number: int
    text: str = field(compare=False, default="")
    answer: "Future[WorkerVector]" = field(compare=False, default_factory=Future)


class _WorkerDied(EmbeddingUnavailable):
    """The worker died while it embedded this text."""


class _RestartPending(EmbeddingUnavailable):
    """No worker is started before `retry_after_seconds` have passed."""


class LocalProvider:
    """Embeds with the model in one file; one instance serves all agents. `threads` None means half the processors.

    The worker ends after `idle_seconds` without a call, which frees the model's memory. `first_pause_seconds` is the
    pause after a first death. `on_ready` is called, on any thread, when the file was downloaded.
    """

    def __init__(
        self,
        file: ModelFile,
        *,
        idle_seconds: float = 300.0,
        threads: int | None = None,
        first_pause_seconds: float = FIRST_PAUSE_SECONDS,
        package: str = PACKAGE,
        on_ready: "Callable[[LocalProvider], None]" = lambda _: None,
    ) -> None:
        self.file = file
        file.when_ready(self._use_file)
        self._on_ready = on_ready
        self._check_lock = threading.Lock()
        self._idle_seconds = idle_seconds
        self._threads = threads
        self._first_pause_seconds = first_pause_seconds
        self._package = package
        self._lock = threading.Lock()
        self._jobs: queue.PriorityQueue[_Job] = queue.PriorityQueue()
        self._numbers = itertools.count()
        self._thread: threading.Thread | None = None
        self._worker: WorkerProcess | None = None
        self._deaths = 0
        self._not_before = 0.0
        self._problem = ""
        self._calls = self._tokens = self._failures = 0
        self._closed = False
        spec = spec_for("local", file.name)
        self._spec = replace(spec, max_input_tokens=min(spec.max_input_tokens, LOCAL_WINDOW))
        self._header: ModelHeader | None = None
        self._unavailable: tuple[ProviderState, str] | None = (
            ProviderState.STARTING,
            "the model's file has not been checked yet",
        )

    @property
    def spec(self) -> EmbeddingSpec:
        """See `EmbeddingProvider`. The dimensions are known once a `refresh` has found the model's file."""
        return self._spec

    @property
    def problem(self) -> str:
        """See `EmbeddingProvider`."""
        return self._state()[1]

    def refresh(self) -> None:
        """See `EmbeddingProvider`. Starts the download of a missing model."""
        with contextlib.suppress(EmbeddingUnavailable):
            self._check_available()

    def embed_query(self, text: str, deadline: float) -> Vector:
        """See `EmbeddingProvider`. The deadline includes starting the worker."""
        job = self._submit(_Priority.QUERY, self._spec.query_prefix + text)
        try:
            answer = self._validated(job.answer.result(max(0.0, deadline - time.monotonic())))
        except TimeoutError:
            job.answer.cancel()
            raise EmbeddingOutage("the local model did not answer in time") from None
        except TextRefused as error:
            raise EmbeddingUnavailable(f"the local model cannot embed the text: {error}") from None
        if isinstance(answer, EmbeddingFailure):
            raise EmbeddingUnavailable(answer.reason)
        return answer

    def embed_documents(self, texts: Sequence[str], should_stop: Callable[[], bool]) -> list[Vector | EmbeddingFailure]:
        """See `EmbeddingProvider`. A text on which the worker dies is retried once, then it fails."""
        answers: list[Answer] = []
        # Failures after the last vector may be the model's fault and not the texts'.
        settled = 0
        reason = "stopped"
        try:
            while len(answers) < len(texts) and not should_stop():
                answer = self._embed_document(texts[len(answers)], should_stop)
                if answer is None:
                    break
                answers.append(answer)
                settled = settled if isinstance(answer, EmbeddingFailure) else len(answers)
            if settled < len(answers) and self._embeds_plain_text(should_stop):
                settled = len(answers)
        except EmbeddingUnavailable as error:
            if not settled:
                raise
            reason = error.message
        return answers[:settled] + [EmbeddingFailure(reason, transient=True)] * (len(texts) - settled)

    def _embeds_plain_text(self, should_stop: Callable[[], bool]) -> bool:
        """Return whether a plain text gets a vector; False when stopped.

        Raises:
            EmbeddingUnavailable: the plain text gets no vector.
        """
        answer = None if should_stop() else self._embed_document(PLAIN_TEXT, should_stop)
        if isinstance(answer, EmbeddingFailure):
            raise EmbeddingUnavailable(answer.reason)
        return answer is not None

    def _embed_document(self, text: str, should_stop: Callable[[], bool]) -> Answer | None:
        """Return the vector or the failure of `text`; None when stopped."""
        text = self._spec.document_prefix + text
        deaths = 0
        while True:
            try:
                return self._wait_for(self._submit(_Priority.DOCUMENT, text), should_stop)
            except _WorkerDied as death:
                deaths += 1
                if deaths == _MAX_DEATHS_PER_TEXT:
                    return EmbeddingFailure(f"{death.message}, twice for this text")
                pause = death.retry_after_seconds or 0.0
            except _RestartPending as pending:
                pause = pending.retry_after_seconds or 0.0
                if pause > MAX_WAIT_FOR_RESTART_SECONDS:
                    raise
            if not _sleep(pause, should_stop):
                return None

    def _wait_for(self, job: _Job, should_stop: Callable[[], bool]) -> Answer | None:
        until = time.monotonic() + _INDEXING_SECONDS
        while not should_stop():
            try:
                return self._validated(job.answer.result(_POLL_SECONDS))
            except TimeoutError:
                if time.monotonic() > until:
                    job.answer.cancel()
                    raise EmbeddingUnavailable("the local model did not answer in time") from None
            except TextRefused as error:
                return EmbeddingFailure(f"the local model cannot embed the text: {error}")
        job.answer.cancel()
        return None

    def _validated(self, embedded: WorkerVector) -> Answer:
        try:
            return unit(np.frombuffer(embedded.vector, np.float32), self._spec.dimensions)
        except InvalidVector as error:
            return EmbeddingFailure(f"the local model: {error}")

    def status(self) -> ProviderStatus:
        """See `EmbeddingProvider`. The state is `starting` if the model was being downloaded at the last look."""
        state, reason = self._state()
        return ProviderStatus(state, reason, self._calls, self._tokens, failures=self._failures)

    def _state(self) -> tuple[ProviderState, str]:
        if self._closed:
            return ProviderState.UNAVAILABLE, "the local model is closed"
        if (unavailable := self._unavailable) is not None:
            state, reason = unavailable
            progress = self.file.progress if state is ProviderState.STARTING else ""
            return state, f"{reason} ({progress})" if progress else reason
        problem, left = self._problem, self._not_before - time.monotonic()
        if not problem:
            return ProviderState.READY, ""
        return ProviderState.UNAVAILABLE, f"{problem}; it {_restart_text(left)}"

    def close(self) -> None:
        """See `EmbeddingProvider`. Returns after the worker has ended; stops a download."""
        with self._lock:
            self._closed = True
            thread = self._thread
        self.file.close()
        self._jobs.put(_Job(_Priority.END, next(self._numbers)))
        if thread is not None:
            # The thread may still start a worker until it takes the END job from the queue.
            while thread.is_alive():
                if (worker := self._worker) is not None:
                    worker.kill()
                thread.join(_POLL_SECONDS)

    def _submit(self, priority: _Priority, text: str) -> _Job:
        """Put a text into the queue.

        Raises:
            EmbeddingUnavailable: the text cannot be embedded now, so there is nothing to wait for.
        """
        self._check_available()
        job = _Job(priority, next(self._numbers), text[: self._spec.max_input_tokens * _MAX_CHARS_PER_TOKEN])
        with self._lock:
            if self._closed:
                raise EmbeddingUnavailable("the local model is closed")
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="local-embedding", daemon=True)
                self._thread.start()
            self._jobs.put(job)
        return job

    def _check_available(self) -> None:
        """Look for the package and the model's file. Blocks.

        Raises:
            EmbeddingUnavailable: one of them is missing or cannot be used.
        """
        # One check at a time: one that began before the end of a download must not have the last word.
        with self._check_lock:
            try:
                self._check_package()
                self._read_header()
            except EmbeddingUnavailable as error:
                state = ProviderState.STARTING if self.file.downloading else ProviderState.UNAVAILABLE
                self._unavailable = state, error.message
                raise
            self._unavailable = None

    def _use_file(self) -> None:
        # A file that cannot be used is reported too, so that its reason takes the place of the earlier one.
        self.refresh()
        self._on_ready(self)

    @property
    def is_installed(self) -> bool:
        """Whether llama.cpp is installed."""
        return importlib.util.find_spec(self._package) is not None

    def _check_package(self) -> None:
        if not self.is_installed:
            raise EmbeddingUnavailable("llama-cpp-python is missing: install memoryd[local]")

    def _read_header(self) -> ModelHeader:
        if self._header is not None:
            return self._header
        path = self.file.path()
        try:
            header = read_header(path)
        except BadModelFile as error:
            raise EmbeddingUnavailable(f"the local model cannot be used: {error}") from error
        except OSError as error:
            raise EmbeddingUnavailable(f"the model {path} cannot be read: {error.strerror}") from error
        most = min(self._spec.max_input_tokens, header.window)
        self._spec = replace(self._spec, dimensions=header.dimensions, max_input_tokens=most)
        self._header = header
        return header

    # The methods below run on the thread that owns the worker.

    def _run(self) -> None:
        try:
            while (job := self._next()).priority is not _Priority.END:
                if job.answer.set_running_or_notify_cancel():
                    self._process(job)
        finally:
            self._end_worker()
            self._fail_all()

    def _next(self) -> _Job:
        while self._worker is not None:
            try:
                return self._jobs.get(timeout=self._idle_seconds)
            except queue.Empty:
                self._end_worker()
        return self._jobs.get()

    def _process(self, job: _Job) -> None:
        try:
            embedded = self._ready_worker().embed(job.text)
        except (EmbeddingUnavailable, TextRefused) as error:
            self._failures += 1
            job.answer.set_exception(error)
        except WorkerEnded as death:
            self._failures += 1
            message = self._schedule_restart(f"the embedding worker failed: {death}")
            left = self._not_before - time.monotonic()
            job.answer.set_exception(_WorkerDied(message, retry_after_seconds=left))
        except Exception as fault:  # noqa: BLE001 -- an error must reach the caller, and never end this thread
            self._failures += 1
            job.answer.set_exception(
                EmbeddingUnavailable(self._schedule_restart(f"the embedding worker cannot run: {fault!r}"))
            )
        else:
            self._calls += 1
            self._tokens += embedded.tokens
            self._deaths, self._problem = 0, ""
            job.answer.set_result(embedded)

    def _ready_worker(self) -> WorkerProcess:
        if self._worker is not None:
            return self._worker
        left = self._not_before - time.monotonic()
        if left > 0:
            raise _RestartPending(f"{self._problem}; it {_restart_text(left)}", retry_after_seconds=left)
        if self._closed:
            raise EmbeddingUnavailable("the local model is closed")
        self._worker = WorkerProcess(self._command())
        try:
            self._worker.load()
        except ModelRefused as error:
            raise EmbeddingUnavailable(self._schedule_restart(f"the local model cannot be loaded: {error}")) from error
        return self._worker

    def _command(self) -> list[str]:
        return command("embed", self.file.path(), self._spec.max_input_tokens, self._threads)

    def _schedule_restart(self, problem: str) -> str:
        """End the worker and delay the next one. Return the message for the caller of the current job."""
        self._end_worker()
        pause = min(MAX_PAUSE_SECONDS, self._first_pause_seconds * 2.0 ** min(self._deaths, 16))
        self._deaths += 1
        self._problem = problem
        self._not_before = time.monotonic() + pause
        return problem

    def _end_worker(self) -> None:
        worker, self._worker = self._worker, None
        if worker is not None:
            # An error while the old worker is closed must not prevent the thread from starting the next one.
            with contextlib.suppress(OSError, ValueError):
                worker.close()

    def _fail_all(self) -> None:
        with contextlib.suppress(queue.Empty):
            while True:
                job = self._jobs.get_nowait()
                if job.answer.set_running_or_notify_cancel():
                    job.answer.set_exception(EmbeddingUnavailable("the local model is closed"))


def _restart_text(left: float) -> str:
    return f"restarts in {left:.0f} s" if left >= 1 else "restarts with the next call"


def _sleep(seconds: float, should_stop: Callable[[], bool]) -> bool:
    """Sleep for `seconds` and return True; return False immediately when stopped."""
    until = time.monotonic() + seconds
    while (left := until - time.monotonic()) > 0:
        if should_stop():
            return False
        time.sleep(min(left, _POLL_SECONDS))
    return True
