"""An HTTP/2 client that sends what a gRPC library would not: headers without a request, windows of zero bytes.

It covers what the tests need: literal HPACK headers, SETTINGS, PING, DATA and the frames that end a stream.
"""

import contextlib
import socket
import struct
import time

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, RST_STREAM, SETTINGS, PING = 0, 1, 3, 4, 6
ACK = END_STREAM = 0x1
END_HEADERS = 0x4
INITIAL_WINDOW_SIZE = 4


class RawConnection:
    """One connection; `address` is `HOST:PORT` or `unix:PATH`, `window` the bytes that each stream may send to us."""

    def __init__(self, address, *, window=65_535):
        if address.startswith("unix:"):
            self._socket = socket.socket(socket.AF_UNIX)
            self._socket.connect(address.removeprefix("unix:"))
        else:
            host, _, port = address.rpartition(":")
            self._socket = socket.create_connection((host, int(port)))
        self._socket.settimeout(20)
        self._next_stream = 1
        self._buffer = b""
        self.ended = set()
        self.received = {}
        self.closed = False
        self.send(PREFACE + frame(SETTINGS, 0, 0, struct.pack(">HI", INITIAL_WINDOW_SIZE, window)))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        """Close the socket."""
        self.closed = True
        self._socket.close()

    def send(self, data):
        """Write bytes as they are."""
        self._socket.sendall(data)

    def open(self, method, token=None, message=None):
        """Begin a call and return its stream; without `message` the request never comes."""
        return self.open_many(method, 1, token, message)[0]

    def open_many(self, method, count, token=None, message=None):
        """Begin `count` calls in one write and return their streams."""
        headers = [
            (":method", "POST"),
            (":scheme", "http"),
            (":path", method),
            (":authority", "localhost"),
            ("content-type", "application/grpc"),
            ("te", "trailers"),
        ]
        if token is not None:
            headers.append(("authorization", f"Bearer {token}"))
        block = b"".join(literal(name, value) for name, value in headers)
        streams = range(self._next_stream, self._next_stream + 2 * count, 2)
        self._next_stream += 2 * count
        sent = b""
        for stream in streams:
            sent += frame(HEADERS, END_HEADERS, stream, block)
            if message is not None:
                sent += frame(DATA, END_STREAM, stream, struct.pack(">BI", 0, len(message)) + message)
        self.send(sent)
        return list(streams)

    def read(self, seconds):
        """Take in what the server sends within `seconds`; answer its SETTINGS and PING frames."""
        until = time.monotonic() + seconds
        while not self.closed and (left := until - time.monotonic()) > 0:
            self._socket.settimeout(max(0.001, left))
            with contextlib.suppress(TimeoutError):
                data = self._socket.recv(65_536)
                self.closed = not data
                self._buffer += data
            self._take_frames()

    def read_until(self, condition, seconds=20):
        """Take in what the server sends until `condition()` holds; return whether it does."""
        until = time.monotonic() + seconds
        while not condition() and time.monotonic() < until and not self.closed:
            self.read(0.05)
        return condition()

    def _take_frames(self):
        while len(self._buffer) >= 9:
            size = int.from_bytes(self._buffer[:3], "big")
            if len(self._buffer) < 9 + size:
                return
            kind, flags = self._buffer[3], self._buffer[4]
            stream = int.from_bytes(self._buffer[5:9], "big")
            payload, self._buffer = self._buffer[9 : 9 + size], self._buffer[9 + size :]
            self._take_frame(kind, flags, stream, payload)

    def _take_frame(self, kind, flags, stream, payload):
        if kind == SETTINGS and not flags & ACK:
            self.send(frame(SETTINGS, ACK, 0, b""))
        elif kind == PING and not flags & ACK:
            self.send(frame(PING, ACK, 0, payload))
        elif kind in (HEADERS, DATA, RST_STREAM):
            self.received.setdefault(stream, []).append((kind, payload))
            if kind == RST_STREAM or flags & END_STREAM:
                self.ended.add(stream)


def frame(kind, flags, stream, payload):
    """Return one HTTP/2 frame."""
    return len(payload).to_bytes(3, "big") + bytes([kind, flags]) + stream.to_bytes(4, "big") + payload


def literal(name, value):
    """Return a header as HPACK's literal that is never indexed and not Huffman-coded."""
    return b"\x10" + _string(name.encode()) + _string(value.encode())


def _string(data):
    if len(data) < 127:
        return bytes([len(data)]) + data
    return bytes([127]) + _continued(len(data) - 127) + data


def _continued(number):
    parts = b""
    while number >= 128:
        parts += bytes([number % 128 + 128])
        number //= 128
    return parts + bytes([number])
