"""Strategies for what no gRPC library sends: malformed HTTP/2 frames, headers and bytes that are no HTTP at all.

A connection is a list of parts, each a tuple that begins with its kind:

- ("headers", flags, stream, ((name, value), ...)): a HEADERS frame with literal headers;
- ("data", flags, stream, bytes): a DATA frame; ("message", flags, stream, bytes): one with gRPC's prefix of five bytes;
- ("frame", kind, flags, stream, bytes): any frame;
- ("bytes", bytes): written as they are.
"""

import struct
from urllib.parse import unquote

from hypothesis import strategies as st

from fuzz.messages import METHODS, UNKNOWN_METHODS, bodies
from raw_http2 import DATA, END_HEADERS, END_STREAM, HEADERS, frame, literal

RST_STREAM, SETTINGS, PUSH_PROMISE, PING, GOAWAY, WINDOW_UPDATE, CONTINUATION = 3, 4, 5, 6, 7, 8, 9
MOST_PARTS = 12

_streams = st.sampled_from([0, 1, 2, 3, 5, 7, 2**31 - 1])
_flags = st.sampled_from([0, 0x1, 0x4, 0x5, 0x8, 0x20, 0x2D, 0xFF])
_NAMES = (
    *(":path", ":method", ":authority", "te", "content-type", "grpc-timeout", "grpc-encoding", "grpc-accept-encoding"),
    *("authorization", "x-request-id", "user-agent", "cookie", "X-Upper", "a b", "", "grpc-status", "x-bin", "host"),
)
_VALUES = (
    *("", "POST", "GET", "application/grpc", "application/grpc+json", "text/html", "trailers", "99999999999999999H"),
    *("1n", "0S", "-1S", "gzip", "deflate", "identity", "unknown", "Bearer ", "Bearer x", "Basic x", "\0", "é", "%%%"),
)
_names = st.sampled_from(_NAMES)
_values = st.sampled_from(_VALUES) | st.sampled_from([300, 9_000, 40_000]).map(lambda size: "x" * size)


@st.composite
def _header_lists(draw, method, authorization):
    headers = [
        (":method", "POST"),
        (":scheme", "http"),
        (":path", method),
        (":authority", "localhost"),
        ("content-type", "application/grpc"),
        ("te", "trailers"),
        *authorization,
    ]
    for how, at, name, value in draw(
        st.lists(st.tuples(st.sampled_from("rrai"), st.integers(0, 8), _names, _values), max_size=3)
    ):
        if how == "r" and headers:
            headers.pop(at % len(headers))
        elif how == "a":
            headers.append((name, value))
        else:
            headers.insert(at % (len(headers) + 1), (name, value))
    return tuple(headers)


@st.composite
def _calls(draw, authorization):
    """Draw the frames of one call, which may be cut short, reset, or split."""
    stream = draw(st.sampled_from([1, 1, 1, 3, 5]))
    method = draw(st.sampled_from([*METHODS, *UNKNOWN_METHODS]))
    body = draw(bodies(method))
    parts = [("headers", END_HEADERS, stream, draw(_header_lists(method, authorization)))]
    kind = draw(st.sampled_from(["whole", "whole", "open", "reset", "prefix", "split", "none", "compressed", "twice"]))
    if kind in ("whole", "twice"):
        parts.append(("message", 0 if kind == "twice" else END_STREAM, stream, body))
    if kind in ("open", "reset", "twice"):
        parts.append(("message", 0, stream, body))
    if kind == "reset":
        parts.append(("frame", RST_STREAM, 0, stream, struct.pack(">I", draw(st.sampled_from([0, 2, 8, 2**32 - 1])))))
    if kind == "prefix":
        parts.append(("data", END_STREAM, stream, draw(st.binary(max_size=9))))
    if kind == "split":
        at = draw(st.integers(0, len(body)))
        parts.append(("data", 0, stream, struct.pack(">BI", 0, len(body)) + body[:at]))
        parts.append(("data", END_STREAM, stream, body[at:]))
    if kind == "none":
        parts.append(("data", END_STREAM, stream, b""))
    if kind == "compressed":
        parts.append(("data", END_STREAM, stream, struct.pack(">BI", 1, len(body)) + body))
    return parts


_known_frames = st.one_of(
    st.tuples(st.just("frame"), st.just(SETTINGS), _flags, _streams, st.binary(max_size=24)),
    st.builds(
        lambda key, value: ("frame", SETTINGS, 0, 0, struct.pack(">HI", key, value)),
        st.integers(0, 9),
        st.sampled_from([0, 1, 2**14, 2**24 - 1, 2**31 - 1, 2**32 - 1]),
    ),
    st.builds(
        lambda stream, value: ("frame", WINDOW_UPDATE, 0, stream, struct.pack(">I", value)),
        _streams,
        st.sampled_from([0, 1, 2**31 - 1, 2**32 - 1]),
    ),
    st.builds(lambda n: ("bytes", frame(PING, 0, 0, b"\0" * 8) * n), st.sampled_from([1, 20, 300])),
    st.builds(lambda n: ("bytes", frame(CONTINUATION, 0, 1, b"\x10\x01a\x01b") * n), st.sampled_from([1, 20, 300])),
    st.builds(
        lambda n: ("bytes", b"".join(frame(RST_STREAM, 0, s, b"\0\0\0\x08") for s in range(1, n, 2))),
        st.sampled_from([4, 200]),
    ),
    st.tuples(st.just("frame"), st.just(GOAWAY), st.just(0), st.just(0), st.binary(min_size=8, max_size=40)),
    st.tuples(st.just("frame"), st.just(PUSH_PROMISE), _flags, _streams, st.binary(max_size=20)),
    st.tuples(st.just("frame"), st.integers(0, 255), _flags, _streams, st.binary(max_size=64)),
    st.tuples(st.just("frame"), st.just(HEADERS), _flags, _streams, st.binary(max_size=64)),
    st.tuples(st.just("bytes"), st.binary(max_size=200)),
    st.just(("bytes", b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")),
    # A frame that announces 16 MiB, of which nothing comes.
    st.just(("bytes", b"\xff\xff\xff\x00\x00\x00\x00\x00\x01")),
)


@st.composite
def connections(draw, token):
    """Draw the parts of one connection. Some of its calls have `token`."""
    parts = []
    for _ in range(draw(st.integers(1, 3))):
        if draw(st.integers(0, 2)):
            authorization = (("authorization", f"Bearer {token}"),) if draw(st.booleans()) else ()
            parts += draw(_calls(authorization))
        else:
            parts += draw(st.lists(_known_frames, min_size=1, max_size=3))
    return tuple(parts[:MOST_PARTS])


def encode(part):
    """Return the bytes of a part."""
    kind, *rest = part
    if kind == "bytes":
        return rest[0]
    if kind == "frame":
        number, flags, stream, payload = rest
        return frame(number, flags, stream, payload)
    flags, stream, payload = rest
    if kind == "headers":
        return frame(HEADERS, flags, stream, b"".join(literal(name, value) for name, value in payload))
    if kind == "message":
        payload = struct.pack(">BI", 0, len(payload)) + payload
    sizes = range(0, len(payload), 16_384) or (0,)
    last = sizes[-1]
    return b"".join(
        frame(DATA, flags if at == last else flags & ~END_STREAM, stream, payload[at : at + 16_384]) for at in sizes
    )


def grpc_statuses(blocks):
    """Return the gRPC statuses in blocks of HPACK that use no dynamic table: each a number and a message."""
    headers = [dict(_literals(block)) for block in blocks]
    return [
        (int(fields[b"grpc-status"]), unquote(fields.get(b"grpc-message", b"").decode("ascii", "replace")))
        for fields in headers
        if fields.get(b"grpc-status", b"").isdigit()
    ]


def _literals(block):
    at = 0
    while at < len(block):
        first = block[at]
        if first & 0x80:
            _, at = _integer(block, at, 7)
            continue
        if first & 0xE0 == 0x20:
            _, at = _integer(block, at, 5)
            continue
        index, at = _integer(block, at, 6 if first & 0x40 else 4)
        name = b""
        if not index:
            name, at = _text(block, at)
        value, at = _text(block, at)
        yield name, value


def _integer(block, at, bits):
    most = (1 << bits) - 1
    value, at, shift = block[at] & most, at + 1, 0
    if value < most:
        return value, at
    while True:
        value += (block[at] & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if not block[at - 1] & 0x80:
            return value, at


def _text(block, at):
    """Return a string, b"" for one in Huffman's code, and the place after it."""
    coded = block[at] & 0x80
    size, at = _integer(block, at, 7)
    return b"" if coded else block[at : at + size], at + size
