"""Masks secrets in text that is to be indexed, shown or sent: keys, tokens, passwords, private keys. Pure.

What is masked is in `secret_forms`. The source text itself is never changed. Masking what is masked changes nothing.
"""

import re

from memoryd_server.sources.secret_forms import FORMS, SecretForm, is_placeholder

_LEAST_SHOWN = 18
_HEAD = 6
_TAIL = 4
_HIDDEN = "***"

_KEY_BEGINS = re.compile(r"-----BEGIN [A-Z0-9 ]*PRIVATE KEY(?: BLOCK)?-----", re.IGNORECASE)
_KEY_ENDS = re.compile(r"-----END [A-Z0-9 ]*PRIVATE KEY(?: BLOCK)?-----", re.IGNORECASE)
# What a key is made of, its line breaks as they are, folded into spaces or escaped.
_KEY_BODY = re.compile(r"(?:\*{3})?(?:(?:\s|\\+[rn])*[A-Za-z0-9+/=]{16,})*")


def masked(text: str) -> str:
    """The text with each secret as `***`, or as its first six and last four characters where it is long.

    Costs time in proportion to the length of the text, whatever it holds.
    """
    lowered = text.lower()
    if "private key" in lowered:
        text = _without_private_keys(text)
    for form in FORMS:
        if any(hint in lowered for hint in form.hints):
            text = _without(text, form)
    return text


def _without(text: str, form: SecretForm) -> str:
    pieces: list[str] = []
    end = 0
    for match in form.pattern.finditer(text):
        start, after = match.span("secret")
        # What stands before an ellipsis is the head of something that was masked.
        if form.is_secret(match) and not is_placeholder(match["secret"]) and text[after : after + 1] != "…":
            pieces += (text[end:start], _masked_token(match["secret"]))
            end = after
    return "".join((*pieces, text[end:])) if pieces else text


def _masked_token(secret: str) -> str:
    return _HIDDEN if len(secret) < _LEAST_SHOWN else f"{secret[:_HEAD]}…{secret[-_TAIL:]}"


def _without_private_keys(text: str) -> str:
    """Masks the keys from BEGIN to END; of one that is cut short, as much as looks like a key."""
    pieces: list[str] = []
    done = 0
    begins = list(_KEY_BEGINS.finditer(text))
    ends = _KEY_ENDS.finditer(text)
    end = next(ends, None)
    starts = [*(each.start() for each in begins), len(text)]
    for begin, following in zip(begins, starts[1:], strict=True):
        while end is not None and end.start() < begin.end():
            end = next(ends, None)
        if end is not None and end.start() < following:
            after, shown = end.end(), _masked_block(text[begin.start() : end.end()])
        else:
            body = _KEY_BODY.match(text, begin.end(), following)
            after, shown = begin.end() if body is None else body.end(), f"{begin[0]}{_HIDDEN}"
        pieces += (text[done : begin.start()], shown)
        done = after
    return "".join((*pieces, text[done:]))


def _masked_block(block: str) -> str:
    lines = [line for line in block.splitlines() if line]
    return _HIDDEN if len(lines) == 1 else f"{lines[0]}\n…redacted…\n{lines[-1]}"
