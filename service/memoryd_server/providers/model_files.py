"""GGUF model files: their location, download and header.

A model is a path, or `hf:org/repo/file.gguf` downloaded in the background. `huggingface_hub` provides the metadata of
a hub file (size, SHA-256, actual URL, access rights). The content is fetched by the code here, because a download must
survive a restart of the daemon, and `huggingface_hub` discards a partial one.

The header is read for the few values that must be known before the model is loaded. The format is specified in
https://github.com/ggml-org/ggml/blob/master/docs/gguf.md
"""

import hashlib
import importlib.util
import re
import struct
import threading
from collections.abc import Callable
from dataclasses import dataclass
from io import BufferedReader
from pathlib import Path
from typing import Any, Protocol

import httpx

from memoryd_server.errors import EmbeddingUnavailable
from memoryd_server.providers.http_client import certificates, is_loopback
from memoryd_server.system import try_lock

DEFAULT_MODEL = "hf:ggml-org/embeddinggemma-300m-qat-q8_0-GGUF/embeddinggemma-300m-qat-Q8_0.gguf"
FIRST_PAUSE_SECONDS = 5.0
MAX_PAUSE_SECONDS = 600.0

_HF = re.compile(r"hf:(?P<repo>[\w.-]+/[\w.-]+)/(?P<file>(?:[\w.-]+/)*[\w.-]+\.gguf)")
_SHA256 = re.compile(r"[0-9a-f]{64}")
_PIECE_BYTES = 1 << 20
_READ_TIMEOUT_SECONDS = 30.0


class ModelFile(Protocol):
    """A model's file, which may not exist yet."""

    @property
    def name(self) -> str:
        """Name that identifies the model in an index."""
        ...

    @property
    def downloading(self) -> bool:
        """Whether the file is being downloaded."""
        ...

    @property
    def reason(self) -> str:
        """Why the file is missing; empty if it exists."""
        ...

    def path(self) -> Path:
        """Return the path of the file.

        Raises:
            EmbeddingUnavailable: the file does not exist.
        """
        ...

    def close(self) -> None:
        """Stop a download."""
        ...


class LocalModelFile:
    """A file that the user provides."""

    downloading = False

    def __init__(self, path: Path) -> None:
        self._path = path
        self.name = path.name

    @property
    def reason(self) -> str:
        """See `ModelFile`."""
        return "" if _is_file(self._path) else f"the model {self._path} is missing"

    def path(self) -> Path:
        """See `ModelFile`."""
        if reason := self.reason:
            raise EmbeddingUnavailable(reason)
        return self._path

    def close(self) -> None:
        """See `ModelFile`."""


@dataclass(frozen=True, slots=True)
class DownloadSource:
    """The source of a download: URL, size, and SHA-256 (empty if unknown)."""

    url: str
    size_bytes: int
    sha256: str
    headers: tuple[tuple[str, str], ...] = ()


class HubModelFile:
    """`hf:org/repo/file.gguf`, stored under `cache_dir`. The first `path()` starts a background download.

    `on_progress` is called with the bytes downloaded and the bytes in total. `endpoint` replaces
    https://huggingface.co. A download that fails is retried after a pause; a partial one is resumed, also by another
    process.

    Raises:
        ValueError: `uri` has another form.
    """

    def __init__(
        self,
        uri: str,
        cache_dir: Path,
        *,
        endpoint: str | None = None,
        on_progress: Callable[[int, int], None] = lambda _done, _total: None,
        first_pause_seconds: float = FIRST_PAUSE_SECONDS,
    ) -> None:
        match = _HF.fullmatch(uri)
        if match is None or ".." in uri.split("/"):
            raise ValueError(f"{uri!r} is not of the form hf:organization/repository/file.gguf")
        self.name = uri
        self._repo, self._file = match["repo"], match["file"]
        self._target = cache_dir.joinpath(*self._repo.split("/"), *self._file.split("/"))
        self._endpoint = endpoint
        self._on_progress = on_progress
        self._pause_seconds = first_pause_seconds
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._closed = threading.Event()
        self._last_error = ""
        self._done = self._total = 0

    @property
    def downloading(self) -> bool:
        """See `ModelFile`. False while a failed download waits for its retry."""
        return self._thread is not None and self._thread.is_alive() and not self._last_error and not self._exists()

    @property
    def reason(self) -> str:
        """See `ModelFile`. Includes the progress of a download."""
        if self._exists():
            return ""
        if self._last_error:
            return f"the model {self.name} cannot be downloaded: {self._last_error}; trying again"
        progress = f": {self._done * 100 // self._total} % of {self._total / 1e6:.0f} MB" if self._total else ""
        return (
            f"the model {self.name} is being downloaded{progress}; run memoryd index again when it is done (the "
            "download continues while memoryd serve runs)"
        )

    def path(self) -> Path:
        """See `ModelFile`."""
        if not self._exists():
            self._start_download()
            raise EmbeddingUnavailable(self.reason)
        return self._target

    def _exists(self) -> bool:
        return _is_file(self._target)

    def _start_download(self) -> None:
        if importlib.util.find_spec("huggingface_hub") is None:
            raise EmbeddingUnavailable("huggingface_hub is missing: install memoryd[local]")
        with self._lock:
            if self._thread is None and not self._closed.is_set():
                self._thread = threading.Thread(target=self._run, name="model-download", daemon=True)
                self._thread.start()

    def _run(self) -> None:
        pause = self._pause_seconds
        while not self._closed.is_set() and not self._exists():
            try:
                self._download()
                return
            except Exception as error:  # noqa: BLE001 -- every error must show in the status
                self._last_error = _describe(error)
            self._closed.wait(pause)
            pause = min(MAX_PAUSE_SECONDS, 2 * pause)

    def _download(self) -> None:
        source = locate(self._repo, self._file, self._endpoint)
        self._target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        part = self._target.with_name(self._target.name + ".part")
        # A process that downloads the file holds the lock; the next attempt finds the complete file.
        with part.open("ab") as file:
            if not try_lock(file.fileno()):
                raise EmbeddingUnavailable("another process is downloading it")
            self._fetch(source, part)
            _verify(source, part)
            part.replace(self._target)

    def _fetch(self, source: DownloadSource, part: Path) -> None:
        offset = part.stat().st_size
        if offset > source.size_bytes:
            offset = 0
        if offset == source.size_bytes:
            return
        headers = dict(source.headers) | ({"range": f"bytes={offset}-"} if offset else {})
        trust_env = not is_loopback(source.url)
        timeout = httpx.Timeout(_READ_TIMEOUT_SECONDS)
        with (
            httpx.Client(trust_env=trust_env, verify=certificates(trust_env), timeout=timeout) as client,
            client.stream("GET", source.url, headers=headers, follow_redirects=True) as response,
        ):
            response.raise_for_status()
            offset = offset if response.status_code == httpx.codes.PARTIAL_CONTENT else 0
            with part.open("r+b") as file:
                file.seek(offset)
                file.truncate()
                for piece in response.iter_bytes(_PIECE_BYTES):
                    if self._closed.is_set():
                        raise EmbeddingUnavailable("the download was stopped")
                    file.write(piece)
                    offset += len(piece)
                    self._report_progress(offset, source.size_bytes)

    def _report_progress(self, done: int, total: int) -> None:
        self._last_error = ""
        self._done, self._total = done, total
        self._on_progress(done, total)

    def close(self) -> None:
        """See `ModelFile`. The part downloaded so far is kept for the next time."""
        self._closed.set()
        if self._thread is not None:
            self._thread.join(1.0)


def _is_file(path: Path) -> bool:
    """Return whether `path` is a file that can be reached."""
    try:
        return path.is_file()
    except OSError:
        return False


def locate(repo: str, file: str, endpoint: str | None) -> DownloadSource:
    """Return the hub's metadata of a file. Honours the hub's environment variables: endpoint, token, offline mode."""
    from huggingface_hub import get_hf_file_metadata, hf_hub_url  # noqa: PLC0415 -- an extra, and slow to import
    from huggingface_hub.utils import build_hf_headers  # noqa: PLC0415 -- likewise

    url: str = hf_hub_url(repo, file, endpoint=endpoint)
    metadata = get_hf_file_metadata(url)
    if metadata.size is None:
        raise EmbeddingUnavailable("the hub does not report the size of the file")
    sha256 = metadata.etag if _SHA256.fullmatch(metadata.etag or "") else ""
    return DownloadSource(url, metadata.size, sha256, tuple(build_hf_headers().items()))


def _verify(source: DownloadSource, part: Path) -> None:
    size = part.stat().st_size
    if size < source.size_bytes:
        raise EmbeddingUnavailable(f"the connection ended after {size} of {source.size_bytes} bytes")
    with part.open("rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    if size > source.size_bytes or (source.sha256 and found != source.sha256):
        part.unlink()
        raise EmbeddingUnavailable(
            "the downloaded file does not have the size and SHA-256 that the hub reports, and was deleted"
        )


def _describe(error: Exception) -> str:
    # The URL of a mirror may be signed; the signature is in the query.
    return re.sub(r"\?[^\s'\"]+", "", (str(error) or repr(error)).split("\n")[0])[:300]


_MAGIC = b"GGUF"
_VERSIONS = (2, 3)
_STRING, _ARRAY = 8, 9
# Value types by number, as `struct` names them: u8 i8 u16 i16 u32 i32 f32 bool - - u64 i64 f64.
_SCALARS = "BbHhIif?..QqdX"
_MAX_KEYS = 10_000
_MAX_STRING_BYTES = 1 << 24
_MAX_ELEMENTS = 1 << 32


class BadModelFile(ValueError):
    """The file is not a usable model; the message says why."""


@dataclass(frozen=True, slots=True)
class ModelHeader:
    """A model's architecture, its window in tokens and the dimensions of its vectors."""

    architecture: str
    window: int
    dimensions: int


def read_header(path: Path) -> ModelHeader:
    """Return the header of a model file. Reads only as far as necessary.

    Raises:
        BadModelFile: the file is not a GGUF file, or lacks a required value.
        OSError: the file cannot be read.
    """
    with path.open("rb") as file:
        try:
            return _parse_header(file)
        except (struct.error, IndexError, OverflowError, RecursionError):
            raise BadModelFile(f"{path.name} is damaged or incomplete") from None


def _parse_header(file: BufferedReader) -> ModelHeader:
    magic, version = file.read(4), _number(file, "I")
    if magic != _MAGIC or version not in _VERSIONS:
        raise BadModelFile(f"{Path(file.name).name} is not a GGUF file of version 2 or 3")
    _number(file, "Q")
    found: dict[str, Any] = {}
    for _ in range(min(_number(file, "Q"), _MAX_KEYS)):
        key, kind = _string(file), _number(file, "I")
        value = _value(file, kind)
        if isinstance(value, (str, int)):
            found[key] = value
        header = _header_of(found)
        if header:
            return header
    raise BadModelFile(f"{Path(file.name).name} has no context length or no embedding length")


def _header_of(found: dict[str, Any]) -> ModelHeader | None:
    architecture = found.get("general.architecture")
    window = found.get(f"{architecture}.context_length")
    dimensions = found.get(f"{architecture}.embedding_length")
    if not (isinstance(architecture, str) and isinstance(window, int) and isinstance(dimensions, int)):
        return None
    if window < 1 or dimensions < 1:
        raise BadModelFile("the model's context and embedding lengths must be at least 1")
    return ModelHeader(architecture, window, dimensions)


def _value(file: BufferedReader, kind: int) -> Any:
    if kind == _STRING:
        return _string(file)
    if kind == _ARRAY:
        return _skip_array(file)
    return _number(file, _SCALARS[kind])


def _skip_array(file: BufferedReader) -> None:
    kind, count = _number(file, "I"), _number(file, "Q")
    if count > _MAX_ELEMENTS:
        raise OverflowError
    if kind in {_STRING, _ARRAY}:
        for _ in range(count):
            _value(file, kind)
    else:
        file.seek(count * struct.calcsize("<" + _SCALARS[kind]), 1)


def _number(file: BufferedReader, code: str) -> Any:
    return struct.unpack("<" + code, file.read(struct.calcsize("<" + code)))[0]


def _string(file: BufferedReader) -> str:
    length = _number(file, "Q")
    if length > _MAX_STRING_BYTES:
        raise BadModelFile(f"{Path(file.name).name} is damaged or incomplete")
    return str(file.read(length), "utf-8", "replace")
