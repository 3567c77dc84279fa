"""The documentation, comments and messages use plain technical English.

The phrases below are signs of sentences that a reader has to read twice. `CONTRIBUTING.md` says what to write instead.
"""

import ast
import io
import re
import tokenize
from functools import cache
from itertools import chain
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[2]
PYTHON_FOLDERS = ("service", "clients/python", "benchmarks")
TEXT_FILES = ("*.md", "docs/*.md", "docs/decisions/*.md", "clients/**/*.md", "clients/**/*.mk", "Makefile")
COMMENTED_FILES = ("protos/memoryd/**/*.proto", "clients/go/**/*.go", "clients/java/**/*.java", "clients/rust/**/*.rs")
COMMENTED_FILES += ("clients/typescript/**/*.ts", "clients/grpcurl/*.sh")
# Generated, installed or built files, and lists of words that are data.
EXCLUDED = re.compile(r"/(v1|gen|node_modules|target|dist|build|\.venv)/|_pb2|memoryd_server/text/languages\.py$")

MOST_FORBIDDEN = 25
"""How many phrases of `FORBIDDEN` are allowed in total."""
MOST_PHRASES = 75
"""How many phrases of `PHRASES` are allowed in total, including those of `FORBIDDEN`."""

FORBIDDEN = {
    "anew": r"\banew\b",
    "nobody": r"\bnobody\b",
    "whoever": r"\bwhoever\b",
    "hears": r"\b(hears|heard)\b",
    "the reference (for OpenClaw)": r"\bthe reference('s)?\b(?! (to|of|count|counts|date|day|point|manual)\b)",
    "where it is there": r"\bwhere (it|they|there|one) (is|are|was|were) (there|one|none|any|no)\b",
}
PHRASES = FORBIDDEN | {
    "so many": r"\bso many\b(?! (as|that)\b)",
    "tells, told": r"\b(tells?|told|telling)\b(?!( \w+){0,3} apart\b)",
    "stands (for is)": r"\b(stands?|stood)\b(?!-)",
    "whatever": r"\bwhatever\b",
    "at once (immediately, or concurrently)": r"\bat once\b",
}


def python_texts(source):
    """The strings and comments of a Python file."""
    constants = (node.value for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Constant))
    comments = (token for token in tokenize.generate_tokens(io.StringIO(source).readline))
    yield from (value for value in constants if isinstance(value, str))
    yield " ".join(token.string.lstrip("# ") for token in comments if token.type == tokenize.COMMENT)


def texts(file):
    source = file.read_text(encoding="utf-8")
    if file.suffix == ".py":
        yield from python_texts(source)
    else:
        yield re.sub(r"\n\s*(///?|\*|#)", "\n", source)


def files():
    patterns = [*(f"{folder}/**/*.py" for folder in PYTHON_FOLDERS), *TEXT_FILES, *COMMENTED_FILES]
    for file in sorted(set(chain.from_iterable(REPOSITORY.glob(pattern) for pattern in patterns))):
        path = f"/{file.relative_to(REPOSITORY).as_posix()}"
        if path.startswith("/protos/") or not EXCLUDED.search(path):
            yield file


@cache
def found():
    """Return each phrase that occurs, as its name and a line with its file and the words around it."""
    lines = []
    for file in files():
        for text in map(" ".join, map(str.split, texts(file))):
            for name, pattern in PHRASES.items():
                for match in re.finditer(pattern, text, re.IGNORECASE):
                    around = text[max(match.start() - 40, 0) : match.end() + 40]
                    lines.append((name, f"{file.relative_to(REPOSITORY)}: {name}: ...{around}..."))
    return lines


def test_all_kinds_of_files_are_checked():
    checked = {file.relative_to(REPOSITORY).as_posix() for file in files()}
    assert {"README.md", "Makefile", "docs/errors.md", "clients/go/memoryd/client.go"} <= checked
    assert {"service/memoryd_server/errors.py", "protos/memoryd/v1/memory.proto"} <= checked
    assert not [path for path in checked if "_pb2" in path or "/gen/" in path]


def test_a_phrase_is_found_in_docstrings_comments_and_messages():
    source = '"""Told."""\n# whoever\nraise ValueError(f"made {1} anew")\nnobody = 1\n'
    names = [name for text in python_texts(source) for name in PHRASES if re.search(PHRASES[name], text, re.IGNORECASE)]
    assert sorted(names) == ["anew", "tells, told", "whoever"]


def test_phrases_with_a_plain_meaning_are_allowed():
    text = "tell them apart; a stand-in; so many that it fails; the reference count; where it is stored"
    assert not [name for name, pattern in PHRASES.items() if re.search(pattern, text)]


@pytest.mark.slow
@pytest.mark.parametrize(("phrases", "most"), [(FORBIDDEN, MOST_FORBIDDEN), (PHRASES, MOST_PHRASES)])
def test_suspect_phrases_are_rare(phrases, most):
    lines = [line for name, line in found() if name in phrases]
    assert len(lines) <= most, f"{len(lines)} phrases:\n" + "\n".join(lines)
