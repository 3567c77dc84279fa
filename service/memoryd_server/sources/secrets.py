"""Masking of secrets in text that is indexed, shown or sent: keys, tokens, passwords and private keys. Pure.

The source text itself is never changed. Masking is idempotent.

`FORMS` lists the forms in which secrets are written, as data, with the condition that distinguishes a secret from an
ordinary word in the same position. It includes the forms of OpenClaw, which are masked in the same way. A new form
needs its hints, a pattern with a group `secret` and, if ordinary text can match, a condition.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

Judge = Callable[[re.Match[str]], bool]


def always(_: re.Match[str]) -> bool:
    """Return True: every match of the pattern is a secret."""
    return True


@dataclass(frozen=True, slots=True)
class SecretForm:
    """One form of secret: the group `secret` of `pattern`, if `is_secret` accepts the match.

    Only texts that contain one of `hints`, in lower case, are searched. Most texts contain none, and a substring search
    is about a hundred times as fast as a pattern.
    """

    hints: tuple[str, ...]
    pattern: re.Pattern[str]
    is_secret: Judge = always


_PLAIN_WORD = re.compile(r"[A-Za-z][A-Za-z'\u2019-]*[.,;:!?)]*")
_LOWER_WORD = re.compile(r"\s+[a-z]")
_QUALIFIED = re.compile(
    r"(?:api|access|auth|secret|private|bot|refresh|session|bearer|client|id|account|app|admin|service|storage"
    r"|subscription|deploy|license|encryption|signing|webhook|user|master|shared|hmac|jwt)[_. -]?(?:key|token)$",
    re.IGNORECASE,
)
_NAMED_KEY = re.compile(r"(?:^|[_.-])(?:key|token)$|[a-z](?:Key|Token)$")
_STRONG = re.compile(r"(?:password|passwd|passphrase|secret|pwd)$", re.IGNORECASE)
_PLACEHOLDER = re.compile(
    r"<[^>]*>?|[({\[]+[A-Za-z_. -]*[)}\]]*|\$(?:[{(].*|[A-Z_][A-Z0-9_]*)|%[A-Z_]+%"
    r"|(?:os\.environ|os\.getenv|process\.env|env|settings|config|self|args|secrets)[.\[(].*|\*+|x{3,}|\.{3,}"
    r"|your[-_].*"
    r"|(?:string|str|null|none|nil|true|false|undefined|number|integer|boolean|required|optional|hidden|redacted|empty"
    r"|token|key|password|secret|value|changed|missing|invalid|expired|unset)[.,;:!?)}\]]*",
    re.IGNORECASE,
)
_MASKED = re.compile(r"\*{3}.*|\S{0,6}….*")
_PROSE = frozenset(
    re.findall(
        r"\w+",
        """
        a an and are argument as ask at be but by can check could does flag flags for from has i if in instead is it
        may must needs not of on option options or parameter please same see should so that the then they this to use
        value was we what when which will with you your
        """,
    )
)
_LEAST_RANDOM = 8
_LEAST_LETTERS = 20
_LEAST_UNBROKEN = 16


def is_placeholder(value: str) -> bool:
    """Return whether a value is a placeholder: a variable, a word such as `required`, or a masked secret."""
    return bool(_PLACEHOLDER.fullmatch(value) or _MASKED.fullmatch(value))


def looks_random(value: str) -> bool:
    """Return whether a value looks random: letters with digits, or long and in mixed case. Paths do not."""
    if "/" in value and "+" not in value and "=" not in value:
        return False
    has_digit = any(character.isdigit() for character in value)
    has_letter = any(character.isalpha() for character in value)
    if len(value) >= _LEAST_RANDOM and has_digit and has_letter:
        return True
    mixed = value.lower() != value and value.upper() != value
    return len(value) >= _LEAST_LETTERS and mixed and not _PLAIN_WORD.fullmatch(value)


def _is_assigned(match: re.Match[str]) -> bool:
    """Distinguish `api_key=...` from `sort(key=len)`, and `password: ...` from prose with a colon."""
    name, separator, value = match["name"], match["separator"], match["secret"]
    if is_placeholder(value) or (separator == ":" and _is_prose(value)):
        return False
    if name.isupper() and (separator == "=" or "_" in name):
        return True
    prose = separator == ":" and not match["quote"] and bool(_PLAIN_WORD.fullmatch(value))
    if _STRONG.search(name):
        return not (prose and _LOWER_WORD.match(match.string, match.end()))
    if _QUALIFIED.search(name):
        return not prose
    return bool(_NAMED_KEY.search(name) or name.isupper()) and looks_random(value)


def _is_flag_value(match: re.Match[str]) -> bool:
    value = match["secret"]
    return not is_placeholder(value) and not _is_prose(value)


def _is_prose(value: str) -> bool:
    return value.rstrip(".,;:!?)").lower() in _PROSE


def _is_value(match: re.Match[str]) -> bool:
    return not is_placeholder(match["secret"])


def _is_openai_like(match: re.Match[str]) -> bool:
    """Distinguish a key from words joined by hyphens, such as `sk-learn-style-names`."""
    secret = match["secret"]
    unbroken = max(len(piece) for piece in re.split(r"[-_]", secret))
    return any(c.isdigit() or c.isupper() for c in secret) or unbroken >= _LEAST_UNBROKEN


def _prefixed(hint: str, pattern: str, *, any_case: bool = True, judge: Judge = always) -> SecretForm:
    flags = re.IGNORECASE if any_case else 0
    return SecretForm((hint.lower(),), re.compile(rf"(?<![A-Za-z0-9])(?P<secret>{pattern})", flags), judge)


_WORDS = r"(?:key|token|secret|password|passwd|passphrase|pwd)"
_CREDENTIALS = ("key", "token", "secret", "passw", "passphrase", "pwd")

FORMS: Final[tuple[SecretForm, ...]] = (
    # OPENAI_API_KEY=..., db_password: "..."
    SecretForm(
        _CREDENTIALS,
        re.compile(
            rf"(?<![A-Za-z0-9_])(?P<name>[A-Za-z0-9_]*(?:(?:api|access|private|secret)[ -])?{_WORDS})"
            r"\s*(?P<separator>[=:])(?![=:/])\s*(?P<quote>[\"']?)(?P<secret>[^\s\"'\\]+)(?P=quote)",
            re.IGNORECASE,
        ),
        _is_assigned,
    ),
    # "apiKey": "...", 'password': '...', also with escaped quotes
    SecretForm(
        _CREDENTIALS,
        re.compile(
            r"(?P<quote>\\{0,16}[\"'])[A-Za-z0-9_.-]*(?:api[_-]?key|token|secret|password|passwd|passphrase|private[_-]?key"
            r"|access[_-]?key|secret[_-]?key|auth[_-]?key)(?:[_-]?(?:id|value))?(?P=quote)\s*[:=]\s*"
            r"(?P=quote)(?P<secret>[^\"'\\]+)(?P=quote)",
            re.IGNORECASE,
        ),
        _is_value,
    ),
    # --api-key ..., --token=...
    SecretForm(
        ("--",),
        re.compile(
            r"--(?:[a-z]+-)*(?:api[-_]?key|token|secret|password|passwd|passphrase|access[-_]?key)(?:=|\s+)"
            r"(?P<quote>[\"']?)(?P<secret>[^\s\"']+)(?P=quote)",
            re.IGNORECASE,
        ),
        _is_flag_value,
    ),
    # curl -u name:... ; a run of "=" is part of the separator, or of the name if there is no other name.
    SecretForm(
        ("-u", "--user"),
        re.compile(r"(?<!\S)(?:-u|--user)[\s=]++(?:[\"']?[^\s:\"']+|(?<=[\s=]=)):(?P<secret>[^\s\"']+)"),
        _is_value,
    ),
    SecretForm(
        ("authorization",),
        re.compile(
            r"Authorization[\"']?\s*[:=]\s*[\"']?(?:Bearer|Basic|Token|Bot|ApiKey)\s+(?P<secret>[A-Za-z0-9._\-+=/~:]+)",
            re.IGNORECASE,
        ),
        _is_value,
    ),
    SecretForm(("bearer",), re.compile(r"\bBearer\s+(?P<secret>[A-Za-z0-9._\-+=/~]{18,})", re.IGNORECASE)),
    SecretForm(
        ("cookie",),
        re.compile(r"Cookie[\"']?\s*:\s*[\"']?(?P<secret>(?:[\w.-]+=[^\s;\"']{8,};?\s*)+)", re.IGNORECASE),
    ),
    # postgres://name:...@host
    SecretForm(("://",), re.compile(r"://[^\s/:@?#]*:(?P<secret>[^\s/@]+)@"), _is_value),
    SecretForm(
        ("sig", "auth"),
        re.compile(r"[?&](?:[\w-]*signature|sig|auth|authkey)=(?P<secret>[^&\s\"'#]{8,})", re.IGNORECASE),
        _is_value,
    ),
    SecretForm(("login",), re.compile(r"\blogin\s+\S+\s+password\s+(?P<secret>\S+)", re.IGNORECASE), _is_value),
    SecretForm(
        ("hooks.slack.com", "webhooks/"),
        re.compile(r"(?:hooks\.slack\.com/(?:services|workflows)|/api/webhooks)/(?P<secret>[A-Za-z0-9_/-]{20,})"),
    ),
    _prefixed("sk-", r"sk-[A-Za-z0-9_-]{8,}", judge=_is_openai_like),
    _prefixed("_live_", r"[srw][kh](?:sec)?_live_[A-Za-z0-9]{10,}"),
    _prefixed("_test_", r"[sr]k_test_[A-Za-z0-9]{10,}"),
    _prefixed("whsec_", r"whsec_[A-Za-z0-9+/=]{16,}"),
    SecretForm(
        ("ghp_", "gho_", "ghu_", "ghs_", "ghr_"), re.compile(r"\b(?P<secret>gh[pousr]_[A-Za-z0-9]{20,})", re.IGNORECASE)
    ),
    _prefixed("github_pat_", r"github_pat_[A-Za-z0-9_]{20,}"),
    _prefixed("glpat-", r"glpat-[A-Za-z0-9_-]{16,}"),
    _prefixed("xox", r"xox[abeoprs]-[A-Za-z0-9-]{10,}"),
    _prefixed("xapp-", r"xapp-[A-Za-z0-9-]{10,}"),
    _prefixed("gsk_", r"gsk_[A-Za-z0-9_-]{10,}"),
    _prefixed("aiza", r"AIza[0-9A-Za-z\-_]{20,}"),
    _prefixed("ya29.", r"ya29\.[0-9A-Za-z\-_]{20,}"),
    _prefixed("gocspx-", r"GOCSPX-[0-9A-Za-z\-_]{16,}"),
    _prefixed("pplx-", r"pplx-[A-Za-z0-9_-]{10,}"),
    _prefixed("npm_", r"npm_[A-Za-z0-9]{10,}"),
    _prefixed("pypi-", r"pypi-[A-Za-z0-9_-]{40,}"),
    _prefixed("hf_", r"hf_[A-Za-z0-9]{20,}"),
    _prefixed("xai-", r"xai-[A-Za-z0-9]{30,}"),
    _prefixed("tvly-", r"tvly-[A-Za-z0-9-]{16,}"),
    _prefixed("r8_", r"r8_[A-Za-z0-9]{30,}"),
    _prefixed("dop_v1_", r"dop_v1_[a-f0-9]{40,}"),
    _prefixed("hvs.", r"hvs\.[A-Za-z0-9_-]{20,}"),
    _prefixed("ntn_", r"ntn_[A-Za-z0-9]{30,}"),
    _prefixed("sbp_", r"sbp_[a-f0-9]{30,}"),
    _prefixed("lin_api_", r"lin_api_[A-Za-z0-9]{30,}"),
    SecretForm(
        ("shpat_", "shpca_", "shpss_", "shppa_"), re.compile(r"\b(?P<secret>shp(?:at|ca|ss|pa)_[A-Fa-f0-9]{20,})")
    ),
    _prefixed("sg.", r"SG\.[A-Za-z0-9_-]{16,}\.[A-Za-z0-9_-]{16,}", any_case=False),
    _prefixed("age-secret-key-", r"AGE-SECRET-KEY-1[0-9A-Z]{30,}"),
    SecretForm(("akia", "asia"), re.compile(r"\b(?P<secret>A(?:KIA|SIA)[0-9A-Z]{16})\b")),
    SecretForm(
        ("eyj",),
        re.compile(r"(?<![A-Za-z0-9_-])(?P<secret>eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}(?:\.[A-Za-z0-9_-]*)?)"),
    ),
    # Telegram bots
    SecretForm((":",), re.compile(r"(?<![A-Za-z0-9_])(?P<secret>\d{6,}:[A-Za-z0-9_-]{20,})")),
)

_LEAST_SHOWN = 18
_HEAD = 6
_TAIL = 4
_HIDDEN = "***"

_KEY_BEGINS = re.compile(r"-----BEGIN [A-Z0-9 ]*PRIVATE KEY(?: BLOCK)?-----", re.IGNORECASE)
_KEY_ENDS = re.compile(r"-----END [A-Z0-9 ]*PRIVATE KEY(?: BLOCK)?-----", re.IGNORECASE)
# The body of a key, with its line breaks as they are, folded into spaces or escaped.
_KEY_BODY = re.compile(r"(?:\*{3})?(?:(?:\s|\\+[rn])*[A-Za-z0-9+/=]{16,})*")


def mask_secrets(text: str) -> str:
    """Return the text with each secret as `***`, or as its first six and last four characters if it is long.

    Takes linear time for any text.
    """
    lowered = text.lower()
    if "private key" in lowered:
        text = _mask_private_keys(text)
    for form in FORMS:
        if any(hint in lowered for hint in form.hints):
            text = _mask_form(text, form)
    return text


def _mask_form(text: str, form: SecretForm) -> str:
    pieces: list[str] = []
    end = 0
    for match in form.pattern.finditer(text):
        start, after = match.span("secret")
        # Text before an ellipsis is the beginning of a masked secret.
        if form.is_secret(match) and not is_placeholder(match["secret"]) and text[after : after + 1] != "…":
            pieces += (text[end:start], _mask_value(match["secret"]))
            end = after
    return "".join((*pieces, text[end:])) if pieces else text


def _mask_value(secret: str) -> str:
    return _HIDDEN if len(secret) < _LEAST_SHOWN else f"{secret[:_HEAD]}…{secret[-_TAIL:]}"


def _mask_private_keys(text: str) -> str:
    """Mask private keys from BEGIN to END; of a truncated key, the part that looks like a key."""
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
            after, shown = end.end(), _mask_block(text[begin.start() : end.end()])
        else:
            body = _KEY_BODY.match(text, begin.end(), following)
            after, shown = begin.end() if body is None else body.end(), f"{begin[0]}{_HIDDEN}"
        pieces += (text[done : begin.start()], shown)
        done = after
    return "".join((*pieces, text[done:]))


def _mask_block(block: str) -> str:
    lines = [line for line in block.splitlines() if line]
    return _HIDDEN if len(lines) == 1 else f"{lines[0]}\n…redacted…\n{lines[-1]}"
