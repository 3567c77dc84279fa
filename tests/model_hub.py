"""A server that answers like huggingface.co for the files of one repository, on loopback."""

import hashlib
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

URI = "hf:some-org/some-repo/model-Q8_0.gguf"
PATH = "/some-org/some-repo/resolve/main/model-Q8_0.gguf"


class Hub:
    """The model at `URI`. `ranges` are the first bytes of the requests for its content.

    `status` answers every request, if it is not 200. `cut_at` breaks the connection there, once. `hold_at` waits there
    until `go` is set; None waits nowhere.
    """

    def __init__(self, content):
        self.content = content
        self.sha256 = hashlib.sha256(content).hexdigest()
        self.ranges = []
        self.status = 200
        self.cut_at = None
        self.hold_at = None
        self.go = threading.Event()

    def answer(self, handler, *, body):
        """Answer one request."""
        assert handler.path == PATH
        if self.status != 200:
            handler.send_response(self.status)
            handler.send_header("content-length", "0")
            handler.end_headers()
            return
        begin = int((handler.headers.get("range") or "bytes=0-")[6:-1])
        handler.send_response(206 if begin else 200)
        handler.send_header("x-repo-commit", "c" * 40)
        handler.send_header("etag", f'"{self.sha256}"')
        handler.send_header("content-length", str(len(self.content) - begin))
        handler.end_headers()
        if body:
            self._send(handler.wfile, begin)
            handler.close_connection = True

    def _send(self, file, begin):
        self.ranges.append(begin)
        end, self.cut_at = self.cut_at, None
        if self.hold_at is not None and begin < self.hold_at:
            file.write(self.content[begin : self.hold_at])
            file.flush()
            begin = self.hold_at
            self.go.wait(60)
        file.write(self.content[begin:end])


@contextmanager
def serving_hub(hub):
    """Yield the address of `hub` until the block ends."""

    class Handler(BaseHTTPRequestHandler):
        def do_HEAD(self):
            hub.answer(self, body=False)

        def do_GET(self):
            hub.answer(self, body=True)

        def log_message(self, *_arguments):
            pass

    class Server(ThreadingHTTPServer):
        daemon_threads = True

        def handle_error(self, *_arguments):
            pass

    with Server(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        hub.go.set()
        server.shutdown()
