"""One step of one batch job: making it, looking at it, taking its vectors in. Blocks, on a thread of its own."""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from typing import Any

from memoryd_server.embed import BatchApi, JobState, Patience
from memoryd_server.store.protocol import BatchJobTable
from memoryd_server.store.rows import BatchJob, CacheKey
from memoryd_server.vectors import FLOAT_BYTES, BadVector, to_blob, unit

_AT_ONCE = 256
_ENDLESS = float("inf")


@dataclass(frozen=True, slots=True)
class Step:
    """What a step showed: the job's state, None where the provider has no such job, and the texts it has brought."""

    state: JobState | None
    brought: frozenset[bytes] = frozenset()
    dimensions: int = 0


class BatchSteps:
    """Carries steps out for jobs of one maker. For any thread."""

    def __init__(self, api: BatchApi, book: BatchJobTable, key: CacheKey, dimensions: int | None) -> None:
        self._api = api
        self._book = book
        self._key = key
        self._dimensions = dimensions
        self._patience = Patience(_ENDLESS, lambda: False)

    def submit(self, job: BatchJob, texts: Mapping[bytes, str]) -> Step:
        """Makes a job that the book holds, and looks at it."""
        keyed = {each.hex(): text for each, text in texts.items()}
        return self._made(job, self._api.submit(job.name, keyed, self._patience))

    def go_on(self, job: BatchJob) -> Step:
        """Looks at a job; first for it, where it is not known whether it was made."""
        if job.job_id:
            return self._look(job, job.job_id)
        found = self._api.find(job.name, self._patience)
        return Step(None) if found is None else self._made(job, found)

    def cancel(self, job: BatchJob) -> None:
        """Lets the provider know that nobody waits for a job any more."""
        if job.job_id:
            self._api.cancel(job.job_id, self._patience)

    def _made(self, job: BatchJob, job_id: str) -> Step:
        self._book.made(job.name, job_id)
        return self._look(job, job_id)

    def _look(self, job: BatchJob, job_id: str) -> Step:
        state = self._api.look(job_id, self._patience)
        brought: set[bytes] = set()
        dimensions = 0
        for output in state.outputs if state.over else ():
            answers = self._api.answers(output, self._patience)
            while some := dict(islice(answers, _AT_ONCE)):
                vectors = self._usable(some)
                dimensions = len(next(iter(vectors.values()), b"")) // FLOAT_BYTES or dimensions
                brought.update(self._book.take(self._key, job.name, vectors))
        return Step(state, frozenset(brought), dimensions)

    def _usable(self, answers: Mapping[str, Any]) -> dict[bytes, bytes]:
        """Those that are vectors, by the hash of their text. The others are asked for without a job."""
        found: dict[bytes, bytes] = {}
        for key, values in answers.items():
            with suppress(BadVector, ValueError):
                found[bytes.fromhex(key)] = to_blob(unit(values, self._dimensions))
        return found
