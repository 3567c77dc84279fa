"""`explain` accounts for every score and for the order, and asking for it changes neither.

What is expected is computed here from the notes, their dates and the index file, by the formulas that the contract and
docs/search-quality.md name.
"""

import math
import os
import random
from datetime import UTC, date, datetime, timedelta

import pytest

from fake_providers import vector
from memoryd.v1 import memory_pb2
from rpc.wire import paths

HYBRID, KEYWORD, VECTOR = (memory_pb2.SEARCH_MODE_HYBRID, memory_pb2.SEARCH_MODE_KEYWORD, memory_pb2.SEARCH_MODE_VECTOR)
VECTOR_WEIGHT, TEXT_WEIGHT = 0.7, 0.3
WINDOW_WEIGHT = 1 / 3
GAIN, DAYS_AFTER, DAYS_BEFORE = 0.8, 14, 7
HALF_LIFE_DAYS, FLOOR = 10, 0.3
LAMBDA = 0.6
NOON = datetime(2024, 6, 1, 12, tzinfo=UTC)
GUIDE_CHANGED = NOON - timedelta(days=15)

# No two of one stem, and none that a question drops.
NOUNS = (
    "heron kestrel stork ferry harbour lamp bread soup tram garden river stone cloud violin ladder pepper castle walrus"
    " copper meadow anchor basket candle desert engine falcon glacier hammer island jacket"
)
# What is asked, its words but for those that every question may hold, and the days that it names.
UNDATED = {
    "heron ferry": ["heron", "ferry"],
    "a lamp in the garden": ["lamp", "garden"],
    "walrus and the candle of the unheard": ["walrus", "candle", "unheard"],
    "unheard unseen": ["unheard", "unseen"],
}
DATED = {
    "heron and ferry on 2024-05-08": (date(2024, 5, 8), date(2024, 5, 8)),
    "castle anchor last week": (date(2024, 5, 20), date(2024, 5, 26)),
}


@pytest.fixture
def notes(home):
    """Fewer notes than an answer may hold, so that every candidate is seen: path to text."""
    chance = random.Random(11)

    def words():
        return " ".join(chance.choices(NOUNS.split(), k=chance.randint(3, 14)))

    days = [NOON.date() - timedelta(days=3 * n - 9) for n in range(24)]
    texts = {f"memory/{day}.md": words() for day in days}
    texts |= {f"memory/topic{n}.md": words() for n in range(16)}
    # Twins, which repeat each other in full.
    texts |= {f"memory/twin{n}.md": "heron lamp ferry" for n in range(3)}
    texts |= {"MEMORY.md": words(), "docs/guide.md": words()}
    for path, text in texts.items():
        home.put(path, text)
    os.utime(home.workspace / "docs" / "guide.md", (GUIDE_CHANGED.timestamp(),) * 2)
    return texts


def using(server, *, extension, decay, mmr):
    query = {
        "hybrid": {
            "temporalDecay": {"enabled": decay, "halfLifeDays": HALF_LIFE_DAYS},
            "mmr": {"enabled": mmr, "lambda": LAMBDA},
        }
    }
    search = {
        "provider": "openai-compatible",
        "model": "words",
        "remote": {"baseUrl": server.url, "apiKey": "k"},
        "store": {"vector": {"enabled": extension}},
        "extraPaths": ["docs"],
        "query": query,
    }
    # The extension only serves where no vectors are in memory.
    budget = 0 if extension else 1 << 30
    return {
        "agents": {"defaults": {"memorySearch": search}},
        "memoryd": {"decayFloor": FLOOR, "vectorMemoryBytes": budget},
    }


async def ask(daemon, question, mode, *, explain=True):
    return await daemon.search(question, mode=mode, explain=explain, min_score=0.0, max_results=50, now=NOON)


def cosine(one, other):
    return sum(a * b for a, b in zip(one, other, strict=True)) / (math.hypot(*one) * math.hypot(*other))


def check_vectors(answer, question, notes):
    """Each note has the cosine of its own vector, and a place in that leg's order."""
    for hit in answer.results:
        expected = cosine(vector(notes[hit.path]), vector(question))
        assert hit.score_detail.vector == pytest.approx(expected, abs=1e-5)
    check_ranks(answer, "vector_rank", "vector", answer.info.vector_candidates)


def check_texts(answer, store):
    """Each note has BM25 as SQLite computes it for the terms that were searched, as a share of the best."""
    terms = answer.info.legs[0].terms
    found = store.bm25(terms) if terms else {}
    best = min(found.values(), default=-1.0)
    for hit in answer.results:
        assert hit.score_detail.text == pytest.approx(found.get(hit.path, 0.0) / best, abs=1e-4)
        assert hit.score_detail.HasField("keyword_rank") is (hit.path in found)
    check_ranks(answer, "keyword_rank", "text", answer.info.keyword_candidates)


def check_ranks(answer, rank, score, candidates):
    """Ranks are 1, 2, 3 to the number of candidates, and none is above a better score."""
    ranked = sorted(
        (getattr(hit.score_detail, rank), getattr(hit.score_detail, score))
        for hit in answer.results
        if hit.score_detail.HasField(rank)
    )
    assert [place for place, _ in ranked] == list(range(1, candidates + 1))
    scores = [value for _, value in ranked]
    assert scores == sorted(scores, reverse=True)


def check_decays(answer, *, decay):
    for hit in answer.results:
        assert hit.score_detail.HasField("decay") is decay
        if decay:
            assert hit.score_detail.decay == pytest.approx(expected_decay(hit.path), abs=1e-9)


def day_of(path):
    return datetime.strptime(path, "memory/%Y-%m-%d.md").replace(tzinfo=UTC) if path[7:9] == "20" else None


def expected_decay(path):
    """Half a half-life of age, from a note's midnight or a document's last change; what is undated does not age."""
    since = GUIDE_CHANGED if path == "docs/guide.md" else day_of(path)
    if since is None or since > NOON:
        return 1.0
    return max(FLOOR, 0.5 ** ((NOON - since) / timedelta(days=HALF_LIFE_DAYS)))


def expected_gain(path, named):
    """What a date in the question adds: less with each of the days before or after."""
    if named is None or (day := day_of(path)) is None:
        return 0.0
    before, after = (named[0] - day.date()).days, (day.date() - named[1]).days
    return max(0.0, GAIN * (1 - max(before / DAYS_BEFORE, after / DAYS_AFTER, 0)))


def check_gains(answer, named):
    for hit in answer.results:
        gain = expected_gain(hit.path, named)
        assert hit.score_detail.HasField("date") is (gain > 0)
        assert hit.score_detail.date == pytest.approx(gain, abs=1e-9)


def check_windows(answer):
    """Windows are shares of the best. Their values are tested in tests/unit/search/test_windows.py."""
    if not answer.info.keyword_candidates:
        check_absent(answer, "window")
        return
    windows = [hit.score_detail.window for hit in answer.results]
    assert all(hit.score_detail.HasField("window") for hit in answer.results)
    assert max(windows) == 1.0
    assert all(0 <= window <= 1 for window in windows)


def check_scores(answer, named):
    """Weighted parts, times decay, plus the gain for a date."""
    for hit in answer.results:
        detail = hit.score_detail
        cosine, text = max(0.0, detail.vector), (1 - WINDOW_WEIGHT) * detail.text + WINDOW_WEIGHT * detail.window
        # A leg that found nothing counts as not run.
        both = VECTOR_WEIGHT * cosine + TEXT_WEIGHT * text if answer.info.keyword_candidates else cosine
        legs = {HYBRID: both, KEYWORD: text, VECTOR: cosine}
        share = detail.decay if detail.HasField("decay") else 1.0
        expected = min(1.0, legs[answer.info.served_mode] * share + expected_gain(hit.path, named))
        assert hit.score == pytest.approx(expected, abs=1e-5)


def parts_of(hit):
    names = (
        memory_pb2.ScorePartKind.Name(part.kind).removeprefix("SCORE_PART_KIND_") for part in hit.score_detail.parts
    )
    return dict(zip(names, (part.amount for part in hit.score_detail.parts), strict=True))


def check_parts(answer):
    """The parts add up to the score; the penalties are not among them."""
    for hit in answer.results:
        parts = parts_of(hit)
        assert parts.pop("ADJACENT", 0.0) == -hit.score_detail.adjacent
        parts.pop("DIVERSITY", None)
        assert min(1.0, sum(parts.values())) == pytest.approx(hit.score, abs=1e-9)
        assert parts.get("DATE", 0.0) == hit.score_detail.date
        assert parts.get("DECAY", 0.0) <= 0
        assert bool(parts.get("VECTOR")) is (hit.score_detail.vector > 0 and answer.info.served_mode != KEYWORD)


def check_sorted(answer):
    values = [hit.score - hit.score_detail.adjacent for hit in answer.results]
    assert values == sorted(values, reverse=True)


def check_varied(answer, notes):
    """Each hit was the best of those left by lambda x relevance - (1 - lambda) x likeness to those before it."""
    scores = {hit.path: hit.score for hit in answer.results}
    penalties = {hit.path: parts_of(hit).get("DIVERSITY", 0.0) for hit in answer.results}
    words = {path: set(notes[path].split()) for path in scores}
    lowest, highest = min(scores.values()), max(scores.values())
    likeness = dict.fromkeys(scores, 0.0)

    def value(path):
        return LAMBDA * (scores[path] - lowest) / ((highest - lowest) or 1.0) - (1 - LAMBDA) * likeness[path]

    left = paths(answer)
    while left:
        best = max(map(value, left))
        shown = left.pop(0)
        assert value(shown) >= best - 1e-9
        assert penalties[shown] == pytest.approx((LAMBDA - 1) * likeness[shown], abs=1e-9)
        for path in left:
            alike = len(words[shown] & words[path]) / len(words[shown] | words[path])
            likeness[path] = max(likeness[path], alike)


def check_coverage(answer, asked, notes):
    """The share of the question's words, by inverse document frequency, that a note holds."""
    holding = {word: sum(word in text.split() for text in notes.values()) for word in asked}
    weights = {word: math.log(1 + (len(notes) - n + 0.5) / (n + 0.5)) for word, n in holding.items()}
    for hit in answer.results:
        held = sum(weights[word] for word in asked if word in notes[hit.path].split())
        assert hit.score_detail.coverage == pytest.approx(held / sum(weights.values()), abs=1e-6)
    assert answer.info.coverage == pytest.approx(max((h.score_detail.coverage for h in answer.results), default=0.0))


def check_legs(answer, mode):
    """The reports say which legs ran, and their candidates are those of the answer."""
    words, meanings = answer.info.legs
    assert (words.leg, meanings.leg) == (KEYWORD, VECTOR)
    assert (words.ran, meanings.ran) == (mode is not VECTOR, mode is not KEYWORD)
    assert (words.candidates, meanings.candidates) == (answer.info.keyword_candidates, answer.info.vector_candidates)
    for leg in (words, meanings):
        assert bool(leg.note) is not leg.ran
        assert (leg.elapsed.ToNanoseconds() > 0) or not leg.ran
    spent = words.elapsed.ToNanoseconds() + meanings.elapsed.ToNanoseconds()
    assert spent <= answer.info.elapsed.ToNanoseconds()


def check_absent(answer, *parts):
    assert not [part for hit in answer.results for part in parts if hit.score_detail.HasField(part)]


async def check_silent(daemon, answer, question, mode):
    """The same question without `explain` has the same answer, but for the explanation."""
    plain = await ask(daemon, question, mode, explain=False)
    assert not plain.info.legs
    assert not any(hit.HasField("score_detail") for hit in plain.results)
    for hit in answer.results:
        hit.ClearField("score_detail")
    assert list(plain.results) == list(answer.results)


RANKINGS = [
    pytest.param(False, False, id="plain"),
    pytest.param(True, False, id="decay"),
    pytest.param(False, True, id="mmr"),
    pytest.param(True, True, id="decay and mmr"),
]


SQLITE_VEC = pytest.param(True, id="sqlite-vec", marks=pytest.mark.sqlite_only("PostgreSQL does not use sqlite-vec"))


@pytest.mark.parametrize("extension", [SQLITE_VEC, pytest.param(False, id="exact")])
@pytest.mark.parametrize(("decay", "mmr"), RANKINGS)
async def test_every_score_is_made_of_its_parts_and_the_order_of_the_scores(
    home, serve, provider, notes, *, extension, decay, mmr
):
    daemon = await serve(using(provider, extension=extension, decay=decay, mmr=mmr))
    await daemon.synced()
    status = await daemon.status()
    assert status.vector.engine == ("sqlite-vec" if extension else "exact" if home.store.is_sqlite else "pgvector")
    unsorted = 0
    for question, named in {**dict.fromkeys(UNDATED), **DATED}.items():
        for mode in (HYBRID, KEYWORD, VECTOR):
            answer = await ask(daemon, question, mode)
            assert answer.results or (mode is KEYWORD and question == "unheard unseen")
            assert answer.info.served_mode == mode
            check_legs(answer, mode)
            if mode is KEYWORD:
                check_absent(answer, "vector", "vector_rank")
            else:
                assert set(paths(answer)) == set(notes)
                check_vectors(answer, question, notes)
            if mode is VECTOR:
                check_absent(answer, "text", "keyword_rank", "coverage", "window")
                assert not answer.info.HasField("coverage")
            else:
                check_texts(answer, home.store)
                if named is None:
                    check_coverage(answer, UNDATED[question], notes)
                check_windows(answer)
            check_gains(answer, named)
            check_decays(answer, decay=decay)
            check_scores(answer, named)
            check_parts(answer)
            if mmr and answer.results:
                check_varied(answer, notes)
                scores = [hit.score for hit in answer.results]
                unsorted += scores != sorted(scores, reverse=True)
            elif not mmr:
                check_sorted(answer)
            await check_silent(daemon, answer, question, mode)
    assert bool(unsorted) is mmr


async def test_decay_and_a_named_date_change_the_order_that_they_explain(home, serve, provider, notes):
    """What the formulas above account for does happen."""
    plain = await serve(using(provider, extension=True, decay=False, mmr=False))
    await plain.synced()
    before = await ask(plain, "heron ferry", HYBRID)
    dated = await ask(plain, "heron and ferry on 2024-05-08", HYBRID)
    near = "memory/2024-05-08.md"
    assert paths(dated).index(near) < paths(before).index(near)
    await plain.stop()
    decaying = await serve(using(provider, extension=True, decay=True, mmr=False))
    after = await ask(decaying, "heron ferry", HYBRID)
    decays = {hit.score_detail.decay for hit in after.results}
    assert paths(after) != paths(before)
    assert {FLOOR, 1.0} < decays


async def test_a_hit_of_one_retriever_is_scored_by_both(home, serve, provider):
    """With more notes than a leg returns, a hit of one leg still has its true cosine and BM25."""
    chance = random.Random(4)
    texts = {f"memory/n{n:03}.md": " ".join(chance.choices(NOUNS.split(), k=chance.randint(6, 20))) for n in range(400)}
    # Rare words among many others: the best by BM25, and far off by meaning.
    texts |= {f"memory/rare{n}.md": f"zeppelin gondola {'candle meadow pepper ' * 2}" for n in range(3)}
    for path, text in texts.items():
        home.put(path, text)
    daemon = await serve(using(provider, extension=True, decay=False, mmr=False))
    await daemon.synced()
    words_alone = meanings_alone = 0
    for question in ("castle falcon", "heron ferry zeppelin", "stone river castle gondola", "engine jacket lamp soup"):
        answer = await daemon.search(question, mode=HYBRID, explain=True, min_score=0.0, max_results=20)
        assert answer.info.keyword_candidates < len(texts) > answer.info.vector_candidates
        found = home.store.bm25(answer.info.legs[0].terms)
        for hit in answer.results:
            detail = hit.score_detail
            assert detail.vector == pytest.approx(cosine(vector(texts[hit.path]), vector(question)), abs=1e-5)
            assert detail.text == pytest.approx(found.get(hit.path, 0.0) / min(found.values()), abs=1e-4)
            words_alone += not detail.HasField("vector_rank")
            meanings_alone += not detail.HasField("keyword_rank")
        check_scores(answer, None)
        check_sorted(answer)
    assert words_alone
    assert meanings_alone


async def test_chunks_shown_as_one_hit_keep_the_parts_of_the_best(home, serve, provider):
    """Chinese text makes short chunks, of which neighbours are shown as one; its score is that of the best of them."""
    chance = random.Random(3)
    words = ["灯塔", "花园", "河流", "石头", "渡轮", "面包", "城堡", "蜡烛", "沙漠", "冰川"]
    home.write(**{f"long{n}": "\n".join(" ".join(chance.choices(words, k=8)) for _ in range(20)) for n in range(2)})
    settings = using(provider, extension=True, decay=False, mmr=False)
    settings["agents"]["defaults"]["memorySearch"]["chunking"] = {"tokens": 30, "overlap": 0}
    daemon = await serve(settings)
    await daemon.synced()
    for mode in (HYBRID, KEYWORD, VECTOR):
        answer = await ask(daemon, "灯塔 花园", mode)
        assert 2 < len(answer.results) < min(50, max(answer.info.keyword_candidates, answer.info.vector_candidates))
        check_scores(answer, None)
        check_sorted(answer)
        for rank in ("vector_rank", "keyword_rank"):
            ranks = [getattr(hit.score_detail, rank) for hit in answer.results if hit.score_detail.HasField(rank)]
            assert len(set(ranks)) == len(ranks)
            assert all(place >= 1 for place in ranks)
        await check_silent(daemon, answer, "灯塔 花园", mode)


async def test_a_neighbour_of_a_better_result_moves_down_and_its_penalty_is_explained(home, serve):
    section = "## {title}\n\n{text}\n\n" + "An unrelated sentence about the weather of that year. " * 30
    parts = [("Ferry", "heron ferry castle lamp"), ("Harbour", "heron ferry castle"), ("End", "nothing else")]
    home.write(long="\n\n".join(section.format(title=title, text=text) for title, text in parts))
    home.write(other="heron ferry castle " + "and other words of this note " * 60)
    daemon = await serve({"agents": {"defaults": {"memorySearch": {"provider": "none"}}}})
    await daemon.synced()
    answer = await daemon.search("heron ferry castle", explain=True)
    penalties = {hit.score_detail.adjacent for hit in answer.results if hit.score_detail.HasField("adjacent")}
    assert penalties
    assert all(penalty / 0.08 == pytest.approx(round(penalty / 0.08)) for penalty in penalties)
    check_sorted(answer)


async def test_a_note_of_the_day_is_found_without_a_shared_word(home, serve):
    home.put("memory/2024-05-08.md", "We repaired the roof of the shed.")
    home.put("MEMORY.md", "- 2024-05-07: planted two pear trees\n- the shed is green\n")
    home.put("memory/2024-01-20.md", "A walk along the canal.")
    daemon = await serve({"agents": {"defaults": {"memorySearch": {"provider": "none"}}}})
    await daemon.synced()
    answer = await daemon.search("what happened on May 7 and May 8?", explain=True, now=NOON)
    assert sorted(paths(answer)) == ["MEMORY.md", "memory/2024-05-08.md"]
    assert [hit.score_detail.date for hit in answer.results] == [GAIN, GAIN]
    assert "pear" in "".join(hit.snippet for hit in answer.results)
    assert not (await daemon.search("what happened in 2021?", now=NOON)).results
