"""What a provider's HTTP answer means. Nothing secret and no whole body gets into a message."""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any
from urllib.parse import urlsplit, urlunsplit

from memoryd_server.embed.pacing import Transient, retry_after
from memoryd_server.errors import EmbeddingQuotaExceeded, EmbeddingUnavailable

_MOST_MESSAGE_CHARS = 300
_SHORTEST_SECRET = 4
_LEAST_SERVER_FAULT = 500
_QUOTA_CODES = frozenset({"insufficient_quota", "billing_hard_limit_reached", "billing_not_active"})
_QUOTA = re.compile(
    r"exceeded your current quota|insufficient (?:quota|credit|balance|funds)|credit balance", re.IGNORECASE
)
# llama.cpp's server and Ollama say it with a 500.
_TOO_LARGE = re.compile(
    r"too (?:large|long|many)|context (?:length|size|window)|maximum (?:context|length)|batch size", re.IGNORECASE
)
_COUNT = re.compile(r"(?i)batch|item|array|list|input(?:s| count)|number of|texts")
_TOKENS = re.compile(r"(?i)token|context|length")


@dataclass(frozen=True, slots=True)
class Problem:
    """The error that an answer's body names."""

    message: str
    code: str


class RequestRefused(Exception):
    """The server refuses these texts. `too_many` when it is their number that it minds."""

    def __init__(self, message: str, *, too_many: bool) -> None:
        super().__init__(message)
        self.too_many = too_many


class Discretion:
    """Takes secrets out of words."""

    def __init__(self, secrets: Sequence[str]) -> None:
        self._secrets = sorted(
            {s.strip() for s in secrets if len(s.strip()) >= _SHORTEST_SECRET}, key=len, reverse=True
        )

    def clean(self, text: str) -> str:
        """`text` on one line, of bounded length, with "***" for each secret."""
        for secret in self._secrets:
            text = text.replace(secret, "***")
        text = " ".join(text.split())
        return text if len(text) <= _MOST_MESSAGE_CHARS else text[:_MOST_MESSAGE_CHARS] + "…"


def public_url(url: str) -> str:
    """`url` without user, password, query and fragment."""
    parts = urlsplit(url)
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path.rstrip("/"), "", ""))


def problem(body: bytes) -> Problem:
    """The message and code of an error's body, in any of the usual forms; empty where there are none."""
    try:
        tree = json.loads(body)
    except ValueError:
        text = body[: 4 * _MOST_MESSAGE_CHARS].decode("utf-8", "replace").strip()
        return Problem("" if text.startswith("<") else text, "")
    return _found(tree)


def _found(tree: Any) -> Problem:
    if isinstance(tree, list):
        return _found(tree[0]) if tree else Problem("", "")
    if not isinstance(tree, dict):
        return Problem(str(tree), "")
    inner = tree.get("error") or tree.get("detail")
    if isinstance(inner, (dict, list)):
        return _found(inner)
    message = inner or tree.get("message") or tree.get("msg") or ""
    return Problem(str(message), str(tree.get("code") or tree.get("type") or ""))


def raise_for(status: int, headers: Mapping[str, str], body: bytes, name: str, discretion: Discretion) -> None:
    """Raises what an answer other than 200 means.

    Raises:
        EmbeddingQuotaExceeded: the quota is used up.
        EmbeddingUnavailable: asking again is of no use.
        RequestRefused: fewer or shorter texts may be taken.
        Transient: asking again may help.
    """
    if status == HTTPStatus.OK:
        return
    said = problem(body)
    if status in {HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN} and not _is_quota(status, said):
        # The body may repeat the key.
        raise EmbeddingUnavailable(f"{name} refuses the key (HTTP {status}): check the provider's apiKey")
    message = discretion.clean(f"{name} answers HTTP {status}: {said.message or 'no reason given'}")
    if _is_quota(status, said):
        raise EmbeddingQuotaExceeded(message)
    if _is_refusal(status, said):
        too_many = bool(_COUNT.search(said.message) and not _TOKENS.search(said.message))
        raise RequestRefused(message, too_many=too_many)
    if status in {HTTPStatus.REQUEST_TIMEOUT, HTTPStatus.TOO_EARLY, HTTPStatus.TOO_MANY_REQUESTS}:
        raise Transient(message, retry_after(headers.get("retry-after")))
    if status >= _LEAST_SERVER_FAULT:
        raise Transient(message, retry_after(headers.get("retry-after")))
    raise EmbeddingUnavailable(message)


def _is_quota(status: int, said: Problem) -> bool:
    return (
        status == HTTPStatus.PAYMENT_REQUIRED
        or said.code in _QUOTA_CODES
        or (status in {HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.FORBIDDEN} and bool(_QUOTA.search(said.message)))
    )


def _is_refusal(status: int, said: Problem) -> bool:
    refusals = {HTTPStatus.BAD_REQUEST, HTTPStatus.REQUEST_ENTITY_TOO_LARGE, HTTPStatus.UNPROCESSABLE_ENTITY}
    return status in refusals or (status == HTTPStatus.INTERNAL_SERVER_ERROR and bool(_TOO_LARGE.search(said.message)))
