"""The static files of the inspector's page, which are read once and served with a strict Content-Security-Policy.

The files contain nothing secret and need no token. The page gets all data from `/inspector/call/`.
"""

import gzip
import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.resources import files
from importlib.resources.abc import Traversable

from memoryd_server.errors import SettingsError
from memoryd_server.http.exchange import INSPECTOR_PREFIX, HttpExchange
from memoryd_server.http.refusals import Header
from memoryd_server.http.request_headers import RequestHeaders

PAGE_PATH = "/"
FILES_PATH = INSPECTOR_PREFIX.decode()
_INDEX = "index.html"

_CONTENT_TYPES: Mapping[str, bytes] = {
    ".html": b"text/html; charset=utf-8",
    ".css": b"text/css; charset=utf-8",
    ".js": b"text/javascript; charset=utf-8",
    ".svg": b"image/svg+xml; charset=utf-8",
}

_POLICY = (
    b"default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; base-uri 'none'; "
    b"form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"
)
ISOLATION_HEADERS: tuple[Header, ...] = (
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
)
"""Headers of all responses of the inspector, in addition to those of every response."""

_FILE_HEADERS: tuple[Header, ...] = (
    *ISOLATION_HEADERS,
    (b"content-security-policy", _POLICY),
    # The browser revalidates each file at every load, so that all files are of one version.
    (b"cache-control", b"no-cache"),
    (b"vary", b"accept-encoding"),
)

_REFERENCE = re.compile(r'(?:href|src)="(/[^"]+)"')


@dataclass(frozen=True, slots=True)
class PageFile:
    """A file of the page, as it is and compressed by gzip."""

    content: bytes
    content_type: bytes
    compressed: bytes

    async def send(self, exchange: HttpExchange, request: RequestHeaders) -> None:
        """Send the file, compressed if the browser accepts this, or 304 if it has this version of it."""
        is_compressed = _accepts_gzip(request.text(b"accept-encoding"))
        content = self.compressed if is_compressed else self.content
        etag = f'"{hashlib.sha256(content).hexdigest()[:32]}"'
        exchange.added_headers += [*_FILE_HEADERS, (b"etag", etag.encode())]
        if _is_known(etag, request.text(b"if-none-match")):
            await exchange.respond(304)
            return
        if is_compressed:
            exchange.added_headers.append((b"content-encoding", b"gzip"))
        await exchange.respond(200, self.content_type, content)


def _accepts_gzip(accepted: str) -> bool:
    """Return whether a value of `Accept-Encoding` names gzip, without the weight 0."""
    for coding in accepted.lower().split(","):
        name, _, weight = coding.partition(";")
        if name.strip() == "gzip":
            return not re.fullmatch(r"\s*q=0(\.0*)?\s*", weight)
    return False


def _is_known(etag: str, known: str) -> bool:
    return known == "*" or etag in {tag.strip().removeprefix("W/") for tag in known.split(",")}


def read_page(folder: Traversable | None = None) -> Mapping[str, PageFile]:
    """Return the files of the page by their paths. `folder` is that of the package by default. Blocks.

    Raises:
        SettingsError: index.html or a file that it names is missing.
    """
    found = {}
    for file in (folder or files(__package__) / "inspector_page").iterdir():
        content_type = _CONTENT_TYPES.get(file.name[file.name.rfind(".") :])
        if content_type is not None:
            content = file.read_bytes()
            path = PAGE_PATH if file.name == _INDEX else FILES_PATH + file.name
            found[path] = PageFile(content, content_type, gzip.compress(content, mtime=0))
    missing = (_references(found[PAGE_PATH]) if PAGE_PATH in found else {PAGE_PATH}) - set(found)
    if missing:
        raise SettingsError(
            f"files of the inspector are missing: {', '.join(sorted(missing))}; install memoryd again, or set "
            "memoryd.http.inspector to false"
        )
    return found


def _references(index: PageFile) -> set[str]:
    """Return the paths that an HTML file names."""
    return set(_REFERENCE.findall(index.content.decode()))
