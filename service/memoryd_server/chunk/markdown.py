"""Markdown into chunks, the units of indexing."""

from hashlib import sha256

from memoryd_server.chunk.headings import breadcrumbs
from memoryd_server.chunk.packing import Limits, Span, pack
from memoryd_server.model import Chunk


def chunk_markdown(body: str, tokens: int, overlap: int, first_line: int = 1) -> list[Chunk]:
    """Returns the chunks of `body` in the order of their lines, the first line being number `first_line`.

    A chunk has at most `max(32, tokens * 4)` UTF-16 units and shares about `overlap * 4` with the one before. Empty
    text gives one empty chunk, as the reference does; `indexable_chunks` leaves blank ones out.
    """
    spans = pack(body, Limits.of_tokens(tokens, overlap))
    crumbs = breadcrumbs(body, [span.start_line for span in spans])
    return [_chunk(span, crumb, first_line - 1) for span, crumb in zip(spans, crumbs, strict=True)]


def indexable_chunks(body: str, tokens: int, overlap: int, first_line: int = 1) -> list[Chunk]:
    """Returns the chunks of `body` that hold more than white space; see `chunk_markdown`."""
    return [chunk for chunk in chunk_markdown(body, tokens, overlap, first_line) if not _is_blank(chunk.text)]


def _is_blank(text: str) -> bool:
    return not text or text.isspace()


def _chunk(span: Span, breadcrumb: str, offset: int) -> Chunk:
    return Chunk(
        text=span.text,
        start_line=span.start_line + offset,
        end_line=span.end_line + offset,
        # Text with lone surrogates has no UTF-8 form; it must not stop the indexing of its file.
        content_hash=sha256(span.text.encode("utf-8", "surrogatepass")).digest(),
        breadcrumb=breadcrumb,
    )
