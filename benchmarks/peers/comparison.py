"""Compare tools in one mode: index the notes with each, ask all of them the questions in turn, and search cold."""

import contextlib
import shutil
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import median

import psutil
from judgement import RESULTS, Judgement, Notes
from measure import TreeUsage, cpu_seconds, rss_mib, with_descendants
from notes import Corpus, rename_dated
from peer import Peer, PeerUnavailableError, Setup

from memoryd_server.evaluation import GoldenQuery

# The tools take turns after as many questions, so that a change of the machine's speed affects all of them.
BLOCK = 10
COLD_SEARCHES = 5
# A tool that fails as many times in succession is not asked any more.
MOST_FAILURES = 5
# The tools are idle if they take at most this much processor time in a second.
IDLE_CPU_SECONDS = 0.1
MOST_IDLE_WAIT_SECONDS = 60
NOTHING = Judgement(recall=0.0, shown=0.0, rank=None)


@dataclass(frozen=True, slots=True)
class Answer:
    """The outcome of one question, how long the tool took, and how much text the agent received.

    A failed search found nothing.
    """

    question: GoldenQuery
    milliseconds: float
    chars: int
    judgement: Judgement


@dataclass(frozen=True, slots=True)
class IndexCosts:
    seconds: float
    cpu_seconds: float
    embedding_cpu_seconds: float
    peak_rss_mib: float


@dataclass(frozen=True, slots=True)
class ColdCosts:
    """The medians of several searches with one command each."""

    seconds: float
    cpu_seconds: float
    embedding_cpu_seconds: float


@dataclass
class PeerRun:
    """What was measured of one tool in one mode. `failure` says what ended it early."""

    peer: Peer
    setup: Setup
    failure: str | None = None
    index: IndexCosts | None = None
    cold: ColdCosts | None = None
    cold_failure: str | None = None
    first_milliseconds: float = 0.0
    answers: list[Answer] = field(default_factory=list)
    undated: list[Answer] = field(default_factory=list)
    """The answers after the names of notes that are dates got a prefix."""
    errors: list[str] = field(default_factory=list)
    cpu_seconds: float = 0.0
    embedding_cpu_seconds: float = 0.0
    rss_mib: float = 0.0

    @property
    def label(self) -> str:
        return f"{self.peer.name}, {self.setup.mode}"


class Comparison:
    """Runs tools in one mode. `embeddings` is the process of the embedding server, if the mode needs one."""

    def __init__(self, folder: Path, corpus: Corpus, embeddings: psutil.Process | None) -> None:
        self._folder = folder
        self._corpus = corpus
        self._embeddings = [] if embeddings is None else [embeddings]

    def run(self, peers: Sequence[Peer], setup: Setup, undated: Sequence[str]) -> list[PeerRun]:
        """Measure all `peers`, and the recall of those named in `undated` also without dates in the names of notes.

        `setup` has what is common to all; each peer gets its own folder and its own copy of the notes.
        """
        original = self._folder / "notes"
        self._corpus.write(original)
        questions, notes = self._corpus.sample_questions(), Notes(original)
        runs = [self._set_up(peer, setup, original) for peer in peers]
        try:
            for run in _working(runs):
                self._index(run, [*self._embeddings, *_processes(other for other in runs if other is not run)])
            for run in _working(runs):
                self._start(run, questions[0])
            wait_until_idle(_processes(runs))
            self._ask_in_blocks(runs, questions, notes)
            for run in runs:
                run.peer.stop()
            self._search_cold(runs, questions)
            for run in _working(runs):
                if run.peer.name in undated:
                    self._ask_undated(run)
        finally:
            for run in runs:
                with _reported(run, "stop"):
                    run.peer.stop()
        return runs

    def _set_up(self, peer: Peer, setup: Setup, notes: Path) -> PeerRun:
        place = self._folder / peer.name
        own = replace(setup, folder=place / "home", notes=place / "notes")
        own.folder.mkdir(parents=True)
        shutil.copytree(notes, own.notes)
        run = PeerRun(peer, own)
        with _reported(run, "setup"):
            peer.set_up(own)
        return run

    def _index(self, run: PeerRun, others: Sequence[psutil.Process]) -> None:
        say(f"{run.label}: index")
        embedding = cpu_seconds(self._embeddings)
        with _reported(run, "index"):
            with TreeUsage(others) as usage:
                run.peer.index()
            run.index = IndexCosts(
                usage.seconds, usage.cpu_seconds, cpu_seconds(self._embeddings) - embedding, usage.peak_rss_mib
            )
            say(f"{run.label}: indexed in {usage.seconds:.1f} s")

    def _start(self, run: PeerRun, question: GoldenQuery) -> None:
        with _reported(run, "start"):
            run.peer.start()
            began = time.perf_counter()
            run.peer.search(question.text, RESULTS)
            run.first_milliseconds = (time.perf_counter() - began) * 1_000

    def _ask_in_blocks(self, runs: Sequence[PeerRun], questions: Sequence[GoldenQuery], notes: Notes) -> None:
        for number, begin in enumerate(range(0, len(questions), BLOCK)):
            asked = list(_working(runs))
            first = number % max(1, len(asked))
            for run in asked[first:] + asked[:first]:
                with _reported(run, "search"):
                    self._ask_block(run, questions[begin : begin + BLOCK], notes)
            say(f"{min(begin + BLOCK, len(questions))} of {len(questions)} questions")

    def _ask_block(self, run: PeerRun, questions: Sequence[GoldenQuery], notes: Notes) -> None:
        before, embedding = self._cpu_of(run), cpu_seconds(self._embeddings)
        run.answers += [ask(run, question, notes) for question in questions]
        run.cpu_seconds += self._cpu_of(run) - before
        run.embedding_cpu_seconds += cpu_seconds(self._embeddings) - embedding
        run.rss_mib = max(run.rss_mib, rss_mib(with_descendants(run.peer.processes())))

    @staticmethod
    def _cpu_of(run: PeerRun) -> float:
        return 0.0 if run.failure else cpu_seconds(with_descendants(run.peer.processes()))

    def _search_cold(self, runs: Sequence[PeerRun], questions: Sequence[GoldenQuery]) -> None:
        costs: dict[str, list[ColdCosts]] = {run.peer.name: [] for run in runs}
        for question in questions[:COLD_SEARCHES]:
            for run in _working(runs):
                if run.cold_failure is None:
                    try:
                        costs[run.peer.name].append(self._cold(run.peer, question))
                    except Exception as error:  # noqa: BLE001 -- the tools fail in any way
                        run.cold_failure = str(error)
                        say(f"{run.label}: cold search: {error}")
        for run in _working(runs):
            each = costs[run.peer.name]
            if run.cold_failure is None:
                run.cold = ColdCosts(
                    median(cost.seconds for cost in each),
                    median(cost.cpu_seconds for cost in each),
                    median(cost.embedding_cpu_seconds for cost in each),
                )
                say(f"{run.label}: cold search in {run.cold.seconds:.2f} s")

    def _cold(self, peer: Peer, question: GoldenQuery) -> ColdCosts:
        embedding = cpu_seconds(self._embeddings)
        with TreeUsage(self._embeddings) as usage:
            peer.search_cold(question.text)
        return ColdCosts(usage.seconds, usage.cpu_seconds, cpu_seconds(self._embeddings) - embedding)

    def _ask_undated(self, run: PeerRun) -> None:
        say(f"{run.label}: names without dates")
        with _reported(run, "names without dates"):
            rename_dated(run.setup.notes)
            run.peer.index()
            run.peer.start()
            notes = Notes(run.setup.notes)
            questions = replace(self._corpus, dated=False).sample_questions()
            run.undated = [ask(run, question, notes) for question in questions]


def wait_until_idle(processes: Iterable[psutil.Process]) -> None:
    """Wait until no process works in the background, e.g. reads all notes at its start; but at most a minute."""
    roots, deadline, busy = list(processes), time.monotonic() + MOST_IDLE_WAIT_SECONDS, True
    while roots and busy and time.monotonic() < deadline:
        before = cpu_seconds(with_descendants(roots))
        time.sleep(1)
        busy = cpu_seconds(with_descendants(roots)) - before > IDLE_CPU_SECONDS


def ask(run: PeerRun, question: GoldenQuery, notes: Notes) -> Answer:
    """Return the answer of a tool. A search that fails counts as one that finds nothing, and is kept in `run.errors`.

    Raises:
        RuntimeError: if the search failed like those before it, so that the tool does not work.
    """
    began = time.perf_counter()
    try:
        results = run.peer.search(question.text, RESULTS)
    except Exception as error:
        run.errors.append(f"{question.key}: {error}")
        if len(run.errors) >= MOST_FAILURES and len(run.errors) > len(run.answers) // 2:
            raise RuntimeError(f"{len(run.errors)} searches failed, the last one with: {error}") from error
        return Answer(question, (time.perf_counter() - began) * 1_000, 0, NOTHING)
    milliseconds = (time.perf_counter() - began) * 1_000
    return Answer(question, milliseconds, sum(len(each.text) for each in results), notes.judge(question, results))


def say(text: str) -> None:
    """Report progress."""
    print(f"{time.strftime('%H:%M:%S')} {text}", file=sys.stderr, flush=True)


def _processes(runs: Iterable[PeerRun]) -> Iterator[psutil.Process]:
    """Yield the running processes of the tools."""
    for run in runs:
        if run.failure is None:
            with contextlib.suppress(Exception):
                yield from run.peer.processes()


def _working(runs: Sequence[PeerRun]) -> Iterator[PeerRun]:
    return (run for run in runs if run.failure is None)


@contextmanager
def _reported(run: PeerRun, step: str) -> Iterator[None]:
    """Make a failure of a step that of the run, end the tool, and let the other tools go on."""
    try:
        yield
    except Exception as error:  # noqa: BLE001 -- the tools fail in any way
        reason = str(error) if isinstance(error, PeerUnavailableError) else f"{step}: {type(error).__name__}: {error}"
        run.failure = run.failure or reason
        say(f"{run.label}: {reason}")
        with contextlib.suppress(Exception):
            run.peer.stop()
