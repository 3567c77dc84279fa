"""A proxy between a client and a PostgreSQL server on Unix sockets that loses a connection at a chosen moment."""

import socket
import threading
from contextlib import suppress
from pathlib import Path

SOCKET = ".s.PGSQL.5432"


class LossyProxy:
    """Forwards bytes. `on_request`, if it is set, is called with all that the client sends at once.

    It returns what happens with it: "forward"; "lose", which closes the connection instead; or "lose the answer", which
    closes the connection when the server has answered.
    """

    def __init__(self, server_folder, folder):
        self.on_request = None
        self._server = str(Path(server_folder) / SOCKET)
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(Path(folder) / SOCKET))
        self._listener.listen()
        self._sockets = [self._listener]
        self._threads = []
        self._start(self._accept)

    def _start(self, target, *arguments):
        thread = threading.Thread(target=target, args=arguments)
        self._threads.append(thread)
        thread.start()

    def _accept(self):
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                server = socket.socket(socket.AF_UNIX)
                server.connect(self._server)
                self._sockets += [client, server]
                lost = threading.Event()
                self._start(self._requests, client, server, lost)
                self._start(self._answers, client, server, lost)

    def _requests(self, client, server, lost):
        with suppress(OSError):
            while data := client.recv(1 << 20):
                action = self.on_request(data) if self.on_request else "forward"
                if action == "lose":
                    break
                if action == "lose the answer":
                    lost.set()
                server.sendall(data)
        _end(server)
        if not lost.is_set():
            _end(client)

    def _answers(self, client, server, lost):
        with suppress(OSError):
            while data := server.recv(1 << 20):
                if lost.is_set():
                    break
                client.sendall(data)
        _end(client)
        _end(server)

    def close(self):
        for each in self._sockets:
            _end(each)
        for thread in self._threads:
            thread.join()
        for each in self._sockets:
            each.close()


def _end(connection):
    with suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)
