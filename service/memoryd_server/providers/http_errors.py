"""Interpretation of a provider's HTTP error answers. Messages contain no secret and no complete body."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, Never
from urllib.parse import urlsplit, urlunsplit

from memoryd_server.errors import EmbeddingQuotaExceeded, EmbeddingUnavailable
from memoryd_server.foreign_text import parse_json, valid_text
from memoryd_server.providers.pacing import RateLimited, TransientFailure, retry_after, seconds_in

_MAX_MESSAGE_CHARS = 300
_MIN_SECRET_LENGTH = 4
_MIN_SERVER_ERROR = 500
_QUOTA_CODES = frozenset({"INSUFFICIENT_QUOTA", "BILLING_HARD_LIMIT_REACHED", "BILLING_NOT_ACTIVE"})
# Google refuses a key with HTTP 400.
_KEY_CODES = frozenset({"API_KEY_INVALID", "API_KEY_EXPIRED"})
# Google uses the same message for a limit per minute and per day; only the limit's name distinguishes them.
_GOOGLE_LIMIT = "RESOURCE_EXHAUSTED"
_QUOTA = re.compile(
    r"exceeded your current quota|insufficient (?:quota|credit|balance|funds)|credit balance", re.IGNORECASE
)
# llama.cpp's server and Ollama return this with HTTP 500.
_TOO_LARGE = re.compile(
    r"too (?:large|long|many)|context (?:length|size|window)|maximum (?:context|length)|batch size", re.IGNORECASE
)
# Ollama's answer, with HTTP 500, if the model's vector is not finite.
_NOT_FINITE = "unsupported value: NaN"
_COUNT = re.compile(r"(?i)batch|item|array|list|input(?:s| count)|number of|texts")
_TOKENS = re.compile(r"(?i)token|context|length")
# OpenAI's wording; "length" is the length of the list here.
_ARRAY = re.compile(r"(?im)^(?>.*?array).* length \d")


@dataclass(frozen=True, slots=True)
class ErrorBody:
    """The error in an answer's body, with its codes in upper case.

    `limits` are the names of the exceeded limits, and `retry_after_seconds` is the requested pause, if the body states
    them.
    """

    message: str = ""
    codes: frozenset[str] = frozenset()
    limits: tuple[str, ...] = ()
    retry_after_seconds: float | None = None


class RequestRefused(Exception):
    """The server refuses these texts; `too_many` if their number is the reason."""

    def __init__(self, message: str, *, too_many: bool) -> None:
        super().__init__(message)
        self.too_many = too_many


class ResourceMissing(EmbeddingUnavailable):
    """The server does not have the requested resource (HTTP 404)."""


class SecretRedactor:
    """Removes secrets from messages."""

    def __init__(self, secrets: Sequence[str]) -> None:
        self._secrets = sorted(
            {s.strip() for s in secrets if len(s.strip()) >= _MIN_SECRET_LENGTH}, key=len, reverse=True
        )

    def clean(self, text: str) -> str:
        """Return `text` on one line, of bounded length, with "***" for each secret."""
        for secret in self._secrets:
            text = text.replace(secret, "***")
        text = " ".join(valid_text(text).split())
        return text if len(text) <= _MAX_MESSAGE_CHARS else text[:_MAX_MESSAGE_CHARS] + "…"


def public_url(url: str) -> str:
    """Return `url` without user, password, query and fragment."""
    parts = urlsplit(url)
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path.rstrip("/"), "", ""))


def parse_error(body: bytes) -> ErrorBody:
    """Return the error in a body of any of the usual forms; empty if the body states none."""
    try:
        return parse_error_tree(parse_json(body))
    except ValueError:
        text = body[: 4 * _MAX_MESSAGE_CHARS].decode("utf-8", "replace").strip()
        return ErrorBody("" if text.startswith("<") else text)


def parse_error_tree(tree: Any) -> ErrorBody:
    """Return the error in a value of `parse_json`, as `parse_error`."""
    if isinstance(tree, list):
        return parse_error_tree(tree[0]) if tree else ErrorBody()
    if not isinstance(tree, dict):
        return ErrorBody(str(tree))
    message = tree.get("error") or tree.get("detail") or tree.get("message") or tree.get("msg") or ""
    if isinstance(message, (dict, list)):
        return parse_error_tree(message)
    details = [detail for detail in _as_list(tree.get("details")) if isinstance(detail, dict)]
    codes = [tree.get(key) for key in ("code", "type", "status")] + [detail.get("reason") for detail in details]
    violations = [v for detail in details for v in _as_list(detail.get("violations")) if isinstance(v, dict)]
    pauses = [seconds for detail in details if (seconds := _seconds(detail.get("retryDelay"))) is not None]
    return ErrorBody(
        str(message),
        frozenset(code.upper() for code in codes if isinstance(code, str)),
        tuple(limit for violation in violations if isinstance(limit := violation.get("quotaId"), str)),
        max(pauses, default=None),
    )


def _as_list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _seconds(text: Any) -> float | None:
    """Return the seconds of a protobuf duration such as "34.07s"; None if `text` is not one."""
    found = re.fullmatch(r"([0-9]{1,9}(?:\.[0-9]{1,99})?)s", text) if isinstance(text, str) else None
    return seconds_in(found[1]) if found else None


def raise_for(status: int, headers: Mapping[str, str], body: bytes, name: str, redactor: SecretRedactor) -> Never:
    """Raise the error that an answer other than 200 means.

    Raises:
        EmbeddingQuotaExceeded: the quota is used up.
        EmbeddingUnavailable: a retry would fail the same way; `ResourceMissing` for an HTTP 404.
        RequestRefused: fewer or shorter texts may be accepted.
        TransientFailure: a retry may succeed.
    """
    error = parse_error(body)
    if _is_about_the_key(status, error):
        # The body may contain the key.
        raise EmbeddingUnavailable(f"{name} refuses the key (HTTP {status}): check the provider's apiKey")
    message = redactor.clean(f"{name} answers HTTP {status}: {error.message or 'no reason given'}")
    if status == HTTPStatus.FORBIDDEN and not _is_quota(status, error):
        raise EmbeddingUnavailable(f"{message}; check the provider's apiKey and its permissions")
    if _is_quota(status, error):
        raise EmbeddingQuotaExceeded(message)
    if _is_refusal(status, error):
        raise RequestRefused(message, too_many=is_about_count(error.message))
    if status == HTTPStatus.TOO_MANY_REQUESTS:
        raise RateLimited(message, _pause(headers, error))
    if status in {HTTPStatus.REQUEST_TIMEOUT, HTTPStatus.TOO_EARLY} or status >= _MIN_SERVER_ERROR:
        raise TransientFailure(message, _pause(headers, error))
    raise ResourceMissing(message) if status == HTTPStatus.NOT_FOUND else EmbeddingUnavailable(message)


def _pause(headers: Mapping[str, str], error: ErrorBody) -> float | None:
    requested = retry_after(headers.get("retry-after"))
    return error.retry_after_seconds if requested is None else requested


def _is_about_the_key(status: int, error: ErrorBody) -> bool:
    return bool(error.codes & _KEY_CODES) or (status == HTTPStatus.UNAUTHORIZED and not _is_quota(status, error))


def _is_quota(status: int, error: ErrorBody) -> bool:
    if status == HTTPStatus.PAYMENT_REQUIRED or error.codes & _QUOTA_CODES:
        return True
    if _GOOGLE_LIMIT in error.codes:
        return any("PerDay" in limit for limit in error.limits)
    return status in {HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.FORBIDDEN} and bool(_QUOTA.search(error.message))


def is_about_count(error: str) -> bool:
    """Return whether an error message says that a request has too many texts, rather than too many tokens."""
    return bool(_ARRAY.search(error) or (_COUNT.search(error) and not _TOKENS.search(error)))


def _is_refusal(status: int, error: ErrorBody) -> bool:
    refusals = {HTTPStatus.BAD_REQUEST, HTTPStatus.REQUEST_ENTITY_TOO_LARGE, HTTPStatus.UNPROCESSABLE_ENTITY}
    about_the_text = _NOT_FINITE in error.message or bool(_TOO_LARGE.search(error.message))
    return status in refusals or (status == HTTPStatus.INTERNAL_SERVER_ERROR and about_the_text)
