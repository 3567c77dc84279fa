"""Masks secrets in text that is to be indexed, shown or sent: keys, tokens, passwords, private keys. Pure.

The forms are the reference's, so that both mask the same. The source text itself is never changed.
"""

import re
from typing import Final

_LEAST_SHOWN = 18
_HEAD = 6
_TAIL = 4
_HIDDEN = "***"

# Of each the last group that took part is the secret; without groups all of it.
_SECRETS: Final = tuple(
    re.compile(pattern, re.IGNORECASE)
    for pattern in (
        r"\b[A-Z0-9_]*(?:KEY|TOKEN|SECRET|PASSWORD|PASSWD)\b\s*[=:]\s*([\"']?)([^\s\"'\\]+)\1",
        r'"(?:api_?key|token|secret|password|passwd|access_?token|refresh_?token)"\s*:\s*"([^"]+)"',
        r"--(?:api[-_]?key|token|secret|password|passwd)[\s=]+([\"']?)([^\s\"']+)\1",
        r"Authorization\s*[:=]\s*Bearer\s+([A-Za-z0-9._\-+=/]+)",
        r"\bBearer\s+([A-Za-z0-9._\-+=/]{18,})",
        r"-----BEGIN [A-Z ]*PRIVATE KEY-----[\s\S]+?-----END [A-Z ]*PRIVATE KEY-----",
        r"\b(sk-[A-Za-z0-9_-]{8,})",
        r"\b(ghp_[A-Za-z0-9]{20,})",
        r"\b(github_pat_[A-Za-z0-9_]{20,})",
        r"\b(xox[baprs]-[A-Za-z0-9-]{10,})",
        r"\b(xapp-[A-Za-z0-9-]{10,})",
        r"\b(gsk_[A-Za-z0-9_-]{10,})",
        r"\b(AIza[0-9A-Za-z\-_]{20,})",
        r"\b(pplx-[A-Za-z0-9_-]{10,})",
        r"\b(npm_[A-Za-z0-9]{10,})",
        r"\b(\d{6,}:[A-Za-z0-9_-]{20,})",
    )
)


def masked(text: str) -> str:
    """The text with each secret as `***`, or as its first six and last four characters where it is long."""
    for pattern in _SECRETS:
        text = pattern.sub(_masked_match, text)
    return text


def _masked_match(match: re.Match[str]) -> str:
    whole = match[0]
    if "PRIVATE KEY-----" in whole.upper():
        return _masked_block(whole)
    secret = next(group for group in reversed(match.groups()) if group)
    before, _, after = whole.rpartition(secret)
    return f"{before}{_masked_token(secret)}{after}"


def _masked_token(secret: str) -> str:
    return _HIDDEN if len(secret) < _LEAST_SHOWN else f"{secret[:_HEAD]}…{secret[-_TAIL:]}"


def _masked_block(block: str) -> str:
    lines = [line for line in block.splitlines() if line]
    return _HIDDEN if len(lines) == 1 else f"{lines[0]}\n…redacted…\n{lines[-1]}"
