"""Parsing in linear time reads what the regular expressions before it read: those are kept here to compare with."""

import contextlib
import json
import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from memoryd_server.providers import http_errors, provider
from memoryd_server.qmd import client, hits, index
from memoryd_server.qmd.client import QmdFailureReason, QmdRow
from memoryd_server.qmd.home import matches
from memoryd_server.qmd.process import CommandResult, ExitKind
from memoryd_server.search import ranking
from memoryd_server.settings import resolved
from memoryd_server.sources import transcript_text, transcripts
from memoryd_server.sources.ignore import parse_rules
from memoryd_server.sources.transcript_text import parse_message
from regex_attacks import Attack, outgrows

SILENT_ENDS = re.compile(
    r"^[\s*_`\"']*(?:HEARTBEAT_OK|NO_REPLY)\b[\s*_`\"'.!]*|\s*\b(?:HEARTBEAT_OK|NO_REPLY)[\s*_`\"'.!]*$"
)
REPLY_TAG = re.compile(r"\[\[\s*(?:reply_to_current|reply_to:[^\]\n]*|audio_as_voice)\s*\]\]\s*")
HEARTBEAT = re.compile(r"HEARTBEAT\.md\b[\s\S]*\bHEARTBEAT_OK\b")
NOTHING = re.compile(r"(?:^|[:\]])\s*no results found\b[^:]*$", re.IGNORECASE)
UNKNOWN_COLLECTION = re.compile(r"collection\b.*\b(?:not found|does not exist|missing)", re.IGNORECASE)
PENDING = re.compile(r"(\d+) documents? (?:\((\d+)%\) )?need embeddings")
TOTAL = re.compile(r"^\s*Total:\s+(\d+)", re.MULTILINE)
HALF = re.compile("[\ud800-\udfff\ufffd]+$")
DATED = re.compile(r"(?:^|/)memory/(?:.*/)?([0-9]{4})-([0-9]{2})-([0-9]{2})(?![0-9])[^/]*$", re.DOTALL)
NAME = re.compile(r"(?P<session>[^/]+?)\.jsonl(?P<rotated>\.(?:reset|deleted)\.[^/]+)?")
USERINFO = re.compile(r"//[^/?#]*@")
QUERY = re.compile(r"(?<=[?&])([^=&#\s]+)=[^&#\s]*")
ARRAY = re.compile(r"(?i)array.* length \d")
COUNT = re.compile(r"(?i)batch|item|array|list|input(?:s| count)|number of|texts")
TOKENS = re.compile(r"(?i)token|context|length")
FAMILIES = (
    r"embedding-?gemma",
    r"nomic-embed-text.*moe",
    r"nomic-embed-text",
    r"\be5-mistral",
    r"\be5-.*instruct",
    r"\be5-",
    r"\bbge-(?:m3|multilingual)",
    r"\bbge-.*zh",
    r"\bbge-(?:small|base|large)",
    r"qwen3-embedding",
    r"mxbai-embed",
    r"arctic-embed.*v?2\.0|arctic-embed2",
    r"arctic-embed",
    r"minilm",
    r"gemini-embedding-2",
    r"text-embedding-ada-002",
    r"voyage-3-lite",
    r"voyage-",
)
GLOB_PIECE = re.compile(r"\*\*/|\*\*|\\.|\[[^\]]+\]|.", re.DOTALL)


def texts(*tokens):
    """Texts made of these tokens and of characters of their own."""
    return st.lists(st.sampled_from((*tokens, "x", " ", "\n", "\t", "_", "é", ":")), max_size=14).map("".join)


@given(texts("HEARTBEAT_OK", "NO_REPLY", "HEARTBEAT", "*", "`", "!", ".", '"', "  "))
@example("NO_REPLY *_NO_REPLY")
@example("HEARTBEAT_OK HEARTBEAT_OK HEARTBEAT_OK")
@example("NO_REPLY_")
@example("text\x1c NO_REPLY\n")
def test_silent_replies_are_removed_as_before(text):
    assert transcript_text.remove_silent_replies(text) == SILENT_ENDS.sub("", text)


@given(texts("[[", "[", "]]", "]", "reply_to:", "reply_to_current", "audio_as_voice", "  "))
@example("[[reply_to:x [[\nreply_to_current]] said")
@example("[[reply_to:a\n  ]] said")
@example("[[[audio_as_voice]]]")
@example("[[reply_to:[[reply_to:a]b[[reply_to:c]] d")
def test_reply_tags_are_removed_as_before(text):
    assert transcript_text.remove_reply_tags(text) == REPLY_TAG.sub("", text)


@given(texts("HEARTBEAT.md", "HEARTBEAT_OK", ".", "HEARTBEAT"))
def test_heartbeats_are_recognised_as_before(text):
    assert transcript_text.is_heartbeat(text) == bool(HEARTBEAT.search(text))


@given(texts("no results found", "No Results Found", "]", "[", "no results"))
def test_words_for_no_results_are_read_as_before(text):
    said = any(NOTHING.search(line.strip()) for line in text.splitlines())
    try:
        assert (client.parse_rows("", text) == []) is said
    except client.QmdFailure:
        assert not said


@given(texts("collection", "Collection", "not found", "does not exist", "missing", "-"))
def test_unknown_collections_are_recognised_as_before(text):
    with pytest.raises(client.QmdFailure) as caught:
        client.check(finished(stderr=text, code=1))
    assert (caught.value.reason is QmdFailureReason.UNKNOWN_COLLECTION) == bool(UNKNOWN_COLLECTION.search(text))


@given(texts("12", "3", " documents ", " document ", "(40%) ", "need embeddings"))
def test_pending_documents_are_counted_as_before(text):
    before = PENDING.search(text)
    assert client.read_pending(text) == ((int(before[1]), int(before[2] or 0)) if before else (0, 0))


@given(texts("Total:", "12", "  ", "\r", "\x0b", "Total"))
def test_totals_are_read_as_before(text):
    before = TOTAL.search(text)
    assert index.read_counts(finished(stdout=text)).total == (int(before[1]) if before else 0)


def test_numbers_that_python_refuses_to_read_are_no_error():
    digits = "9" * 5_000
    assert client.read_pending(f"{digits} documents need embeddings") == (0, 0)
    assert index.read_counts(finished(stdout=f"Total: {digits}")).total == 0


@given(texts("\ufffd", "\ud83d", "\n", "..."))
def test_the_rest_of_a_cut_snippet_is_removed_as_before(text):
    assert hits.remove_cut_end(text) == HALF.sub("", text).removesuffix("\n")


def place_before(row, lines):
    """Where a row was found by comparing line by line."""
    wanted = HALF.sub("", row.snippet.removesuffix("...")).removesuffix("\n").split("\n")

    def stands_at(start):
        there = lines[start - 1 : start - 1 + len(wanted)]
        return len(there) == len(wanted) and there[:-1] == wanted[:-1] and there[-1].startswith(wanted[-1])

    start = row.start_line or max(1, row.line)
    if not any(line.strip() for line in wanted):
        return (start, False) if start <= len(lines) and any(line.strip() for line in lines) else (None, True)
    if stands_at(start):
        return start, False
    return next((at for at in range(1, len(lines) + 1) if stands_at(at)), None), True


@given(texts("a", "b", "\n", "\n"), texts("a", "b", "\n", "..."), st.integers(0, 6), st.integers(-1, 6))
def test_rows_are_found_in_their_files_as_before(text, snippet, start, line):
    row = QmdRow("qmd://memory-root/a.md", 0.5, snippet, start, 1, line)
    lines = text.split("\n")
    assert hits.find_snippet(row, lines) == place_before(row, lines)


@given(texts("memory/", "/", "2026-02-10", "2026-13-40", "1", ".md", "memory", "a"))
@example("memory/2026-02-10\n")
@example("/memory//2026-02-10")
def test_dated_paths_are_read_as_before(path):
    before = DATED.search(path)
    found = ranking.match_day(path)
    assert (found and found.groups()) == (before and before.groups())


@given(texts(".jsonl", ".reset.", ".deleted.", "/", "a", ".").filter(bool))
def test_names_of_transcripts_are_read_as_before(name):
    before = NAME.fullmatch(name)
    assert transcripts.session_id(name) == (before["session"] if before else name)


@given(texts("?", "&", "=", "#", "key", "?a=b"))
def test_credentials_of_addresses_are_masked_as_before(text):
    address = f"http://a/{text}"
    assert resolved.mask(address) == QUERY.sub(r"\1=***", USERINFO.sub("//***@", address))


@given(texts("array", "Array", " length ", "1"))
def test_array_lengths_are_recognised_as_before(text):
    about_count = ARRAY.search(text) or (COUNT.search(text) and not TOKENS.search(text))
    assert http_errors.is_about_count(text) == bool(about_count)


@given(st.lists(st.sampled_from(("nomic-embed-text", "moe", "e5-", "instruct", "bge-", "zh", "-", "a", "arctic-embed",
    "2.0", "v2.0", "2", "\n", "mistral", "small", "m3")), max_size=6).map("".join))  # fmt: skip
def test_model_families_are_found_as_before(name):
    before = next((at for at, pattern in enumerate(FAMILIES) if re.search(pattern, name)), None)
    found = provider.find_family(name)
    assert (None if found is None else provider.FAMILIES.index(found)) == before


def regex_of_glob(pattern):
    """The regular expression that a glob was matched by."""

    def regex_of(piece):
        if piece.startswith("[") and len(piece) > 1:
            inside = piece[1:-1].replace("\\", "\\\\")
            return f"[^{inside[1:]}]" if inside.startswith("!") else f"[{inside}]"
        if piece.startswith("\\"):
            return re.escape(piece[1:])
        special = {"**/": "(?:[^/]+/)*", "**": ".*", "*": "[^/]*", "?": "[^/]", "{": "(?:", "}": ")", ",": "|"}
        return special.get(piece, re.escape(piece))

    depth, parts = 0, []
    for piece in GLOB_PIECE.findall(pattern):
        closes = piece == "}" and depth > 0
        depth += (piece == "{") - closes
        parts.append(re.escape(piece) if piece == "}" and not closes else regex_of(piece))
    return "".join([*parts, *[")"] * depth])


GLOB_TOKENS = ("*", "**", "**/", "?", "[ab]", "[!a]", "{", "}", ",", "\\*", "a", "b", "/", ".md", "[", "]", "\n")


@given(
    st.lists(st.sampled_from(GLOB_TOKENS), max_size=9).map("".join),
    st.lists(st.sampled_from(("a", "b", "/", ".md", "*", "\n")), max_size=6).map("".join),
)
@example("{MEMORY.md,memory.md,memory/**/*.md}", "memory/a/b.md")
@example("**/*.md,{a,b}/*", "b/a")
@example("{{a,b}", "b")
def test_globs_match_as_before(pattern, path):
    try:
        expected = re.fullmatch(regex_of_glob(pattern), path, re.DOTALL) is not None
    except (re.error, FutureWarning):
        return
    if not re.search(r"[!@+?*]\(", pattern):
        assert matches(pattern, path) is expected


def finished(stdout="", stderr="", code=0):
    return CommandResult(ExitKind.EXITED, code, stdout, stderr, 0.1)


def record(role, text):
    return json.dumps({"type": "message", "message": {"role": role, "content": text}})


def failure_of(stderr):
    with pytest.raises(client.QmdFailure):
        client.check(finished(stderr=stderr, code=1))


def rows_of(stdout):
    with contextlib.suppress(client.QmdFailure):
        client.parse_rows(stdout, "")


def place_of(snippet):
    lines = snippet.split("\n")
    hits.find_snippet(QmdRow("qmd://a/a.md", 0.5, f"{snippet}b\nc", 3, 1, 1), [*lines, "a", "b"])


WORK = {
    "user message": lambda text: parse_message(1, record("user", text)),
    "assistant message": lambda text: parse_message(1, record("assistant", text)),
    "silent reply": lambda text: parse_message(1, record("assistant", f"said {text} NO_REPLY x")),
    "qmd error": failure_of,
    "qmd answer": rows_of,
    "place of a snippet": place_of,
    "dated path": ranking.day_of,
    "transcript's name": transcripts.session_id,
    "glob": lambda text: matches("**/*a*a*a*a*{b,**/c}*[ab]?x", text),
    "glob without a slash": lambda text: matches("**/**/**/*b*b*b*b.md", text.replace("/", "")),
    "deep ignore rules": lambda text: parse_rules("**/a/**/b/**/c\n*a*a*a*a*b\n").ignores_file(text.split("/")),
}
PUMPS = {
    "heartbeats": "HEARTBEAT.md ",
    "reply tags": "[[reply_to:",
    "reply tags with blanks": "[[ reply_to: ",
    "broken reply tags": "[[reply_to:\n",
    "deliveries": "Delivery: [OpenClaw heartbeat poll]",
    "exec notices": "Exec completed (a, signal ",
    "blanks": " ",
    "lines": "\n",
    "letters": "a",
    "letters and lines": "a\n",
    "silent replies": "NO_REPLY ",
    "options": "-u ==",
    "words for nothing": "] no results found",
    "collections": "collection ",
    "digits": "1",
    "folders": "memory/",
    "short folders": "a/",
    "dates": "/2026-01-02",
    "transcripts": ".jsonl.reset.",
}


# What the fast tier tries; the long tier tries all of them.
COMMON_PUMPS = ("blanks", "lines", "letters", "digits", "short folders")
SUFFIXES = ("", "xHEARTBEAT_OK", " NO_REPLY", ":", "\nx/")


def superlinear(work, pumps):
    """The attacks under which one kind of work takes more time than its text explains."""
    attacks = [Attack("", PUMPS[pump], suffix) for pump in pumps for suffix in SUFFIXES]
    return [attack for attack in attacks if outgrows(WORK[work], attack)]


@pytest.mark.attacks
@pytest.mark.parametrize("work", WORK)
def test_the_whole_work_on_common_texts_takes_time_in_proportion_to_them(work):
    assert not superlinear(work, COMMON_PUMPS)


@pytest.mark.slow
@pytest.mark.attacks
@pytest.mark.parametrize("work", WORK)
def test_the_whole_work_takes_time_in_proportion_to_its_text(work):
    assert not superlinear(work, PUMPS)
