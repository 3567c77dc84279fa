"""Many texts in requests of bounded size; what a server refuses is halved until the text at fault stands alone.

Whether that text is at fault or the server is shows by the next vector. Where none comes, the server is asked for one
of a text that it has no reason to refuse.
"""

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from memoryd_server.embed.http_errors import RequestRefused
from memoryd_server.embed.pacing import Stopped
from memoryd_server.embed.provider import PLAIN_TEXT, EmbeddingFailure
from memoryd_server.embed.vectors import Vector
from memoryd_server.errors import EmbeddingQuotaExceeded, EmbeddingUnavailable

MOST_ITEMS = 64
MOST_BYTES = 32_000

# After so many refusals in a row the server is asked for a plain text before it gets any more.
_MOST_SUSPECTS = 4

Answer = Vector | EmbeddingFailure


@dataclass(slots=True)
class Limits:
    """What a server takes in one request. `most_items` falls when it says that it was too many.

    `most_tokens_an_item` bounds a text that is refused alone: its bytes, of which a token holds at least one.
    """

    most_tokens_an_item: int
    most_items: int = MOST_ITEMS
    most_bytes: int = MOST_BYTES


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
    *,
    find_out_why: bool = True,
) -> list[Answer]:
    """The answers of `call`, in the order of `texts`, as `EmbeddingProvider.embed_documents` promises them.

    `call` gets the texts of one request and returns as many answers; it may raise `RequestRefused` and `Stopped`.
    Without `find_out_why` every refusal is taken for the text's fault, and nothing more is sent.
    """
    return _Batches(texts, limits, call, should_stop, find_out_why=find_out_why).run()


class _Batches:
    def __init__(
        self,
        texts: Sequence[str],
        limits: Limits,
        call: Callable[[Sequence[str]], Sequence[Answer]],
        should_stop: Callable[[], bool],
        *,
        find_out_why: bool,
    ) -> None:
        self._texts = texts
        self._limits = limits
        self._call = call
        self._should_stop = should_stop
        self._answers: dict[int, Answer] = {}
        self._suspects: dict[int, EmbeddingFailure] = {}
        self._left = deque(batches(texts, limits))
        self._most_items_before = limits.most_items
        self._find_out_why = find_out_why

    def run(self) -> list[Answer]:
        reason = "stopped"
        try:
            while self._left and not self._should_stop():
                self._next(self._left.popleft())
            if self._suspects and not self._should_stop():
                self._settle()
        except Stopped:
            pass
        except (EmbeddingUnavailable, EmbeddingQuotaExceeded) as error:
            if not self._answers:
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
        for index, answer in zip(batch, self._call(texts), strict=True):
            if isinstance(answer, EmbeddingFailure):
                self._suspects[index] = answer
            else:
                self._answers[index] = answer
        if any(index in self._answers for index in batch):
            self._believe()
        elif len(self._suspects) >= _MOST_SUSPECTS:
            self._settle()

    def _believe(self) -> None:
        """The server makes vectors: what it refused before is at fault itself."""
        self._answers.update(self._suspects)
        self._suspects.clear()

    def _settle(self) -> None:
        """Asks for a plain text; a server that does not embed it is at fault, and no text is."""
        if self._find_out_why:
            try:
                (answer,) = self._call([PLAIN_TEXT])
            except RequestRefused as refusal:
                answer = EmbeddingFailure(str(refusal))
            if isinstance(answer, EmbeddingFailure):
                raise EmbeddingUnavailable(answer.reason)
        self._believe()

    def _alone(self, index: int, refusal: RequestRefused) -> None:
        """Tries a long text once more, cut to what surely fits."""
        cut = clip(self._texts[index], self._limits.most_tokens_an_item)
        if cut != self._texts[index]:
            try:
                self._ask([index], [cut])
                return
            except RequestRefused as again:
                refusal = again
        if refusal.too_many:
            # Then it was not their number that the server minded.
            self._limits.most_items = self._most_items_before
        self._suspects[index] = EmbeddingFailure(str(refusal))
        if len(self._suspects) >= _MOST_SUSPECTS:
            self._settle()


def clip(text: str, most_bytes: int) -> str:
    """The beginning of `text` of at most `most_bytes` in UTF-8, cut between characters."""
    encoded = text.encode("utf-8", "replace")
    return text if len(encoded) <= most_bytes else encoded[:most_bytes].decode("utf-8", "ignore")
