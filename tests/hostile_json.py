"""JSON that no provider sends: one value of a reply is replaced by something that is valid JSON, or nearly so."""

import json

from hypothesis import strategies as st

_MARK = "replaced-by-hostile-json"

HUGE = "1" + "0" * 400
FRAGMENTS = (
    *(
        "0",
        "-0",
        "-1",
        "1",
        "true",
        "false",
        "null",
        '""',
        '"text"',
        "[]",
        "{}",
        "[[]]",
        "[null]",
        '[""]',
        '[{"a": 1}]',
    ),
    *("NaN", "Infinity", "-Infinity", "1e400", "-1e400", "1e308", "5e-324", "0.5", "-0.5", "3.0", "1e18"),
    *(
        HUGE,
        f"-{HUGE}",
        f"{HUGE}.0",
        "9" * 5_000,
        "-" + "9" * 5_000,
        str(2**31),
        str(2**63),
        str(2**63 - 1),
        str(2**64),
    ),
    *('"NaN"', f'"{HUGE}"', '"1e300"', '"-1"', '"١٢"', '"1e300s"', '"2026-01-01T00:00:00Z"', '"\\ud800"', '"\\u0000"'),
    *("[" * 20_000, "[" * 900 + "]" * 900, "[" * 60 + "]" * 60, '{"a": ' * 900 + "1" + "}" * 900, '{"error": ' * 400),
    *('{"error": ' * 300 + '"x"' + "}" * 300, '{"a": 1, "a": [2], "a": "3"}', "[NaN]", f"[{HUGE}]", "[1e400]"),
    *(
        f"[{HUGE}, 0.5]",
        "[true, 0.5]",
        '["a", 0.5]',
        "[[1], 0.5]",
        "[" + "1," * 140_000 + "1]",
        '["' + "x" * 5_000 + '"]',
    ),
    *("not JSON", '"open', "\x00", '{"a":', "1 2"),
)

fragments = st.sampled_from(FRAGMENTS) | st.one_of(
    st.integers().map(str),
    st.floats().map(json.dumps),
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
        max_leaves=5,
    ).map(json.dumps),
)


def places(tree, path=()):
    """Yield the path of every value of a tree, the whole first; of a long list, only those of its first items."""
    yield path
    if isinstance(tree, dict | list):
        items = list(tree.items() if isinstance(tree, dict) else enumerate(tree))
        for key, value in items[:8]:
            yield from places(value, (*path, key))


def _with(tree, path, value):
    if not path:
        return value
    copy = tree.copy()
    copy[path[0]] = _with(tree[path[0]], path[1:], value)
    return copy


def spoil(reply, place, fragment):
    """Return a reply as bytes, with `fragment` in place of a value: that at a path, or one chosen by a number."""
    if isinstance(reply, bytes):
        first, _, rest = reply.partition(b"\n")
        return spoil(json.loads(first), place, fragment) + b"\n" + rest
    paths = list(places(reply))
    path = place if isinstance(place, tuple) else paths[place % len(paths)]
    spoiled = json.dumps(_with(reply, path, _MARK))
    return spoiled.replace(f'"{_MARK}"', fragment).encode()
