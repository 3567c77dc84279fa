"""Texts made to cost much: the time that they take grows no faster than they do.

It is compared with that of plain text of the same size in the same process, so that a slow machine changes nothing.
"""

from datetime import UTC, datetime

import pytest

from memoryd_server.chunk.front_matter import split_front_matter
from memoryd_server.chunk.markdown import chunk_markdown
from memoryd_server.entries.capture import MOST_TEXT_CHARS, suggest
from memoryd_server.recall import escape_line, read_turn
from memoryd_server.search.dates import dates_in
from memoryd_server.search.snippet import TermMatcher, best_snippet
from memoryd_server.sources.secrets import mask_secrets
from memoryd_server.text.analyzer import Analyzer
from regex_attacks import seconds

pytestmark = pytest.mark.attacks

SIZE = 32 * 1024
# How much dearer than plain text, of which one letter may stand for eighteen, and how much dearer twice the size, with
# room for a noisy machine. What is tried again at every place takes thousands of times as long.
MOST_TIMES_PLAIN = 120
MOST_TIMES_HALF = 5
LEAST_SECONDS = 0.01

PLAIN = "The harbour crane lifts containers while gulls circle over pier seven.\n"
BOMBS = {
    "one letter": "a",
    "letter and end": "a" * 30 + "!",
    "spaces": " ",
    "line breaks": "\n",
    "carriage returns": "\r",
    "tabs and spaces": "\t ",
    "dashes": "-",
    "front matter": "---\na: b\n",
    "front matter never closed": "---\n" + "a:\n",
    "anchors": "&a [*a,*a,*a,*a]\n",
    "headings": "# x\n",
    "deep headings": "###### x\n# y\n",
    "backticks": "`",
    "fences": "```\n",
    "open fences": "~~~~\n```\n",
    "quotes": ">",
    "lists": "- ",
    "brackets": "[",
    "closing brackets": "]",
    "links": "[a](",
    "images": "![",
    "stars": "*",
    "underscores": "_",
    "stars and words": "*a _b ",
    "tables": "|a|b|\n|-|-|\n",
    "html": "<a ",
    "html comment": "<!--",
    "entities": "&amp;",
    "backslashes": "\\",
    "dots": "a.a.",
    "mail addresses": "a@a.",
    "addresses": "http://a/",
    "keys": "sk-",
    "key with value": "password=",
    "private key": "-----BEGIN RSA PRIVATE KEY-----\n",
    "base64": "A" * 63 + "=",
    "hex": "0123456789abcdef",
    "digits": "1234-",
    "dates": "2026-01-02 ",
    "dates in words": "on the 3rd of May last week 5 days ago ",
    "beginnings of dates": "in the last ",
    "CJK": "成语接龙",
    "Thai": "ภาษาไทย",
    "Korean": "가나다",
    "combining marks": "a" + "\u0301" * 63,
    "only combining marks": "\u0301",
    "marks in the wrong order": "\u0301\u0316",
    "zalgo": "h\u0334\u0321\u035d\u0357\u0313",
    "joined": "👩‍👩‍👧‍👦",
    "joiners": "\u200d",
    "flags": "🇩🇪",
    "halves of flags": "\U0001f1e6",
    "right to left": "\u202eabc\u202c",
    "grows when decomposed": "\ufdfa",
    "grows and is joined": "\ufdfa-",
    "ligatures": "\ufb03\ufdfb",
    "squares of kana": "\u3316",
    "grows when upper-cased": "ŉß\u0390",
    "Hangul jamo": "\u1100\u1161\u11a8",
    "surrogate range": "\ufffd\U0010ffff",
    "NUL": "\0",
    "variation selectors": "x\ufe0f\ufe0e",
    "soft hyphens": "so\u00adft",
    "full width": "\uff21\uff22\uff23",
    "long words": "x" * 300 + " ",
    "camel case": "aB",
    "snake case": "a_",
    "quotes of FTS": 'a" OR "b ',
    "tag and breaks": "<" + "\n" * 8_000,
    "word and breaks": "x" + "\n" * 8_000,
    "tag and spaces": "<" + "\u3000" * 4_000,
    "phone number": "+1 (",
    "orders": "ignore " + "x " * 30,
    "operators of FTS": "NEAR(a b) AND NOT * ^ : ",
}
# What the fast tier tries; the long tier tries all of them.
COMMON_BOMBS = ("letter and end", "dashes", "brackets", "key with value", "joined", "long words")


def filled(piece, size):
    """Text of about so many bytes of UTF-8."""
    return piece * max(1, size // len(piece.encode()))


def chunked(text):
    """A file's chunks."""
    chunk_markdown(text, 400, 80)


def index(text):
    """All that is done with a Markdown file before it is stored."""
    analyzer = Analyzer()
    front = split_front_matter(text)
    chunks = chunk_markdown(front.body, 400, 80, front.first_line)
    for chunk in chunks:
        analyzer.index_tokens(chunk.text, analyzer.language_of(chunk.text))


def ask(text):
    """All that is made of a question, which may be 4 KiB long."""
    Analyzer().query_terms(text[:4096], ("", "de", "fr"))


def when(text):
    """The dates that a question names."""
    dates_in(text[:4096], datetime(2026, 5, 4, tzinfo=UTC))


def show(text):
    """The window of one chunk that answers; a chunk is a few KiB long."""
    analyzer = Analyzer()

    def words_of(line):
        return frozenset(analyzer.index_tokens(line).split())

    best_snippet(text[:8_000], 1, TermMatcher(words_of(text[:200]) or {"x"}), words_of, 700)


WORK = {
    "index": index,
    "ask": ask,
    "when": when,
    "show": show,
    "mask": mask_secrets,
    "recall": lambda text: escape_line(text, MOST_TEXT_CHARS),
    "turn": read_turn,
    "capture": lambda text: suggest([text], SIZE),
}


@pytest.fixture(scope="module")
def plain():
    """What plain text costs, by what is done with it."""
    return {work: max(seconds(do, filled(PLAIN, SIZE), 3), LEAST_SECONDS) for work, do in WORK.items()}


def grows_too_fast(plain, work, name):
    """What is wrong with the time that one kind of work takes for one text; empty where nothing is."""
    do, bomb = WORK[work], filled(BOMBS[name], SIZE)
    if seconds(do, bomb) < LEAST_SECONDS:
        return ""
    # Once more, and more than once: whatever else the machine does counts as well.
    whole, half = seconds(do, bomb, 2), seconds(do, filled(BOMBS[name], SIZE // 2), 2)
    if whole < plain[work] * MOST_TIMES_PLAIN and whole < max(half, LEAST_SECONDS) * MOST_TIMES_HALF:
        return ""
    return f"\n{name}: {whole:.3f} s, {plain[work]:.3f} s for plain text, {half:.3f} s for half of it"


@pytest.mark.parametrize("work", WORK)
def test_the_time_for_common_attacks_grows_with_the_size_alone(plain, work):
    assert not "".join(grows_too_fast(plain, work, name) for name in COMMON_BOMBS)


@pytest.mark.slow
@pytest.mark.parametrize("work", WORK)
def test_the_time_grows_with_the_size_alone(plain, work):
    """For every text, with all that take too long in the message."""
    assert not "".join(grows_too_fast(plain, work, name) for name in BOMBS)


def test_a_heading_of_a_megabyte_costs_the_chunks_below_it_nothing():
    """Each of them has the headings above it."""
    title, below = "x " * (SIZE * 16), filled(PLAIN, SIZE * 32)
    plain = max(seconds(chunked, f"{title}\n{below}", 2), LEAST_SECONDS)
    assert seconds(chunked, f"# {title}\n{below}", 2) < plain * MOST_TIMES_HALF


def laughs(size):
    """Each line means nine times the one before."""
    lines = ["a0: &a0 [x]", *(f"a{at}: &a{at} [{','.join([f'*a{at - 1}'] * 9)}]" for at in range(1, size // 60))]
    return "\n".join(lines)


HEADS = {
    "billion laughs": laughs,
    "deep lists": lambda size: "a: " + "[" * size,
    "deep mappings": lambda size: "".join(f"{' ' * at}a:\n" for at in range(int((2 * size) ** 0.5))),
    "deep flow mappings": lambda size: "{a: " * (size // 4),
    "many keys": lambda size: "".join(f"k{at}: v\n" for at in range(size // 8)),
    "one key": lambda size: "k" * size + ": v",
    "one value": lambda size: "k: |\n" + "  x\n" * (size // 4),
    "quotes": lambda size: 'k: "' + '\\"' * (size // 2) + '"',
    "tags": lambda size: "k: !!python/object/apply:os.system [" + "x," * (size // 2) + "]",
    "question marks": lambda size: "? " * (size // 2),
    "comments": lambda size: "#\n" * (size // 2),
    "documents": lambda size: "k: v\n--- \n" * (size // 10),
}


@pytest.mark.parametrize("name", HEADS)
def test_the_time_of_front_matter_grows_with_its_size_alone(plain, name):
    whole = f"---\n{HEADS[name](SIZE)}\n---\n\ntext\n"
    assert seconds(index, whole, 2) < plain["index"] * MOST_TIMES_PLAIN
