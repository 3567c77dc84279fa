"""Citations: how a line range is named, and when a snippet carries the name. Pure."""

from memoryd_server.search.query import CitationMode


def citation(path: str, start_line: int, end_line: int) -> str:
    """`path#L12-L30`, or `path#L12` for one line."""
    return f"{path}#L{start_line}" if start_line == end_line else f"{path}#L{start_line}-L{end_line}"


def cited(snippet: str, name: str) -> str:
    """The snippet, a blank line, and where it comes from."""
    return f"{snippet.rstrip()}\n\nSource: {name}"


def wants_citations(mode: CitationMode, session_key: str) -> bool:
    """Whether snippets carry citations; `auto` means in direct chats only."""
    return mode is CitationMode.ON or (mode is CitationMode.AUTO and is_direct(session_key))


def is_direct(session_key: str) -> bool:
    """Whether a session key names a direct chat: no part of it after `agent:<id>:` is `group` or `channel`.

    A missing key counts as direct, as in the reference.
    """
    parts = session_key.strip().lower().split(":")
    if parts[:1] == ["agent"]:
        parts = parts[2:]
    return not {"group", "channel"} & set(parts)
