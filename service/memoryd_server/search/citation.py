"""Citations: how a line range is named, and how a snippet carries the name. Pure."""


def citation(path: str, start_line: int, end_line: int) -> str:
    """`path#L12-L30`, or `path#L12` for one line."""
    return f"{path}#L{start_line}" if start_line == end_line else f"{path}#L{start_line}-L{end_line}"


def cited(snippet: str, name: str) -> str:
    """The snippet, a blank line, and where it comes from."""
    return f"{snippet.rstrip()}\n\nSource: {name}"
