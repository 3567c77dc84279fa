"""Secrets of many forms do not pass; ordinary words in the same places do."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memoryd_server.sources.secrets import mask_secrets
from regex_attacks import takes_longer
from secret_texts import INNOCENT, SECRETS


@pytest.mark.parametrize("form", SECRETS)
def test_a_secret_of_this_form_does_not_pass(form):
    text, secret = SECRETS[form]
    shown = mask_secrets(f"before {text} after")
    assert shown.startswith("before ")
    assert shown.endswith(" after")
    assert secret in text
    assert secret not in shown
    assert secret[6:-4] not in shown


@pytest.mark.parametrize("form", SECRETS)
def test_two_secrets_of_a_form_in_a_row_are_both_masked(form):
    text, secret = SECRETS[form]
    assert secret not in mask_secrets(f"{text} and {text}")
    assert secret not in mask_secrets(f"{text}\n{text}")


@pytest.mark.parametrize("text", INNOCENT)
def test_ordinary_text_stays_as_it_is(text):
    assert mask_secrets(text) == text


@pytest.mark.parametrize("form", SECRETS)
def test_masking_what_is_masked_changes_nothing(form):
    once = mask_secrets(SECRETS[form][0])
    assert mask_secrets(once) == once


_PIECES = [
    *(text for text, _ in SECRETS.values()),
    *INNOCENT,
    "-----BEGIN PRIVATE KEY-----",
    "-----END PRIVATE KEY-----",
    "key=",
    '"token": "',
    "\\",
    "\n",
    " ",
    "***",
    "…",
]


@given(st.lists(st.one_of(st.sampled_from(_PIECES), st.text(max_size=20)), max_size=12).map("".join))
def test_no_text_breaks_it_and_nothing_but_secrets_changes_its_lines(text):
    shown = mask_secrets(text)
    assert shown.count("\n") <= text.count("\n") + 2
    assert len(shown) <= len(text) + 40 * (text.count("PRIVATE KEY") + 1) + 3 * text.count(":") + 3 * text.count("=")


@pytest.mark.slow
@pytest.mark.parametrize(
    "piece",
    [
        "-----BEGIN PRIVATE KEY-----",
        "-----BEGIN PRIVATE KEY----- " + "A" * 60 + " ",
        "key",
        "key=",
        "-p a ",
        "key ",
        'key="',
        '"key',
        "\\",
        '\\"',
        "--api-",
        "a_",
        "sk-",
        "://a:",
        "Cookie: a=bbbbbbbbb",
        "eyJaaaaaaaa.",
        "1234567:",
        "?signature",
        "authorization: bearer ",
        "login a password ",
        " ",
    ],
)
def test_the_time_grows_with_the_length_alone(piece):
    def work(length):
        mask_secrets((piece * (length // len(piece) + 1))[:length] + " key token secret -- :// cookie login")

    work(1_000)
    # Eight times as long: quadratic time would be 64 times as much.
    assert not takes_longer(work, 50_000, 400_000, 24, 0.02)
