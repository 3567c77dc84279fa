"""Bytes that are no protobuf message, or a hostile one: made of the wire format's parts, or of changed messages."""

from hypothesis import strategies as st


def varint(number):
    number &= (1 << 64) - 1
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*out, number])


def field(number, kind, payload):
    body = varint(len(payload)) + payload if kind == 2 else payload
    return varint(number << 3 | kind) + body


def _nest(number, depth, core):
    for _ in range(depth):
        core = field(number, 2, core)
    return core


numbers = st.integers(0, 40) | st.sampled_from([2**29 - 1, 2**29, 2**32, 2**61])
varints = (st.integers(-(2**63), 2**63 - 1) | st.sampled_from([0, 1, -1, 2**31, 2**63 - 1])).map(varint)
texts = st.text(max_size=30).map(lambda text: text.encode("utf-8", "surrogatepass")) | st.binary(max_size=30)
parts = st.one_of(
    st.builds(field, numbers, st.just(0), varints),
    st.builds(field, numbers, st.just(1), st.binary(min_size=8, max_size=8)),
    st.builds(field, numbers, st.just(2), texts),
    st.builds(field, numbers, st.just(5), st.binary(min_size=4, max_size=4)),
    st.builds(field, numbers, st.sampled_from([3, 4, 6, 7]), st.binary(max_size=4)),
    # A length that promises more than there is.
    st.builds(lambda number, size: varint(number << 3 | 2) + varint(size), numbers, st.integers(1, 2**63)),
)
made_of_parts = st.lists(parts, max_size=8).map(b"".join)
nested = st.builds(_nest, st.integers(1, 16), st.integers(1, 150), parts)
changes = st.tuples(st.integers(0, 2**16), st.sampled_from(["flip", "cut", "insert", "double"]), st.binary(max_size=6))


def changed(data, changes):
    for place, how, extra in changes:
        at = place % (len(data) + 1)
        if how == "flip" and data:
            at = place % len(data)
            data = data[:at] + bytes([data[at] ^ (1 << place % 8)]) + data[at + 1 :]
        elif how == "cut":
            data = data[:at]
        elif how == "insert":
            data = data[:at] + extra + data[at:]
        else:
            data += data[:at]
    return data
