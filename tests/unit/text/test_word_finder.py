"""WordFinder finds the same words as the analysis of each line, whatever the cache of pieces contains."""

import sys
import threading
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memoryd_server.text import Analyzer
from memoryd_server.text.pieces import CacheLimits

TEXTS = st.lists(
    st.text(st.sampled_from("abcB1 \n-._/é京都ก\u3000\ud800"), max_size=30)
    | st.lists(
        st.sampled_from(
            ["running", "Runs", "run.", "user-id", "userId", "foo/bar/baz.py", "京都大学", "run\n", "x" * 50, "à"]
        ),
        max_size=12,
    ).map(" ".join),
    min_size=1,
    max_size=6,
)


def expected(text, words, prefixes):
    """Return the words of each line, by an analyzer without a cache."""
    analyzer = Analyzer()
    by_line = {}
    for number, line in enumerate(text.split("\n")):
        tokens = analyzer.index_tokens(line).split()
        found = [token for token in tokens if token in words or token.startswith(tuple(prefixes))]
        if found:
            by_line[number] = found
    return by_line


def beginnings(text):
    """Return the text up to the end of each line but the last, with its line feed."""
    lines = text.split("\n")
    return ["\n".join(lines[:number]) + "\n" for number in range(1, len(lines))]


def some_words(texts, data):
    tokens = sorted({token for text in texts for token in Analyzer().index_tokens(text).split()})
    return data.draw(st.sets(st.sampled_from([*tokens, "absent"]), max_size=5))


@pytest.mark.parametrize(
    "limits",
    [
        CacheLimits(),
        CacheLimits(pieces=3),
        CacheLimits(pieces=0),
        CacheLimits(text_bytes=0),
        CacheLimits(text_bytes=1_200),
        CacheLimits(chars=4),
        CacheLimits(tokens=1),
        CacheLimits(tokens=0),
        CacheLimits(pieces_by_token=1),
    ],
    ids=str,
)
@given(texts=TEXTS, data=st.data())
def test_finder_returns_the_same_words_as_the_analysis_of_each_line(limits, texts, data):
    analyzer = Analyzer(limits)
    for text in data.draw(st.lists(st.sampled_from(texts), max_size=3)):
        analyzer.index_tokens(text)
    words = some_words(texts, data)
    prefixes = data.draw(st.sets(st.sampled_from(["r", "京", "us"]), max_size=2))
    finder = analyzer.finder(words, prefixes)
    assert [found.words for found in finder.lines(texts)] == [expected(text, words, prefixes) for text in texts]
    for text in [*texts, *texts]:
        lines = expected(text, words, prefixes)
        (found,) = finder.lines([text])
        assert found.words == lines
        assert [text[:end] for end in found.line_ends[:-1]] == beginnings(text)
        assert finder(text) == [word for found in lines.values() for word in found]
        # Pieces that were cached after the finder was made are found, too.
        analyzer.index_tokens(f"{text} runner")


def test_finder_keeps_its_cache_when_the_analyzer_replaces_a_full_one():
    analyzer = Analyzer(CacheLimits(pieces=3))
    analyzer.index_tokens("one two")
    finder = analyzer.finder(["two"], [])
    analyzer.index_tokens("three four five")
    analyzer.index_tokens("six")
    (found,) = finder.lines(["one two\nthree two"])
    assert found.words == {0: ["two"], 1: ["two"]}


def test_words_are_found_while_other_threads_index_them():
    analyzer = Analyzer()
    texts = [f"word{number} common\nword{number + 1}" for number in range(2_000)]
    stop = threading.Event()

    def index():
        for text in texts:
            if stop.is_set():
                return
            analyzer.index_tokens(text)

    threads = [threading.Thread(target=index) for _ in range(2)]
    for thread in threads:
        thread.start()
    try:
        for number in range(0, 2_000, 7):
            finder = analyzer.finder([f"word{number}", "common"], [])
            for near in range(max(0, number - 2), min(2_000, number + 3)):
                (found,) = finder.lines([texts[near]])
                assert found.words == expected(texts[near], {f"word{number}", "common"}, ())
    finally:
        stop.set()
        for thread in threads:
            thread.join()


def test_memory_of_long_pieces_is_bounded():
    analyzer = Analyzer(CacheLimits(text_bytes=10_000))
    tracemalloc.start()
    try:
        for number in range(500):
            (found,) = analyzer.finder(["heron"], []).lines([f"heron\n{number:05}{'x' * 5_000}"])
            assert found.words == {0: ["heron"]}
        assert tracemalloc.get_traced_memory()[0] < 500_000
    finally:
        tracemalloc.stop()


def test_caches_of_many_languages_are_within_the_limits_of_four():
    limits = CacheLimits(pieces=100, text_bytes=20_000)
    analyzer = Analyzer(limits)
    languages = [f"language {number}" for number in range(30)]
    for number, language in enumerate([*languages, *languages]):
        text = " ".join(f"{number}word{place}" for place in range(90))
        analyzer.index_tokens(text, language)
        (found,) = analyzer.finder([f"{number}word7"], [], language).lines([text])
        assert found.words == {0: [f"{number}word7"]}
        sizes = analyzer.cache_sizes
        assert sizes.languages <= 24
        assert sizes.pieces <= 4 * limits.pieces + 90
        assert sizes.text_bytes <= 4 * limits.text_bytes + 10_000
    assert sizes.languages > 2


@pytest.mark.slow
@pytest.mark.parametrize("line", ["-" * 300, "\u2500" * 300, "\U0001f600" * 300], ids=["dashes", "rules", "emoji"])
def test_long_pieces_without_words_are_not_kept_with_each_text(line):
    analyzer = Analyzer()
    texts = [f"heron {number}\n{line}" for number in range(2_000)]
    tracemalloc.start()
    try:
        for text in texts:
            (found,) = analyzer.finder(["heron"], []).lines([text])
            assert found.words == {0: ["heron"]}
        assert tracemalloc.get_traced_memory()[0] < 2_500_000
    finally:
        tracemalloc.stop()


def test_threads_that_search_many_languages_do_not_disturb_one_another():
    analyzer, errors = Analyzer(CacheLimits(pieces=20, text_bytes=2_000)), []
    before = sys.getswitchinterval()

    def search(thread):
        try:
            for number in range(400):
                word = f"word{number % 50}"
                (found,) = analyzer.finder([word], [], f"language {(number + thread) % 15}").lines([f"{word} other"])
                assert found.words == {0: [word]}
        except Exception as error:  # noqa: BLE001 -- reported by the test
            errors.append(error)

    sys.setswitchinterval(1e-6)
    try:
        threads = [threading.Thread(target=search, args=(thread,)) for thread in range(5)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(before)
    assert errors == []
