"""Many texts in requests of bounded size; what a server refuses is halved until the text at fault stands alone."""

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from memoryd_server.embed.http_errors import RequestRefused
from memoryd_server.embed.pacing import Stopped
from memoryd_server.embed.provider import EmbeddingFailure
from memoryd_server.embed.vectors import Vector
from memoryd_server.errors import EmbeddingQuotaExceeded, EmbeddingUnavailable

MOST_ITEMS = 64
MOST_BYTES = 32_000

# So many refusals in a row, before any vector was ever made, are the server's doing and not the texts'.
_HOPELESS = 8

Answer = Vector | EmbeddingFailure


@dataclass(slots=True)
class Limits:
    """What a server takes in one request. `most_items` falls when it says that it was too many.

    `most_tokens_an_item` bounds a text that is refused alone: its bytes, of which a token holds at least one.
    `proven` once it made a vector.
    """

    most_tokens_an_item: int
    most_items: int = MOST_ITEMS
    most_bytes: int = MOST_BYTES
    proven: bool = False


def batches(texts: Sequence[str], limits: Limits) -> Iterator[list[int]]:
    """Indices of consecutive texts, no more than the limits allow; a text above the bytes stands alone."""
    batch: list[int] = []
    held = 0
    for index, text in enumerate(texts):
        size = len(text.encode("utf-8", "replace"))
        if batch and (len(batch) >= limits.most_items or held + size > limits.most_bytes):
            yield batch
            batch, held = [], 0
        batch.append(index)
        held += size
    if batch:
        yield batch


def embed_in_batches(
    texts: Sequence[str],
    limits: Limits,
    call: Callable[[Sequence[str]], Sequence[Answer]],
    should_stop: Callable[[], bool],
) -> list[Answer]:
    """The answers of `call`, in the order of `texts`, as `EmbeddingProvider.embed_documents` promises them.

    `call` gets the texts of one request and returns as many answers; it may raise `RequestRefused` and `Stopped`.
    """
    return _Batches(texts, limits, call).run(should_stop)


class _Batches:
    def __init__(self, texts: Sequence[str], limits: Limits, call: Callable[[Sequence[str]], Sequence[Answer]]) -> None:
        self._texts = texts
        self._limits = limits
        self._call = call
        self._answers: dict[int, Answer] = {}
        self._left = deque(batches(texts, limits))
        self._refused = 0

    def run(self, should_stop: Callable[[], bool]) -> list[Answer]:
        reason = "stopped"
        try:
            while self._left and not should_stop():
                self._next(self._left.popleft())
        except Stopped:
            pass
        except (EmbeddingUnavailable, EmbeddingQuotaExceeded) as error:
            if not any(not isinstance(answer, EmbeddingFailure) for answer in self._answers.values()):
                raise
            reason = error.message
        rest = EmbeddingFailure(reason, transient=True)
        return [self._answers.get(index, rest) for index in range(len(self._texts))]

    def _next(self, batch: list[int]) -> None:
        if len(batch) > self._limits.most_items:
            self._halve(batch)
            return
        try:
            self._ask(batch, [self._texts[index] for index in batch])
        except RequestRefused as refusal:
            if len(batch) == 1:
                self._alone(batch[0], refusal)
                return
            if refusal.too_many:
                self._limits.most_items = min(self._limits.most_items, len(batch) // 2)
            self._halve(batch)

    def _halve(self, batch: list[int]) -> None:
        middle = len(batch) // 2
        self._left.extendleft((batch[middle:], batch[:middle]))

    def _ask(self, batch: list[int], texts: Sequence[str]) -> None:
        answers = self._call(texts)
        self._answers.update(zip(batch, answers, strict=True))
        self._limits.proven = self._limits.proven or any(not isinstance(a, EmbeddingFailure) for a in answers)

    def _alone(self, index: int, refusal: RequestRefused) -> None:
        """Tries a long text once more, cut to what surely fits."""
        cut = clip(self._texts[index], self._limits.most_tokens_an_item)
        if cut != self._texts[index]:
            try:
                self._ask([index], [cut])
                return
            except RequestRefused as again:
                refusal = again
        self._answers[index] = EmbeddingFailure(str(refusal))
        self._refused += 1
        if self._refused >= _HOPELESS and not self._limits.proven:
            raise EmbeddingUnavailable(str(refusal)) from refusal


def clip(text: str, most_bytes: int) -> str:
    """The beginning of `text` of at most `most_bytes` in UTF-8, cut between characters."""
    encoded = text.encode("utf-8", "replace")
    return text if len(encoded) <= most_bytes else encoded[:most_bytes].decode("utf-8", "ignore")
