import json

import pytest

from memoryd_server.writing import ledger as module
from memoryd_server.writing.ledger import Entry, Ledger, State

LOG = "memory/2026-02-08.md"


def entry(key, state=State.DONE, path=LOG):
    return Entry(key, path, 0, 5, "b" * 64, "c" * 64, 1, 1, state)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "memory" / "main.appends"


@pytest.fixture
def ledger(path):
    return Ledger(str(path))


def put(ledger, *entries):
    for each in entries:
        with ledger.locked():
            ledger.put(each, durable=True)


def test_what_was_put_is_read_by_another_process(ledger, path):
    put(ledger, entry("a"), entry("b", State.PENDING))
    other = Ledger(str(path))
    with other.locked():
        assert other.get("a") == entry("a")
        assert other.pending(LOG) == [entry("b", State.PENDING)]


def test_what_another_process_put_later_is_seen(ledger, path):
    put(ledger, entry("a"))
    put(Ledger(str(path)), entry("b"))
    with ledger.locked():
        assert ledger.get("b") == entry("b")


def test_the_last_line_of_a_key_counts(ledger, path):
    put(ledger, entry("a", State.PENDING), entry("a"))
    other = Ledger(str(path))
    with other.locked():
        assert other.get("a").state is State.DONE
        assert other.pending(LOG) == []


def test_nobody_else_can_read_the_ledger(ledger, path):
    put(ledger, entry("a"))
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.parent.stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize("torn", [b'{"key":"x","pa', b"\xff\xfe", b"{}"])
@pytest.mark.parametrize("fresh", [True, False])
def test_a_torn_last_line_is_passed_over_and_repaired(ledger, path, torn, fresh):
    put(ledger, entry("a"))
    with path.open("ab") as file:
        file.write(torn)
    if fresh:
        ledger = Ledger(str(path))
    with ledger.locked():
        assert ledger.get("x") is None
    put(ledger, entry("b"))
    assert path.read_bytes().split(b"\n")[1] == torn
    other = Ledger(str(path))
    with other.locked():
        assert (other.get("a"), other.get("b")) == (entry("a"), entry("b"))


def test_two_processes_agree_on_who_repairs(ledger, path):
    put(ledger, entry("a"))
    with path.open("ab") as file:
        file.write(b"torn")
    other = Ledger(str(path))
    with ledger.locked():
        pass
    put(other, entry("b"))
    put(ledger, entry("c"))
    assert [line for line in path.read_bytes().split(b"\n") if not line] == [b""]
    with other.locked():
        assert other.get("c") == entry("c")


def fill(path, count, *, states=("pending", "done"), first=0):
    with path.open("ab") as file:
        for number in range(first, first + count):
            for state in states:
                line = {**{name: getattr(entry("x"), name) for name in Entry.__slots__}, "key": f"k{number}"}
                file.write(json.dumps({**line, "state": state}).encode() + b"\n")


def test_a_small_ledger_is_never_rewritten(ledger, path):
    put(ledger, entry("a"))
    before = path.stat().st_ino
    fill(path, 100)
    put(ledger, entry("b"))
    assert path.stat().st_ino == before


def test_a_long_ledger_is_rewritten_with_a_line_a_key(ledger, path):
    put(ledger, entry("a"))
    fill(path, 3000)
    put(ledger, entry("b"))
    assert len(path.read_bytes().splitlines()) == 3002
    other = Ledger(str(path))
    with other.locked():
        assert other.get("k0").state is State.DONE
        assert other.get("b") == entry("b")


def test_a_rewrite_keeps_the_newest_keys_and_every_pending_one(ledger, path, monkeypatch):
    monkeypatch.setattr(module, "KEPT_KEYS", 10)
    put(ledger, entry("old", State.PENDING))
    fill(path, 3000)
    put(ledger, entry("b"))
    kept = [json.loads(line)["key"] for line in path.read_bytes().splitlines()]
    assert kept == ["old", *(f"k{n}" for n in range(2991, 3000)), "b"]


def test_a_rewritten_ledger_is_not_rewritten_at_once(ledger, path):
    put(ledger, entry("a"))
    fill(path, 6000)
    put(ledger, entry("b"))
    rewritten = path.stat()
    assert rewritten.st_size > module.COMPACT_ABOVE_BYTES
    put(ledger, entry("c"))
    assert path.stat().st_ino == rewritten.st_ino


def test_a_ledger_rewritten_by_another_process_is_read_anew(ledger, path):
    put(ledger, entry("a"))
    other = Ledger(str(path))
    fill(path, 3000)
    put(other, entry("b"))
    put(ledger, entry("c"))
    with other.locked():
        assert [other.get(key) is None for key in ("a", "b", "c")] == [False, False, False]


def test_a_rewrite_that_fails_does_not_fail_the_append(ledger, path):
    put(ledger, entry("a"))
    fill(path, 3000)
    path.with_name(path.name + ".new").mkdir()
    put(ledger, entry("b"))
    with ledger.locked():
        assert ledger.get("b") == entry("b")
