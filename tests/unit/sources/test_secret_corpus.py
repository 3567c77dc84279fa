"""The share of a corpus of secrets that is masked, and of harmless lines that are changed.

`python -m pytest tests/unit/sources/test_secret_corpus.py -s` prints both, with every miss.
"""

import json
from collections import Counter

import pytest

from harmless_corpus import LINES
from memoryd_server.sources.secrets import mask_secrets
from memoryd_server.sources.transcript_text import parse_message
from secret_corpus import EXAMPLES

LEAST_MASKED = 0.95
MOST_CHANGED = 0.02


def as_message(text):
    """The text as a message of a transcript, where runs of blanks are one blank and secrets are masked."""
    message = parse_message(1, json.dumps({"type": "message", "message": {"role": "user", "content": text}}))
    return message.text


def leaks(secret, shown):
    """Whether more than half of a secret is shown in one piece; of a long one, more than its two ends."""
    length = len(secret) // 2 + 1 if len(secret) < 18 else max(len(secret) // 2 + 1, 9)
    return any(secret[at : at + length] in shown for at in range(len(secret) - length + 1))


def report(kind, share, lines):
    print(f"\n{kind}: {share:.1%}", *map(ascii, lines), sep="\n  ")  # noqa: T201 -- the rates are to be read


@pytest.mark.parametrize("convert", [mask_secrets, as_message])
def test_at_least_95_of_100_secrets_are_masked(convert):
    missed = [each for each in EXAMPLES if leaks(each.secret, convert(each.text))]
    share = 1 - len(missed) / len(EXAMPLES)
    report(f"masked of {len(EXAMPLES)} secrets", share, [f"{each.kind}: {each.text}" for each in missed])
    assert share >= LEAST_MASKED


@pytest.mark.parametrize("convert", [mask_secrets, as_message])
def test_at_most_2_of_100_harmless_lines_are_changed(convert):
    changed = [line for line in LINES if convert(line).split() != line.split()]
    share = len(changed) / len(LINES)
    report(f"changed of {len(LINES)} harmless lines", share, [f"{line} -> {convert(line)}" for line in changed])
    assert share <= MOST_CHANGED


def test_the_corpus_is_large_and_its_secrets_are_in_its_texts():
    assert len(EXAMPLES) >= 150
    assert len(LINES) >= 150
    assert all(each.secret in each.text for each in EXAMPLES)
    assert max(Counter(each.kind for each in EXAMPLES).values()) < len(EXAMPLES) / 2


@pytest.mark.parametrize("convert", [mask_secrets, as_message])
def test_masking_the_corpus_again_changes_nothing(convert):
    shown = [convert(each.text) for each in EXAMPLES]
    assert [mask_secrets(text) for text in shown] == shown


def test_secrets_in_one_long_message_are_masked_as_well_as_alone():
    shown = mask_secrets(" ".join(each.text.replace("\n", " ") for each in EXAMPLES))
    missed = {each.secret: shown.count(each.secret) for each in EXAMPLES if each.secret in shown}
    share = 1 - sum(missed.values()) / len(EXAMPLES)
    report(f"masked of {len(EXAMPLES)} secrets in one message", share, missed)
    assert share >= LEAST_MASKED
