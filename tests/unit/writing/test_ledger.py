import errno
import json

import pytest

from memoryd_server.errors import IndexUnavailable
from memoryd_server.writing import ledger as module
from memoryd_server.writing.ledger import AppendState, Ledger, LedgerEntry, encode

LOG = "memory/2026-02-08.md"


def entry(key, state=AppendState.DONE, path=LOG):
    return LedgerEntry(key, path, 0, 5, "b" * 64, "c" * 64, 1, 1, state)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "memory" / "main.appends"


@pytest.fixture
def ledger(path):
    return Ledger(str(path))


def put(ledger, *entries):
    for each in entries:
        with ledger.lock():
            ledger.put(each, durable=True)


def test_what_was_put_is_read_by_another_process(ledger, path):
    put(ledger, entry("a"), entry("b", AppendState.PENDING))
    other = Ledger(str(path))
    with other.lock():
        assert other.get("a") == entry("a")
        assert other.pending(LOG) == [entry("b", AppendState.PENDING)]


def test_what_another_process_put_later_is_seen(ledger, path):
    put(ledger, entry("a"))
    put(Ledger(str(path)), entry("b"))
    with ledger.lock():
        assert ledger.get("b") == entry("b")


def test_the_last_line_of_a_key_counts(ledger, path):
    put(ledger, entry("a", AppendState.PENDING), entry("a"))
    other = Ledger(str(path))
    with other.lock():
        assert other.get("a").state is AppendState.DONE
        assert other.pending(LOG) == []


def test_nobody_else_can_read_the_ledger(ledger, path):
    put(ledger, entry("a"))
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.parent.stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize("torn", [b"{", b'{"key":"x","pa', b"\0" * 500, b'{"key":"x","pa\0\0'])
@pytest.mark.parametrize("fresh", [True, False])
def test_a_torn_last_line_is_cut_off(ledger, path, torn, fresh):
    put(ledger, entry("a"))
    with path.open("ab") as file:
        file.write(torn)
    if fresh:
        ledger = Ledger(str(path))
    with ledger.lock():
        assert ledger.get("x") is None
    put(ledger, entry("b"))
    assert path.read_bytes() == encode(entry("a")) + encode(entry("b"))
    assert ledger.problem == ""


def test_two_processes_agree_on_who_repairs(ledger, path):
    put(ledger, entry("a"))
    other = Ledger(str(path))
    for torn in (b'{"key":"torn', b'{"k'):
        with path.open("ab") as file:
            file.write(torn)
        with ledger.lock():
            pass
        put(other, entry("b"))
        put(ledger, entry("c"))
        with other.lock():
            assert other.get("c") == entry("c")
    assert path.read_bytes() == b"".join(encode(entry(key)) for key in "abcbc")


def flip(data, place):
    return data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :]


# A bit in a number, in a key and in a brace; lines of other kinds; no line at all.
DAMAGES = {
    "a number": lambda data: data.replace(b'"offset":0', b'"offset":8', 1),
    "a key": lambda data: data.replace(b'"key":"a"', b'"key":"e"', 1),
    "a brace": lambda data: flip(data, 0),
    "a zeroed page": lambda data: b"\0" * 200 + data[200:],
    "another program's line": lambda data: b"[1, 2]\nnull\n7\n" + data[data.index(b"\n") + 1 :],
    "not text": lambda data: b"\xff\xfe\r\n" + data[data.index(b"\n") + 1 :],
}


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
def test_damage_is_told_of_and_the_readable_keys_go_on(path, damage):
    put(Ledger(str(path)), entry("a"), entry("b"), entry("c", AppendState.PENDING))
    damaged = damage(path.read_bytes())
    path.write_bytes(damaged)
    ledger = Ledger(str(path))
    put(ledger, entry("d"))
    assert "damaged" in ledger.problem
    other = Ledger(str(path))
    with other.lock():
        assert [other.get(key) for key in "bcd"] == [entry("b"), entry("c", AppendState.PENDING), entry("d")]
        assert other.get("a") is None
    aside = path.with_name("main.appends.damaged")
    assert aside.read_bytes() == damaged
    assert aside.stat().st_mode & 0o777 == 0o600
    assert Ledger(str(path)).problem == ""


def test_garbage_without_a_line_is_set_aside_whole(path):
    path.parent.mkdir()
    path.write_bytes(b"\x7fELF" + bytes(range(11, 256)) * 40)
    ledger = Ledger(str(path))
    put(ledger, entry("a"))
    assert path.read_bytes() == encode(entry("a"))
    assert len(path.with_name("main.appends.damaged").read_bytes()) == 4 + 245 * 40
    assert "1 of its lines" in ledger.problem


@pytest.mark.parametrize("harm", [lambda path: path.write_bytes(b""), lambda path: path.unlink()])
def test_a_ledger_lost_while_the_daemon_runs_is_written_anew_from_memory(ledger, path, harm):
    put(ledger, entry("a"), entry("b", AppendState.PENDING))
    harm(path)
    put(ledger, entry("c"))
    other = Ledger(str(path))
    with other.lock():
        assert [other.get(key) for key in "abc"] == [entry("a"), entry("b", AppendState.PENDING), entry("c")]
    assert "emptied or removed" in ledger.problem


def test_a_ledger_cut_in_the_middle_while_the_daemon_runs_loses_nothing(ledger, path):
    put(ledger, *(entry(key) for key in "abcdef"))
    with path.open("r+b") as file:
        file.truncate(path.stat().st_size // 2)
    put(ledger, entry("g"))
    other = Ledger(str(path))
    with other.lock():
        assert [key for key in "abcdefg" if other.get(key) == entry(key)] == list("abcdefg")


def test_a_ledger_overwritten_while_the_daemon_runs_loses_nothing(ledger, path):
    put(ledger, entry("a"), entry("b"))
    path.write_bytes(b"something else\n" * 100)
    put(ledger, entry("c"))
    other = Ledger(str(path))
    with other.lock():
        assert [other.get(key) for key in "abc"] == [entry("a"), entry("b"), entry("c")]
    assert "damaged" in ledger.problem


def test_a_repair_that_fails_is_tried_again(ledger, path, monkeypatch):
    put(ledger, entry("a"))
    path.write_bytes(b"garbage\n" + path.read_bytes())
    fresh = Ledger(str(path))
    with monkeypatch.context() as patched:
        patched.setattr(module, "write_whole", fail)
        for _ in range(2):
            with pytest.raises(IndexUnavailable), fresh.lock():
                pass
    put(fresh, entry("b"))
    assert path.read_bytes() == encode(entry("a")) + encode(entry("b"))


def fail(*_arguments, **_named):
    raise OSError(errno.EIO, "input/output error")


def test_lines_without_a_checksum_are_read(ledger, path):
    path.parent.mkdir()
    fields = json.loads(encode(entry("old")))
    del fields["check"]
    path.write_text(json.dumps(fields) + "\n")
    with ledger.lock():
        assert ledger.get("old") == entry("old")
    assert ledger.problem == ""


def test_a_rewrite_cut_short_leaves_no_file_behind(ledger, path):
    put(ledger, entry("a"))
    path.with_name("main.appends.new").write_bytes(b"half of a rewri")
    put(Ledger(str(path)), entry("b"))
    assert [file.name for file in path.parent.iterdir()] == ["main.appends"]


def fill(path, count, *, states=("pending", "done"), first=0):
    with path.open("ab") as file:
        for number in range(first, first + count):
            for state in states:
                line = {**{name: getattr(entry("x"), name) for name in LedgerEntry.__slots__}, "key": f"k{number}"}
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
    with other.lock():
        assert other.get("k0").state is AppendState.DONE
        assert other.get("b") == entry("b")


def test_a_rewrite_keeps_the_newest_keys_and_every_pending_one(path):
    ledger = Ledger(str(path), kept_keys=10)
    put(ledger, entry("old", AppendState.PENDING))
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
    with other.lock():
        assert [other.get(key) is None for key in ("a", "b", "c")] == [False, False, False]


def test_a_rewrite_that_fails_does_not_fail_the_append(ledger, path):
    put(ledger, entry("a"))
    fill(path, 3000)
    path.with_name(path.name + ".new").mkdir()
    put(ledger, entry("b"))
    with ledger.lock():
        assert ledger.get("b") == entry("b")
