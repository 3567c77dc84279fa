"""Batch jobs: thousands of texts in one file, at a lower price, answered within hours. What all providers share."""

import json
import secrets
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from memoryd_server.embed.http_calls import HttpRequest
from memoryd_server.embed.http_errors import problem
from memoryd_server.embed.pacing import Patience
from memoryd_server.foreign_text import parse_json

MOST_TEXTS = 50_000
"""Texts of one job."""
MOST_JOB_BYTES = 40 * 2**20
"""Bytes of UTF-8 that the texts of one job have at most; providers take more, but it is all in memory once."""

_MOST_ID_CHARS = 1_000

Lines = Iterator[bytes]


@dataclass(frozen=True, slots=True)
class BatchPolicy:
    """When texts go through batch jobs, and how these are waited for; only where at least `least_texts` are missing."""

    enabled: bool = False
    wait: bool = True
    at_once: int = 2
    poll_seconds: float = 2.0
    timeout_minutes: int = 60
    least_texts: int = 2_000


@dataclass(frozen=True, slots=True)
class JobState:
    """How a job is doing, in the provider's word.

    `over` when nothing more comes of it; then `outputs` are the files with what it made, and `reason` says why that is
    not all, where the job has failed.
    """

    word: str
    over: bool = False
    outputs: tuple[str, ...] = ()
    reason: str = ""


class BatchApi(Protocol):
    """The batch jobs of one model. Calls block, may come from any thread, and raise what `HttpCalls.ask` does."""

    def submit(self, name: str, texts: Mapping[str, str], patience: Patience) -> str:
        """The id of a new job for these texts, by their keys; `find` knows it by its `name`."""
        ...

    def find(self, name: str, patience: Patience) -> str | None:
        """The id of the job of this name; None where there is none."""
        ...

    def look(self, job_id: str, patience: Patience) -> JobState:
        """How a job is doing."""
        ...

    def answers(self, output: str, patience: Patience) -> Iterator[tuple[str, Any]]:
        """The key of each answered text, with its vector, unchecked; with None where there is none."""
        ...

    def cancel(self, job_id: str, patience: Patience) -> None:
        """Asks the provider to let it be."""
        ...


def jsonl(lines: Iterable[Mapping[str, Any]]) -> bytes:
    """One JSON object a line."""
    return b"".join(json.dumps(line).encode() + b"\n" for line in lines)


def multipart(kind: str, parts: Iterable[tuple[Mapping[str, str], bytes]]) -> tuple[str, bytes]:
    """The content type and the body of a multipart request; `kind` is "form-data" or "related"."""
    boundary = secrets.token_hex(16)
    body = bytearray()
    for headers, content in parts:
        head = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
        body += f"--{boundary}\r\n{head}\r\n".encode() + content + b"\r\n"
    return f"multipart/{kind}; boundary={boundary}", bytes(body + f"--{boundary}--\r\n".encode())


def objects(lines: Lines) -> Iterator[Mapping[str, Any]]:
    """The JSON objects of an output; lines that hold none are passed over."""
    for line in lines:
        try:
            tree = parse_json(line) if line.strip() else None
        except ValueError:
            continue
        if isinstance(tree, dict):
            yield tree


def said(tree: Any) -> str:
    """The message of an error, in any of the usual forms; empty where there is none."""
    return problem(json.dumps(tree).encode()).message if tree else ""


def text_in(tree: Any, *path: str) -> str:
    """The text at a path of an answer; empty where there is none."""
    for key in path:
        tree = tree.get(key) if isinstance(tree, dict) else None
    return tree if isinstance(tree, str) else ""


def id_in(tree: Any, field: str) -> str:
    """The id at a field of an answer; empty where there is none, or one that no provider gives."""
    found = text_in(tree, field)
    return found if len(found) <= _MOST_ID_CHARS else ""


def get(path: str, query: str = "") -> HttpRequest:
    """A request without a body."""
    return HttpRequest("GET", path, query=query)
