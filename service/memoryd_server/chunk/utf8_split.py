"""Cuts text at a number of UTF-8 bytes, as embedding providers count."""


def split_utf8(text: str, max_bytes: int) -> list[str]:
    """Returns `text` in parts of at most `max_bytes` UTF-8 bytes, cut between code points; joined they are `text`.

    `max_bytes` of 0 means no limit. A code point that is longer than `max_bytes` becomes a part of its own, so that
    no text is lost. The result holds at least one part.
    """
    data = text.encode("utf-8", "surrogatepass")
    if max_bytes <= 0 or len(data) <= max_bytes:
        return [text]
    parts = []
    start = 0
    while start < len(data):
        end = _cut(data, start, max_bytes)
        parts.append(data[start:end].decode("utf-8", "surrogatepass"))
        start = end
    return parts


def _cut(data: bytes, start: int, max_bytes: int) -> int:
    """Returns where the part that begins at `start` ends: always beyond `start`, always at a code point's edge."""
    end = min(start + max_bytes, len(data))
    while end > start and _inside(data, end):
        end -= 1
    if end == start:
        end += 1
        while _inside(data, end):
            end += 1
    return end


def _inside(data: bytes, at: int) -> bool:
    return at < len(data) and data[at] & 0xC0 == 0x80  # noqa: PLR2004 -- UTF-8's continuation bytes are 10xxxxxx
