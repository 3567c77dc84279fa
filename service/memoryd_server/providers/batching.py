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

MOST_ITEMS = 64
MOST_BYTES = 32_000
MOST_TOKENS = 16_000
LEAST_BYTES = 4_000
"""Lower bound of `RequestLimits.most_bytes`."""

# After this many texts without a vector in a row, a plain text is sent before any other text.
_MOST_SUSPECTS = 4

_LOOK_UP_SECONDS = 0.05
# A stopped run waits this long for answers that are about to arrive.
_PARTING_SECONDS = 0.25

_BYTES_A_TOKEN = 4

Answer = Vector | EmbeddingFailure
Call = Callable[[Sequence[str]], Sequence[Answer]]


@dataclass(slots=True)
class RequestLimits:
    """Limits of one provider's requests: the size of each and the number of concurrent ones. Adjusted by the refusals.

    `most_items` falls when the server refuses the number of texts. `most_bytes` falls when the server accepts both
    halves of a request that it refused as a whole. A text that is refused alone is cut to `most_tokens_an_item` bytes:
    a token has at least one byte.
    """

    most_tokens_an_item: int
    most_items: int = MOST_ITEMS
    most_bytes: int = MOST_BYTES
    most_tokens: int = MOST_TOKENS
    lanes: RequestSlots = field(default_factory=lambda: RequestSlots(ThrottleConfig().at_once))

    def allow(self, texts: Sequence[str]) -> bool:
        """Return whether `texts` fit into one request. A single text always fits."""
        return len(texts) <= 1 or (
            len(texts) <= self.most_items
            and sum(map(size_bytes, texts)) <= self.most_bytes
            and sum(map(about_tokens, texts)) <= self.most_tokens
        )


def size_bytes(text: str) -> int:
    """Return the length of `text` in UTF-8 bytes."""
    return len(text.encode("utf-8", "replace"))


def about_tokens(text: str) -> int:
    """Return an estimate of the tokens of `text`: one per four bytes of ASCII, one per other character."""
    others = 0 if text.isascii() else sum(character > "\x7f" for character in text)
    return others - -(len(text) - others) // _BYTES_A_TOKEN


def batches(texts: Sequence[str], limits: RequestLimits) -> Iterator[list[int]]:
    """Yield indices of consecutive texts that fit into one request. A text above the byte limit is alone in one."""
    batch: list[int] = []
    held = tokens = 0
    for index, text in enumerate(texts):
        size, more = size_bytes(text), about_tokens(text)
        full = len(batch) >= limits.most_items or held + size > limits.most_bytes or tokens + more > limits.most_tokens
        if batch and full:
            yield batch
            batch, held, tokens = [], 0, 0
        batch.append(index)
        held += size
        tokens += more
    if batch:
        yield batch


def embed_in_batches(
    texts: Sequence[str],
    limits: RequestLimits,
    call: Call,
    should_stop: Callable[[], bool],
    *,
    find_out_why: bool = True,
) -> list[Answer]:
    """Return the answers of `call` in the order of `texts`, as specified by `EmbeddingProvider.embed_documents`.

    `call` receives the texts of one request and returns as many answers; it may raise `RequestRefused` and
    `CallerStopped`. It runs in the request slots of `limits`, and requests may overtake each other. When stopped, this
    function returns within half a second; the answers of requests still under way are used by the next call with the
    same texts.

    Without `find_out_why`, as for a query, every refusal counts as the text's fault, no plain text is sent, and `call`
    runs on the calling thread.
    """
    return _Batches(texts, limits, call, should_stop, find_out_why=find_out_why).run()


@dataclass(slots=True)
class _Whole:
    """The size of a request that was refused and sent again in halves, and the halves not yet accepted."""

    bytes: int
    halves_to_come: int = 2


@dataclass(slots=True)
class _Request:
    """Texts with their positions in the whole list; -1 for texts of an `earlier` run that are no longer needed.

    `half_of` is the refused request that this one is a half of; `plain` marks the plain text. `number` increases with
    each request sent.
    """

    places: list[int]
    texts: tuple[str, ...]
    half_of: _Whole | None = None
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
        find_out_why: bool,
    ) -> None:
        self._texts = texts
        self._limits = limits
        self._call = call
        self._should_stop = should_stop
        self._find_out_why = find_out_why
        self._answers: dict[int, Answer] = {}
        self._suspects: dict[int, _Suspect] = {}
        self._flying: dict[Future[Sequence[Answer]], _Request] = {}
        self._left: deque[_Request] = deque()
        self._sent = 0
        self._refusing = False
        self._most_items_before = limits.most_items

    def run(self) -> list[Answer]:
        places = self._adopt() if self._find_out_why else list(range(len(self._texts)))
        texts = [self._texts[place] for place in places]
        self._left.extend(self._request([places[i] for i in batch]) for batch in batches(texts, self._limits))
        reason = "stopped"
        try:
            while not self._should_stop() and self._goes_on():
                self._receive()
        except (EmbeddingUnavailable, EmbeddingQuotaExceeded) as error:
            self._take_in(patient=True)
            if not self._answers:
                raise
            reason = error.message
        self._part()
        rest = EmbeddingFailure(reason, transient=True)
        return [self._answers.get(index, rest) for index in range(len(self._texts))]

    def _adopt(self) -> list[int]:
        """Take over the requests that earlier runs abandoned. Return the positions of the texts not among them."""
        free: dict[str, list[int]] = {}
        for place, text in enumerate(self._texts):
            free.setdefault(text, []).append(place)
        for abandoned in self._limits.lanes.take_abandoned():
            places = [free[text].pop() if free.get(text) else -1 for text in abandoned.texts]
            if any(place >= 0 for place in places):
                self._flying[abandoned.answer] = _Request(places, abandoned.texts, earlier=True)
        return sorted(place for places in free.values() for place in places)

    def _request(self, places: list[int], half_of: _Whole | None = None) -> _Request:
        return _Request(places, tuple(self._texts[place] for place in places), half_of)

    def _goes_on(self) -> bool:
        """Send the requests that the limits allow. Return whether any request is under way."""
        doubting = any(request.plain for request in self._flying.values())
        # A server that may refuse everything gets one request at a time.
        lanes = 1 if self._refusing else self._limits.lanes.count
        while self._left and len(self._flying) < lanes and not doubting:
            request = self._left.popleft()
            if self._limits.allow(request.texts):
                self._send(request)
            else:
                self._halve(request, request.half_of)
        if self._suspects and not self._flying:
            self._doubt()
        return bool(self._flying)

    def _send(self, request: _Request) -> None:
        self._sent += 1
        request.number = self._sent
        self._flying[self._start(partial(self._call, request.texts))] = request

    def _start(self, call: Callable[[], Sequence[Answer]]) -> Future[Sequence[Answer]]:
        return self._limits.lanes.start(call, self._should_stop) if self._find_out_why else run_inline(call)

    def _halve(self, request: _Request, half_of: _Whole | None) -> None:
        middle = len(request.places) // 2
        halves = request.places[:middle], request.places[middle:]
        self._left.extendleft(self._request(places, half_of) for places in reversed(halves))

    def _receive(self) -> None:
        """Wait briefly for answers and process those that arrived."""
        done, _ = wait(self._flying, _LOOK_UP_SECONDS, return_when=FIRST_COMPLETED)
        for future in sorted(done, key=lambda future: self._flying[future].number):
            request = self._flying.pop(future)
            if request.earlier and future.exception() is not None:
                # A failure of an earlier run says nothing about the provider's current state.
                self._left.append(self._request([place for place in request.places if place >= 0]))
                continue
            try:
                self._answered(request, future.result())
            except RequestRefused as refusal:
                self._refused(request, refusal)
            except CallerStopped:
                continue

    def _answered(self, request: _Request, answers: Sequence[Answer]) -> None:
        makes_vectors = any(not isinstance(answer, EmbeddingFailure) for answer in answers)
        if request.plain:
            if not makes_vectors:
                raise EmbeddingUnavailable(_reason(answers))
            self._refusing = False
            self._believe(request)
            return
        for place, answer in zip(request.places, answers, strict=True):
            if place < 0:
                continue
            if isinstance(answer, EmbeddingFailure):
                self._suspects[place] = _Suspect(answer, request.number)
            else:
                self._answers[place] = answer
        if makes_vectors:
            self._refusing = False
            self._believe(request)
            self._learn(request, answers)
        self._doubt_many()

    def _believe(self, request: _Request) -> None:
        """Settle the suspects: the server returned vectors after it refused these texts, so the texts are at fault."""
        settled = [place for place, suspect in self._suspects.items() if suspect.sent <= request.number]
        self._answers.update({place: self._suspects.pop(place).failure for place in settled})

    def _learn(self, request: _Request, answers: Sequence[Answer]) -> None:
        """Lower `most_bytes` once both halves of a refused request were accepted: its size was the reason."""
        whole = request.half_of
        if whole is None or any(isinstance(answer, EmbeddingFailure) for answer in answers):
            return
        whole.halves_to_come -= 1
        if not whole.halves_to_come:
            self._limits.most_bytes = min(self._limits.most_bytes, max(LEAST_BYTES, whole.bytes // 2))

    def _refused(self, request: _Request, refusal: RequestRefused) -> None:
        if request.plain:
            raise EmbeddingUnavailable(str(refusal))
        self._refusing = True
        if len(request.places) == 1:
            self._alone(request, refusal)
            return
        if refusal.too_many:
            self._limits.most_items = min(self._limits.most_items, len(request.places) // 2)
        whole = None if refusal.too_many else _Whole(sum(map(size_bytes, request.texts)))
        self._halve(request, whole)

    def _alone(self, request: _Request, refusal: RequestRefused) -> None:
        """Send a long text again, cut to a length that certainly fits; a text that already fits becomes a suspect."""
        (place,), (text,) = request.places, request.texts
        cut = clip(text, self._limits.most_tokens_an_item)
        if cut != text:
            self._left.appendleft(_Request([place], (cut,)))
            return
        if refusal.too_many:
            # A single text was refused too, so the number of texts was not the reason.
            self._limits.most_items = self._most_items_before
        self._suspects[place] = _Suspect(EmbeddingFailure(str(refusal)), self._sent + 1)
        self._doubt_many()

    def _doubt_many(self) -> None:
        if len(self._suspects) >= _MOST_SUSPECTS and not any(request.plain for request in self._flying.values()):
            self._doubt()

    def _doubt(self) -> None:
        """Send the plain text. If it gets no vector, the server is at fault and no text is."""
        if self._find_out_why:
            self._send(_Request([], (PLAIN_TEXT,), plain=True))
        else:
            self._answers.update({place: suspect.failure for place, suspect in self._suspects.items()})
            self._suspects.clear()

    def _take_in(self, *, patient: bool) -> None:
        """Keep the vectors of the requests under way: wait until all have ended if `patient`, else briefly."""
        while self._flying:
            done, _ = wait(self._flying, _LOOK_UP_SECONDS if patient else _PARTING_SECONDS)
            for future in done:
                request = self._flying.pop(future)
                if future.exception() is None and not request.plain:
                    self._keep_vectors(request, future.result())
            if not patient or self._should_stop():
                return

    def _keep_vectors(self, request: _Request, answers: Sequence[Answer]) -> None:
        vectors = ((place, answer) for place, answer in zip(request.places, answers, strict=True) if place >= 0)
        self._answers.update((place, answer) for place, answer in vectors if not isinstance(answer, EmbeddingFailure))

    def _part(self) -> None:
        """Cancel the requests that wait for a slot, and abandon those under way: the next run can use their answers."""
        self._flying = {future: request for future, request in self._flying.items() if not future.cancel()}
        if self._flying:
            self._take_in(patient=False)
        for future, request in self._flying.items():
            if not request.plain:
                self._limits.lanes.abandon(request.texts, future)


def _reason(answers: Sequence[Answer]) -> str:
    return next((answer.reason for answer in answers if isinstance(answer, EmbeddingFailure)), "no answer")


def clip(text: str, most_bytes: int) -> str:
    """Return the longest prefix of `text` of at most `most_bytes` UTF-8 bytes, cut between characters."""
    encoded = text.encode("utf-8", "replace")
    return text if len(encoded) <= most_bytes else encoded[:most_bytes].decode("utf-8", "ignore")
