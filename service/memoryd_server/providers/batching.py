"""Embed many texts in requests of bounded size, several of them concurrently.

A request that the server refuses is split into halves until the text at fault is alone. A vector that arrives after the
refusal proves that the text is at fault rather than the server. If no vector arrives, a plain text that no server has a
reason to refuse is sent: if it gets a vector, the refused texts are at fault, otherwise the server is.
"""

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from dataclasses import dataclass, field
from functools import partial

from memoryd_server.errors import EmbeddingQuotaExceeded, EmbeddingUnavailable
from memoryd_server.providers.http_errors import RequestRefused
from memoryd_server.providers.pacing import CallerStopped, RequestSlots, ThrottleConfig
from memoryd_server.providers.provider import PLAIN_TEXT, EmbeddingFailure
from memoryd_server.threads import run_inline
from memoryd_server.vectors import Vector

MAX_ITEMS = 64
MAX_BYTES = 32_000
MAX_TOKENS = 16_000
MIN_BYTES = 4_000
"""Lower bound of `RequestLimits.max_bytes`."""

# After this many texts without a vector in a row, a plain text is sent before any other text.
_MAX_SUSPECTS = 4

_POLL_SECONDS = 0.05
# A stopped run waits this long for answers that are about to arrive.
_STOP_SECONDS = 0.25

_BYTES_PER_TOKEN = 4

Answer = Vector | EmbeddingFailure
Call = Callable[[Sequence[str]], Sequence[Answer]]


@dataclass(slots=True)
class RequestLimits:
    """Limits of one provider's requests: the size of each and the number of concurrent ones. Adjusted by the refusals.

    `max_items` falls when the server refuses the number of texts. `max_bytes` falls when the server accepts both
    halves of a request that it refused as a whole. A text that is refused alone is cut to `max_tokens_per_item` bytes,
    because a token has at least one byte.
    """

    max_tokens_per_item: int
    max_items: int = MAX_ITEMS
    max_bytes: int = MAX_BYTES
    max_tokens: int = MAX_TOKENS
    slots: RequestSlots = field(default_factory=lambda: RequestSlots(ThrottleConfig().max_concurrent))

    def allow(self, texts: Sequence[str]) -> bool:
        """Return whether `texts` fit into one request. A single text always fits."""
        return len(texts) <= 1 or (
            len(texts) <= self.max_items
            and sum(map(size_bytes, texts)) <= self.max_bytes
            and sum(map(estimate_tokens, texts)) <= self.max_tokens
        )


def size_bytes(text: str) -> int:
    """Return the length of `text` in UTF-8 bytes."""
    return len(text.encode("utf-8", "replace"))


def estimate_tokens(text: str) -> int:
    """Return an estimate of the tokens of `text`: one per four bytes of ASCII, one per other character."""
    others = 0 if text.isascii() else sum(character > "\x7f" for character in text)
    return others - -(len(text) - others) // _BYTES_PER_TOKEN


def batches(texts: Sequence[str], limits: RequestLimits) -> Iterator[list[int]]:
    """Yield indices of consecutive texts that fit into one request. A text above the byte limit is alone in one."""
    batch: list[int] = []
    total_bytes = tokens = 0
    for index, text in enumerate(texts):
        size, text_tokens = size_bytes(text), estimate_tokens(text)
        full = (
            len(batch) >= limits.max_items
            or total_bytes + size > limits.max_bytes
            or tokens + text_tokens > limits.max_tokens
        )
        if batch and full:
            yield batch
            batch, total_bytes, tokens = [], 0, 0
        batch.append(index)
        total_bytes += size
        tokens += text_tokens
    if batch:
        yield batch


def embed_in_batches(
    texts: Sequence[str],
    limits: RequestLimits,
    call: Call,
    should_stop: Callable[[], bool],
    *,
    check_server: bool = True,
) -> list[Answer]:
    """Return the answers of `call` in the order of `texts`, as specified by `EmbeddingProvider.embed_documents`.

    `call` receives the texts of one request and returns as many answers; it may raise `RequestRefused` and
    `CallerStopped`. It runs in the request slots of `limits`, and requests may overtake each other. When stopped, this
    function returns within half a second; the answers of requests still under way are used by the next call with the
    same texts.

    Without `check_server`, as for a query, every refusal counts as the text's fault, no plain text is sent, and `call`
    runs on the calling thread.
    """
    return _Batches(texts, limits, call, should_stop, check_server=check_server).run()


@dataclass(slots=True)
class _RefusedRequest:
    """The size of a request that was refused and sent again in halves, and the halves not yet accepted."""

    bytes: int
    halves_left: int = 2


@dataclass(slots=True)
class _Request:
    """Texts with their positions in the whole list; -1 for texts of an `earlier` run that are no longer needed.

    `half_of` is the refused request that this one is a half of; `plain` marks the plain text. `number` increases with
    each request sent.
    """

    places: list[int]
    texts: tuple[str, ...]
    half_of: _RefusedRequest | None = None
    plain: bool = False
    earlier: bool = False
    number: int = 0


@dataclass(frozen=True, slots=True)
class _Suspect:
    """A text without a vector. It is at fault if request number `sent` or a later one returns a vector."""

    failure: EmbeddingFailure
    sent: int


class _Batches:
    def __init__(
        self,
        texts: Sequence[str],
        limits: RequestLimits,
        call: Call,
        should_stop: Callable[[], bool],
        *,
        check_server: bool,
    ) -> None:
        self._texts = texts
        self._limits = limits
        self._call = call
        self._should_stop = should_stop
        self._check_server = check_server
        self._answers: dict[int, Answer] = {}
        self._suspects: dict[int, _Suspect] = {}
        self._in_flight: dict[Future[Sequence[Answer]], _Request] = {}
        self._queue: deque[_Request] = deque()
        self._sent = 0
        self._refusing = False
        self._initial_max_items = limits.max_items

    def run(self) -> list[Answer]:
        places = self._take_over_requests() if self._check_server else list(range(len(self._texts)))
        texts = [self._texts[place] for place in places]
        self._queue.extend(self._request([places[i] for i in batch]) for batch in batches(texts, self._limits))
        reason = "stopped"
        try:
            while not self._should_stop() and self._send_requests():
                self._receive()
        except (EmbeddingUnavailable, EmbeddingQuotaExceeded) as error:
            self._collect_vectors(wait_for_all=True)
            if not self._answers:
                raise
            reason = error.message
        self._abandon_requests()
        rest = EmbeddingFailure(reason, transient=True)
        return [self._answers.get(index, rest) for index in range(len(self._texts))]

    def _take_over_requests(self) -> list[int]:
        """Take over the requests that earlier runs abandoned. Return the positions of the texts not among them."""
        free: dict[str, list[int]] = {}
        for place, text in enumerate(self._texts):
            free.setdefault(text, []).append(place)
        for abandoned in self._limits.slots.take_abandoned():
            places = [free[text].pop() if free.get(text) else -1 for text in abandoned.texts]
            if any(place >= 0 for place in places):
                self._in_flight[abandoned.answer] = _Request(places, abandoned.texts, earlier=True)
        return sorted(place for places in free.values() for place in places)

    def _request(self, places: list[int], half_of: _RefusedRequest | None = None) -> _Request:
        return _Request(places, tuple(self._texts[place] for place in places), half_of)

    def _send_requests(self) -> bool:
        """Send the requests that the limits allow. Return whether any request is under way."""
        plain_under_way = any(request.plain for request in self._in_flight.values())
        # A server that may refuse everything gets one request at a time.
        slots = 1 if self._refusing else self._limits.slots.count
        while self._queue and len(self._in_flight) < slots and not plain_under_way:
            request = self._queue.popleft()
            if self._limits.allow(request.texts):
                self._send(request)
            else:
                self._halve(request, request.half_of)
        if self._suspects and not self._in_flight:
            self._send_plain_text()
        return bool(self._in_flight)

    def _send(self, request: _Request) -> None:
        self._sent += 1
        request.number = self._sent
        self._in_flight[self._start(partial(self._call, request.texts))] = request

    def _start(self, call: Callable[[], Sequence[Answer]]) -> Future[Sequence[Answer]]:
        return self._limits.slots.start(call, self._should_stop) if self._check_server else run_inline(call)

    def _halve(self, request: _Request, half_of: _RefusedRequest | None) -> None:
        middle = len(request.places) // 2
        halves = request.places[:middle], request.places[middle:]
        self._queue.extendleft(self._request(places, half_of) for places in reversed(halves))

    def _receive(self) -> None:
        """Wait briefly for answers and process those that arrived."""
        done, _ = wait(self._in_flight, _POLL_SECONDS, return_when=FIRST_COMPLETED)
        for future in sorted(done, key=lambda future: self._in_flight[future].number):
            request = self._in_flight.pop(future)
            if request.earlier and future.exception() is not None:
                # A failure of an earlier run says nothing about the provider's current state.
                self._queue.append(self._request([place for place in request.places if place >= 0]))
                continue
            try:
                self._answered(request, future.result())
            except RequestRefused as refusal:
                self._refused(request, refusal)
            except CallerStopped:
                continue

    def _answered(self, request: _Request, answers: Sequence[Answer]) -> None:
        has_vectors = any(not isinstance(answer, EmbeddingFailure) for answer in answers)
        if request.plain:
            if not has_vectors:
                raise EmbeddingUnavailable(_first_reason(answers))
            self._refusing = False
            self._settle_suspects(request)
            return
        for place, answer in zip(request.places, answers, strict=True):
            if place < 0:
                continue
            if isinstance(answer, EmbeddingFailure):
                self._suspects[place] = _Suspect(answer, request.number)
            else:
                self._answers[place] = answer
        if has_vectors:
            self._refusing = False
            self._settle_suspects(request)
            self._lower_max_bytes(request, answers)
        self._send_plain_text_if_many()

    def _settle_suspects(self, request: _Request) -> None:
        """Settle the suspects: the server returned vectors after it refused these texts, so the texts are at fault."""
        settled = [place for place, suspect in self._suspects.items() if suspect.sent <= request.number]
        self._answers.update({place: self._suspects.pop(place).failure for place in settled})

    def _lower_max_bytes(self, request: _Request, answers: Sequence[Answer]) -> None:
        """Lower `max_bytes` once both halves of a refused request were accepted: its size was the reason."""
        refused = request.half_of
        if refused is None or any(isinstance(answer, EmbeddingFailure) for answer in answers):
            return
        refused.halves_left -= 1
        if not refused.halves_left:
            self._limits.max_bytes = min(self._limits.max_bytes, max(MIN_BYTES, refused.bytes // 2))

    def _refused(self, request: _Request, refusal: RequestRefused) -> None:
        if request.plain:
            raise EmbeddingUnavailable(str(refusal))
        self._refusing = True
        if len(request.places) == 1:
            self._refused_alone(request, refusal)
            return
        if refusal.too_many:
            self._limits.max_items = min(self._limits.max_items, len(request.places) // 2)
        refused = None if refusal.too_many else _RefusedRequest(sum(map(size_bytes, request.texts)))
        self._halve(request, refused)

    def _refused_alone(self, request: _Request, refusal: RequestRefused) -> None:
        """Send a long text again, cut to a length that certainly fits; a text that already fits becomes a suspect."""
        (place,), (text,) = request.places, request.texts
        cut = clip(text, self._limits.max_tokens_per_item)
        if cut != text:
            self._queue.appendleft(_Request([place], (cut,)))
            return
        if refusal.too_many:
            # A single text was refused too, so the number of texts was not the reason.
            self._limits.max_items = self._initial_max_items
        self._suspects[place] = _Suspect(EmbeddingFailure(str(refusal)), self._sent + 1)
        self._send_plain_text_if_many()

    def _send_plain_text_if_many(self) -> None:
        if len(self._suspects) >= _MAX_SUSPECTS and not any(request.plain for request in self._in_flight.values()):
            self._send_plain_text()

    def _send_plain_text(self) -> None:
        """Send the plain text. If it gets no vector, the server is at fault and no text is."""
        if self._check_server:
            self._send(_Request([], (PLAIN_TEXT,), plain=True))
        else:
            self._answers.update({place: suspect.failure for place, suspect in self._suspects.items()})
            self._suspects.clear()

    def _collect_vectors(self, *, wait_for_all: bool) -> None:
        """Keep the vectors of the requests under way: wait until all have ended if `wait_for_all`, else briefly."""
        while self._in_flight:
            done, _ = wait(self._in_flight, _POLL_SECONDS if wait_for_all else _STOP_SECONDS)
            for future in done:
                request = self._in_flight.pop(future)
                if future.exception() is None and not request.plain:
                    self._keep_vectors(request, future.result())
            if not wait_for_all or self._should_stop():
                return

    def _keep_vectors(self, request: _Request, answers: Sequence[Answer]) -> None:
        vectors = ((place, answer) for place, answer in zip(request.places, answers, strict=True) if place >= 0)
        self._answers.update((place, answer) for place, answer in vectors if not isinstance(answer, EmbeddingFailure))

    def _abandon_requests(self) -> None:
        """Cancel the requests that wait for a slot, and abandon those under way: the next run can use their answers."""
        self._in_flight = {future: request for future, request in self._in_flight.items() if not future.cancel()}
        if self._in_flight:
            self._collect_vectors(wait_for_all=False)
        for future, request in self._in_flight.items():
            if not request.plain:
                self._limits.slots.abandon(request.texts, future)


def _first_reason(answers: Sequence[Answer]) -> str:
    return next((answer.reason for answer in answers if isinstance(answer, EmbeddingFailure)), "no answer")


def clip(text: str, max_bytes: int) -> str:
    """Return the longest prefix of `text` of at most `max_bytes` UTF-8 bytes, cut between characters."""
    encoded = text.encode("utf-8", "replace")
    return text if len(encoded) <= max_bytes else encoded[:max_bytes].decode("utf-8", "ignore")
