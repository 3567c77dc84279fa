"""The steps of a run, as values that can be written to a file and performed again: calls, connections, file changes."""

import base64
import contextlib
import json
import os
import shutil
import struct
import threading
import zlib
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import grpc
from google.protobuf import message_factory

from fuzz.frames import SETTINGS, encode, grpc_statuses
from fuzz.messages import METHODS, learn, with_learned
from raw_http2 import HEADERS, RawConnection, frame

# The specification of gRPC demands INTERNAL for these; the daemon's handlers see no request.
PROTOCOL_ERRORS = ("Compression bit set but no encoding configured", "Failed parsing HTTP/2")
CODES = {code.value[0]: code.name for code in grpc.StatusCode}
HEADER_TABLE_SIZE = 1
MOST_MESSAGE_BYTES = 4 * 1024 * 1024


@dataclass(frozen=True)
class Call:
    """A call with any body, through gRPC's own client.

    `listener` is "unix" or "tcp", `token` a name in `FuzzedDaemon.tokens`. `requests` messages are sent; with
    `half_open` the client never ends its side. After `replies` messages the call is cancelled.
    """

    listener: str
    token: str
    method: str
    body: bytes
    metadata: tuple = ()
    seconds: float = 1.0
    requests: int = 1
    half_open: bool = False
    replies: int = 1_000


@dataclass(frozen=True)
class Burst:
    """Calls that run concurrently."""

    calls: tuple


@dataclass(frozen=True)
class Connection:
    """A connection with any bytes, which is closed after `linger` seconds, or at a `Release` if `held`."""

    listener: str
    parts: tuple
    linger: float = 0.05
    window: int = 65_535
    held: bool = False


@dataclass(frozen=True)
class Release:
    """Close the held connections."""


@dataclass(frozen=True)
class Change:
    """A change of a file by another program. `place` is "workspace" or "sessions"."""

    kind: str
    place: str
    path: str
    data: bytes = b""


KINDS = {kind.__name__: kind for kind in (Call, Burst, Connection, Release, Change)}


def to_line(step):
    """Return a step as one line of JSON."""
    return json.dumps([type(step).__name__, {name: _packed(value) for name, value in vars(step).items()}])


def from_line(line):
    """Return the step of a line."""
    kind, fields = json.loads(line)
    return KINDS[kind](**{name: _unpacked(value) for name, value in fields.items()})


def _packed(value):
    if isinstance(value, bytes):
        return {"bytes": base64.b64encode(zlib.compress(value)).decode()}
    if isinstance(value, Call):
        return {"call": to_line(value)}
    return [_packed(part) for part in value] if isinstance(value, tuple) else value


def _unpacked(value):
    if isinstance(value, dict):
        return from_line(value["call"]) if "call" in value else zlib.decompress(base64.b64decode(value["bytes"]))
    return tuple(_unpacked(part) for part in value) if isinstance(value, list) else value


class Performer:
    """Performs steps against a daemon and returns the statuses that it answered, until `close`.

    `learned` has values of replies that later requests can name.
    """

    def __init__(self, daemon):
        self._daemon = daemon
        self._channels = {name: grpc.insecure_channel(address) for name, address in daemon.addresses.items()}
        self._threads = ThreadPoolExecutor(8)
        self._held = []
        self.learned = {}

    def close(self):
        """Close every connection."""
        self._release()
        for channel in self._channels.values():
            channel.close()
        self._threads.shutdown()

    def perform(self, step):
        """Perform a step and return the names of the statuses."""
        if isinstance(step, Call):
            return [self._call(step)]
        if isinstance(step, Burst):
            return list(self._threads.map(self._call, step.calls))
        if isinstance(step, Connection):
            return self._connect(step)
        if isinstance(step, Release):
            self._release()
        else:
            with contextlib.suppress(OSError):
                change(self._daemon.folders[step.place] / step.path, step.kind, step.data)
        return []

    def _call(self, step):
        body = with_learned(step.method, step.body, self.learned)
        token = self._daemon.tokens[step.token]
        metadata = [*step.metadata, *([("authorization", f"Bearer {token}")] if token is not None else [])]
        ended = threading.Event()

        def requests():
            for _ in range(step.requests):
                yield body
            if step.half_open:
                ended.wait()

        replies = []
        call = self._channels[step.listener].stream_stream(step.method)(
            requests(), timeout=step.seconds, metadata=metadata
        )
        try:
            for reply in call:
                replies.append(reply)
                if len(replies) >= step.replies:
                    call.cancel()
                    return "cancelled by the client"
            return "OK"
        except grpc.RpcError as error:
            return error.code().name
        finally:
            call.cancel()
            ended.set()
            self._learn(step.method, replies)

    def _learn(self, method, replies):
        if method not in METHODS:
            assert not replies, method
            return
        for reply in replies:
            assert len(reply) <= MOST_MESSAGE_BYTES
            learn(message_factory.GetMessageClass(METHODS[method].output_type).FromString(reply), self.learned)

    def _connect(self, step):
        try:
            connection = RawConnection(self._daemon.addresses[step.listener], window=step.window)
        except OSError:
            return ["connection refused"]
        try:
            connection.send(frame(SETTINGS, 0, 0, struct.pack(">HI", HEADER_TABLE_SIZE, 0)))
            for part in step.parts:
                connection.send(encode(part))
            connection.read(step.linger)
        except OSError:
            # The daemon has closed the connection, which is its right after invalid bytes.
            connection.closed = True
        if step.held and not connection.closed:
            self._held.append(connection)
        else:
            connection.close()
        blocks = [part for parts in connection.received.values() for kind, part in parts if kind == HEADERS]
        return [_raw_status(status, message) for status, message in grpc_statuses(blocks)]

    def _release(self):
        while self._held:
            self._held.pop().close()


def _raw_status(status, message):
    """Return the name of a status, and the reason if gRPC itself refuses the frames as its protocol demands."""
    code = CODES.get(status, str(status))
    reason = next((known for known in PROTOCOL_ERRORS if message.startswith(known)), "")
    return f"{code} of gRPC ({reason})" if reason else code


def change(path, kind, data):
    """Change the file at `path` as another program would: `kind` is a key of `CHANGES`."""
    CHANGES[kind](path, data)


def _write(path, data):
    path.parent.mkdir(parents=True, exist_ok=True)
    _write_to(path, data, os.O_TRUNC)


def _append(path, data):
    _write_to(path, data, os.O_APPEND)


def _write_to(path, data, flags):
    # A pipe that no process reads is refused instead of waited for.
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_NONBLOCK | flags, 0o600), "wb") as file:  # noqa: PTH123
        file.write(data)


def _replace(path, data):
    new = path.with_name(f".{path.name[:80]}.new")
    new.write_bytes(data)
    new.replace(path)


def _remove(path, _):
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink()


CHANGES = {
    "write": _write,
    "append": _append,
    "replace": _replace,
    "remove": _remove,
    "truncate": lambda path, _: os.truncate(path, 0),
    "folder": lambda path, _: path.mkdir(parents=True),
    "symlink": lambda path, _: path.symlink_to("/etc/passwd"),
    "loop": lambda path, _: path.symlink_to(path.parent),
    "pipe": lambda path, _: os.mkfifo(path),
    "mode": lambda path, _: path.chmod(0),
    "rename": lambda path, _: path.rename(path.with_name(f"moved-{path.name[:80]}")),
    "future": lambda path, _: os.utime(path, (2**35, 2**35)),
}
