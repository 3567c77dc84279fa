"""Models on the Hugging Face hub: `hf:org/repo/file.gguf`, and their download.

`huggingface_hub` provides the metadata of a hub file (size, SHA-256, actual URL, access rights). The content is fetched
by the code here, because a download must survive a restart, and `huggingface_hub` discards a partial one.
"""

import hashlib
import importlib.util
import os
import re
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from io import BufferedWriter
from pathlib import Path

import httpx

from memoryd_server.errors import EmbeddingUnavailable
from memoryd_server.providers.http_client import certificates, is_loopback
from memoryd_server.providers.model_files import is_reachable_file
from memoryd_server.system import try_lock

FIRST_PAUSE_SECONDS = 5.0
MAX_PAUSE_SECONDS = 600.0
RESUME_SECONDS = 0.5
"""The pause before a download that broke off is resumed while a caller waits for it."""

OTHER_PROCESS_SECONDS = 60.0
"""How long a process that downloads the same file may receive nothing until waiting for it ends."""

_HF = re.compile(r"hf:(?P<repo>[\w.-]+/[\w.-]+)/(?P<file>(?:[\w.-]+/)*[\w.-]+\.gguf)")
_SHA256 = re.compile(r"[0-9a-f]{64}")
_READ_TIMEOUT_SECONDS = 30.0
_LOCK_POLL_SECONDS = 0.2

DownloadProgress = Callable[[int, int], None]
"""Called with the bytes downloaded so far and the bytes in total."""


@dataclass(frozen=True, slots=True)
class DownloadSource:
    """The source of a download: URL, size, and SHA-256 (empty if unknown)."""

    url: str
    size_bytes: int
    sha256: str
    headers: tuple[tuple[str, str], ...] = ()


class HubModelFile:
    """`hf:org/repo/file.gguf`, stored under `cache_dir`.

    With `in_background`, the first `path()` starts a download on a thread, which is retried after a pause if it fails;
    otherwise only `download` downloads the file. A partial download is resumed, also by another process. Only one
    process downloads a file at a time, and the others wait for it. `endpoint` replaces https://huggingface.co.
    `downloaded_by` and `afterwards` complete the reason for a missing file.

    Raises:
        ValueError: `uri` has another form.
    """

    def __init__(
        self,
        uri: str,
        cache_dir: Path,
        *,
        endpoint: str | None = None,
        in_background: bool = True,
        first_pause_seconds: float = FIRST_PAUSE_SECONDS,
        downloaded_by: str = "memoryd index",
        afterwards: str = "its vectors follow",
    ) -> None:
        match = _HF.fullmatch(uri)
        if match is None or ".." in uri.split("/"):
            raise ValueError(f"{uri!r} is not of the form hf:organization/repository/file.gguf")
        self.name = uri
        self._repo, self._file = match["repo"], match["file"]
        self._target = cache_dir.joinpath(*self._repo.split("/"), *self._file.split("/"))
        self._part = self._target.with_name(self._target.name + ".part")
        self._endpoint = endpoint
        self._in_background = in_background
        self._downloaded_by, self._afterwards = downloaded_by, afterwards
        self._on_ready: Callable[[], None] = lambda: None
        self._pause_seconds = first_pause_seconds
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._closed = threading.Event()
        self._last_error = ""
        self._by_another_process = False
        self._done = self._total = 0

    @property
    def downloading(self) -> bool:
        """See `ModelFile`. False while a failed download waits for its retry."""
        return self._thread is not None and self._thread.is_alive() and not self._last_error and self.missing

    @property
    def reason(self) -> str:
        """See `ModelFile`."""
        if not self.missing:
            return ""
        if self._last_error:
            retried = "; trying again" if self._in_background else ""
            return f"the model {self.name} cannot be downloaded: {self._last_error}{retried}"
        if not self._in_background:
            return f"the model {self.name} has not been downloaded yet; {self._downloaded_by} downloads it"
        other = " by another process" if self._by_another_process else ""
        return f"the model {self.name} is being downloaded{other}; {self._afterwards} when it is complete"

    @property
    def progress(self) -> str:
        """See `ModelFile`."""
        return f"{self._done * 100 // self._total} % of {self._total / 1e6:.0f} MB" if self._total else ""

    @property
    def missing(self) -> bool:
        """Whether the file does not exist. Blocks."""
        return not is_reachable_file(self._target)

    def when_ready(self, call: Callable[[], None]) -> None:
        """See `ModelFile`."""
        self._on_ready = call

    def path(self) -> Path:
        """See `ModelFile`."""
        if self.missing:
            if self._in_background:
                self._start_thread()
            raise EmbeddingUnavailable(self.reason)
        return self._target

    def download(self, on_progress: DownloadProgress) -> None:
        """Return when the file exists: download it, or wait for another process that does. Blocks.

        A download that breaks off is resumed. What was downloaded is kept for the next call or process.

        Raises:
            EmbeddingUnavailable: an attempt received nothing new.
        """
        while self.missing:
            before = self._downloaded_bytes()
            try:
                self._attempt(on_progress)
            except Exception as error:
                self._last_error = _describe(error)
                if self._downloaded_bytes() <= before or self._closed.wait(RESUME_SECONDS):
                    raise EmbeddingUnavailable(self.reason) from error
        self._last_error = ""

    def _start_thread(self) -> None:
        _require_hub()
        with self._lock:
            if self._thread is None and not self._closed.is_set():
                self._thread = threading.Thread(target=self._run, name="model-download", daemon=True)
                self._thread.start()

    def _run(self) -> None:
        pause = self._pause_seconds
        while not self._closed.is_set() and self.missing:
            before = self._downloaded_bytes()
            try:
                self._attempt(lambda _done, _total: None)
            except Exception as error:  # noqa: BLE001 -- every error must show in the status
                self._last_error = _describe(error)
                pause = self._pause_seconds if self._downloaded_bytes() > before else pause
                self._closed.wait(pause)
                pause = min(MAX_PAUSE_SECONDS, 2 * pause)
        if not self._closed.is_set():
            self._last_error = ""
            self._on_ready()

    def _attempt(self, on_progress: DownloadProgress) -> None:
        _require_hub()
        source = locate(self._repo, self._file, self._endpoint)
        self._target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with self._locked_part(source, on_progress):
            if not self.missing:
                # Another process has completed it while this one waited.
                self._part.unlink(missing_ok=True)
                return
            self._fetch(source, on_progress)
            _verify(source, self._part)
            self._part.replace(self._target)

    @contextmanager
    def _locked_part(self, source: DownloadSource, on_progress: DownloadProgress) -> Iterator[None]:
        while True:
            with self._part.open("ab") as file:
                self._wait_for_lock(file, source, on_progress)
                # The process that held the lock may have renamed or deleted the file.
                if not self.missing or _is_at(self._part, file):
                    yield
                    return

    def _wait_for_lock(self, file: BufferedWriter, source: DownloadSource, on_progress: DownloadProgress) -> None:
        size, changed = -1, time.monotonic()
        while not try_lock(file.fileno()):
            self._by_another_process = True
            before, size = size, self._downloaded_bytes()
            changed = time.monotonic() if size != before else changed
            if time.monotonic() - changed > OTHER_PROCESS_SECONDS:
                raise EmbeddingUnavailable("another process is downloading it, and receives nothing")
            self._report(on_progress, size, source.size_bytes)
            if self._closed.wait(_LOCK_POLL_SECONDS):
                raise EmbeddingUnavailable("the download was stopped")
        self._by_another_process = False

    def _fetch(self, source: DownloadSource, on_progress: DownloadProgress) -> None:
        offset = self._downloaded_bytes()
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
            self._report(on_progress, offset, source.size_bytes)
            # Unbuffered, in pieces as they arrive, so that an interrupted download keeps all of them.
            with self._part.open("r+b", buffering=0) as file:
                file.seek(offset)
                file.truncate()
                for piece in response.iter_bytes():
                    if self._closed.is_set():
                        raise EmbeddingUnavailable("the download was stopped")
                    file.write(piece)
                    offset += len(piece)
                    self._report(on_progress, offset, source.size_bytes)

    def _report(self, on_progress: DownloadProgress, done: int, total: int) -> None:
        self._last_error = ""
        self._done, self._total = done, total
        on_progress(done, total)

    def _downloaded_bytes(self) -> int:
        try:
            return self._part.stat().st_size
        except OSError:
            return 0

    def close(self) -> None:
        """See `ModelFile`. The part downloaded so far is kept for the next time."""
        self._closed.set()
        if self._thread is not None:
            self._thread.join(1.0)


def _require_hub() -> None:
    if importlib.util.find_spec("huggingface_hub") is None:
        raise EmbeddingUnavailable("huggingface_hub is missing: install memoryd[local]")


def _is_at(path: Path, file: BufferedWriter) -> bool:
    """Return whether an open file is the one at `path`."""
    try:
        return os.path.samestat(path.stat(), os.fstat(file.fileno()))
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
