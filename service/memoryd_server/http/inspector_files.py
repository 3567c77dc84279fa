"""The static files of the inspector's page, which are read once and served with a strict Content-Security-Policy.

The files contain nothing secret and need no token. The page gets all data from `/inspector/call/`.
"""

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
    # The browser asks each time whether a file has changed, so that all files are of one version.
    (b"cache-control", b"no-cache"),
)

_REFERENCE = re.compile(r'(?:href|src)="(/[^"]+)"')


@dataclass(frozen=True, slots=True)
class PageFile:
    """A file of the page, with a strong entity tag."""

    content: bytes
    content_type: bytes
    etag: str

    async def send(self, exchange: HttpExchange, request: RequestHeaders) -> None:
        """Send the file, or 304 if the browser has this version of it."""
        exchange.added_headers += [*_FILE_HEADERS, (b"etag", self.etag.encode())]
        if self._is_known(request.text(b"if-none-match")):
            await exchange.respond(304)
        else:
            await exchange.respond(200, self.content_type, self.content)

    def _is_known(self, known: str) -> bool:
        tags = {tag.strip().removeprefix("W/") for tag in known.split(",")}
        return self.etag in tags or known == "*"


def read_page(folder: Traversable | None = None) -> Mapping[str, PageFile]:
    """Return the files of the page by their paths; those of the package unless another folder is given. Blocks.

    Raises:
        SettingsError: index.html or a file that it names is missing.
    """
    found = {}
    for file in (folder or files(__package__) / "inspector_page").iterdir():
        content_type = _CONTENT_TYPES.get(file.name[file.name.rfind(".") :])
        if content_type is not None:
            content = file.read_bytes()
            path = PAGE_PATH if file.name == _INDEX else FILES_PATH + file.name
            found[path] = PageFile(content, content_type, f'"{hashlib.sha256(content).hexdigest()[:32]}"')
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
