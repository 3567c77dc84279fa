"""The results of tools: a short text with citations for the model, and the same as structured content (JSON).

Stored text may contain anything, including instructions. In the texts, it is escaped, indented and marked as untrusted,
as in a block of MemoryRecall. In JSON, it is a string of its own, with the same warning next to it.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import mcp_types as types

from memoryd_server.errors import ContentChanged, MemorydError
from memoryd_server.http.mcp_calls import explain
from memoryd_server.recall import WARNING, escape_line, fenced, indented_lines

Response = Mapping[str, Any]

BUILDING = "INDEX_STATE_BUILDING"
"""The state of an index while its first content, or that which replaces it, is indexed."""

_MOST_CITATION_CHARS = 300
_MOST_PROBLEM_CHARS = 500
_STILL_BUILDING = "The index is still being built, so this is not complete. Try again later."


def make_result(tool: str, response: Response) -> types.CallToolResult:
    """Return the result of a tool from the response of its method."""
    text, structured = _MAKERS[tool](response)
    return types.CallToolResult(content=[types.TextContent(text=text)], structured_content=structured)


def make_error(error: MemorydError) -> types.CallToolResult:
    """Return the result of a call that failed."""
    details: dict[str, Any] = {"reason": error.reason, "message": explain(error)}
    if error.retry_after_seconds is not None:
        details["retryAfterSeconds"] = error.retry_after_seconds
    if isinstance(error, ContentChanged):
        details["contentSha256"] = error.metadata["content_sha256"]
    return types.CallToolResult(
        content=[types.TextContent(text=details["message"])], structured_content={"error": details}, is_error=True
    )


def _search(response: Response) -> tuple[str, dict[str, Any]]:
    results = [_search_result(each) for each in response.get("results", ())]
    info = response.get("info", {})
    problems = _problems(info)
    structured: dict[str, Any] = {"results": results}
    lines: list[str] = []
    if results:
        structured["notice"] = WARNING
        for number, each in enumerate(results, 1):
            modified = f" ({each['modified']})" if "modified" in each else ""
            lines += [f"[{number}] {_cited(each['citation'])}{modified}", *indented_lines(each["snippet"])]
    else:
        structured["empty"] = info.get("emptyExplanation", "")
    head = fenced(lines) if lines else f"No results: {_line(structured['empty'])}"
    return _with_problems(head, structured, problems)


def _search_result(result: Response) -> dict[str, Any]:
    shown = {
        "path": result["path"],
        **_lines_of(result),
        "score": round(result.get("score", 0.0), 3),
        "snippet": result.get("snippet", ""),
        "citation": result.get("citation", result["path"]),
    }
    if "modifiedTime" in result:
        shown["modified"] = result["modifiedTime"][:10]
    if result.get("source") != "SOURCE_MEMORY":
        shown["source"] = _word(result.get("source", ""), "SOURCE_")
    if result.get("origin") in {"ORIGIN_UNTRUSTED", "ORIGIN_SYSTEM"}:
        shown["origin"] = _word(result["origin"], "ORIGIN_")
    return shown


def _get(response: Response) -> tuple[str, dict[str, Any]]:
    path, text = response["path"], response.get("text", "")
    structured: dict[str, Any] = {
        "path": path,
        **_lines_of(response),
        "totalLines": response.get("totalLines", 0),
        "text": text,
    }
    for name in ("nextStartLine", "truncated", "contentSha256"):
        if response.get(name):
            structured[name] = response[name]
    digest = _digest(structured)
    if not text:
        return f"{_cited(path)} has no such lines; it has {structured['totalLines']}.{digest}", structured
    structured["citation"] = f"{path}#L{structured['startLine']}-L{structured['endLine']}"
    structured["notice"] = WARNING
    lines = [_cited(structured["citation"]) + digest, *(line for each in text.split("\n") for line in _indented(each))]
    summary = fenced(lines)
    if "nextStartLine" in structured:
        summary = f"{summary}\nThe file continues at line {structured['nextStartLine']} of {structured['totalLines']}."
    return summary, structured


def _append(response: Response) -> tuple[str, dict[str, Any]]:
    structured = {"path": response["path"], **_lines_of(response)}
    structured["citation"] = f"{response['path']}#L{structured['startLine']}-L{structured['endLine']}"
    already = bool(response.get("alreadyAppended"))
    structured["alreadyAppended"] = already
    done = "Already appended by an earlier call with this key" if already else "Appended"
    return f"{done}: {_cited(structured['citation'])}", structured


def _edit(response: Response) -> tuple[str, dict[str, Any]]:
    path = response["path"]
    structured = {"path": path, "versionId": response.get("versionId", "")}
    if not response.get("contentSha256"):
        return f"Deleted: {_cited(path)}", {**structured, "deleted": True}
    lines = _lines_of(response)
    start, end = lines["startLine"], lines["endLine"]
    structured["contentSha256"] = response["contentSha256"]
    # A write that only removed text has no lines of its own.
    structured["citation"] = f"{path}#L{start}-L{end}" if end >= start else path
    return f"Edited: {_cited(structured['citation'])}{_digest(structured)}", {**structured, **lines}


def _recall(response: Response) -> tuple[str, dict[str, Any]]:
    block = response.get("block", "")
    items = [
        {"citation": item.get("citation", item["path"]), **({"date": item["date"]} if item.get("date") else {})}
        for item in response.get("items", ())
    ]
    structured: dict[str, Any] = {"block": block, "items": items}
    if not block:
        structured["silent"] = response.get("silentExplanation", "")
    head = block or f"Nothing to recall: {_line(structured['silent'])}"
    return _with_problems(head, structured, _problems(response.get("info", {})))


def _status(response: Response) -> tuple[str, dict[str, Any]]:
    index, embedding = response.get("index", {}), response.get("embedding", {})
    counts = {name: int(index.get(name, 0)) for name in ("files", "chunks", "pendingFiles", "pendingEmbeddings")}
    state = _word(index.get("state", ""), "INDEX_STATE_")
    structured: dict[str, Any] = {"agent": response["agentId"], "index": {"state": state, **counts}}
    summary = f"Agent {response['agentId']}: index {state}, {counts['files']} files, {counts['chunks']} chunks"
    if counts["pendingFiles"]:
        summary += f", {counts['pendingFiles']} files not indexed yet"
    if "lastSyncTime" in index:
        structured["index"]["lastSync"] = index["lastSyncTime"]
    if embedding.get("provider"):
        structured["embedding"] = {"provider": embedding["provider"], "model": embedding.get("model", "")}
        summary += f"; search by keywords and by meaning ({embedding['provider']})"
        if counts["pendingEmbeddings"]:
            summary += f", {counts['pendingEmbeddings']} chunks without a vector yet"
    else:
        summary += "; search by keywords only"
    run = response.get("activeSync", {}).get("progress")
    if run is not None:
        done, total = run.get("completedFiles", 0), run.get("totalFiles", 0)
        structured["sync"] = {"phase": _word(run.get("phase", ""), "SYNC_PHASE_"), "files": done, "totalFiles": total}
        summary += f"; syncing ({done} of {total} files)"
    return _with_problems(summary + ".", structured, _problems(response))


_MAKERS: Mapping[str, Callable[[Response], tuple[str, dict[str, Any]]]] = MappingProxyType(
    {
        "memory_search": _search,
        "memory_get": _get,
        "memory_append": _append,
        "memory_edit": _edit,
        "memory_recall": _recall,
        "memory_status": _status,
    }
)


def _problems(info: Response) -> list[str]:
    """Return the degradations of a response in words, and whether the index is incomplete."""
    problems = [_STILL_BUILDING] if info.get("indexState") == BUILDING else []
    for degradation in info.get("degradations", ()):
        kind = _word(degradation.get("kind", ""), "DEGRADATION_KIND_")
        problems.append(f"{kind}: {degradation.get('reason', '')}"[:_MOST_PROBLEM_CHARS])
    return problems


def _with_problems(text: str, structured: dict[str, Any], problems: Sequence[str]) -> tuple[str, dict[str, Any]]:
    if not problems:
        return text, structured
    return "\n".join((text, *(f"Note: {_line(problem)}" for problem in problems))), {
        **structured,
        "problems": list(problems),
    }


def _digest(structured: Response) -> str:
    """Return the hash of a file for a text, after a space; empty if there is none."""
    return f" (contentSha256 {structured['contentSha256']})" if "contentSha256" in structured else ""


def _lines_of(response: Response) -> dict[str, int]:
    # proto3 JSON leaves out a number that is 0, as for an entry.
    return {name: response.get(name, 0) for name in ("startLine", "endLine")}


def _indented(line: str) -> Iterable[str]:
    """Return a line of a file as lines of a block; an empty one if there is nothing to show."""
    return indented_lines(line) or [""]


def _cited(citation: str) -> str:
    return escape_line(citation, _MOST_CITATION_CHARS)


def _line(text: str) -> str:
    return escape_line(text, _MOST_PROBLEM_CHARS)


def _word(name: str, prefix: str) -> str:
    return name.removeprefix(prefix).replace("_", " ").lower()
