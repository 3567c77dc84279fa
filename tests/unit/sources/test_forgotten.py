"""What is kept out of the index is remembered for good, until it changes."""

import hashlib
import threading

import pytest

from memoryd_server.errors import DiskFull, IndexReadOnly
from memoryd_server.sources import forgotten
from memoryd_server.sources.forgotten import ForgottenFile, ForgottenSources


def sha(text):
    return hashlib.sha256(text.encode()).digest()


@pytest.fixture
def path(tmp_path):
    return tmp_path / "state" / "main.forgotten"


def loaded(path):
    found = ForgottenSources(ForgottenFile(path))
    found.load()
    return found


def test_nothing_is_forgotten_at_first_and_no_file_is_made(path):
    found = loaded(path)
    assert not found.excludes("memory/a.md", sha("a"))
    assert not found.check_excluded("memory/a.md", sha("a"))
    assert not found.has_session("abc")
    assert not path.exists()
    assert not found.problem


def test_a_forgotten_file_is_remembered_across_a_restart(path):
    first = loaded(path)
    first.add_file("memory/a.md", sha("a"))
    first.add_file("memory/ö\n.md", sha("b"))
    first.add_session("abc")
    for found in (first, loaded(path)):
        assert found.excludes("memory/a.md", sha("a"))
        assert found.excludes_data("memory/ö\n.md", b"b")
        assert found.has_session("abc")
        assert not found.has_session("abcd")
        assert not found.excludes("memory/a.md", sha("other"))
    assert [file.name for file in path.parent.iterdir()] == ["main.forgotten"]
    assert path.stat().st_mode & 0o777 == 0o600


def test_a_file_with_another_content_is_forgotten_no_more(path):
    found = loaded(path)
    found.add_file("memory/a.md", sha("a"))
    assert found.check_excluded("memory/a.md", sha("a"))
    assert not found.check_excluded("memory/a.md", sha("changed"))
    for each in (found, loaded(path)):
        assert not each.check_excluded("memory/a.md", sha("a"))


def test_the_same_path_forgotten_again_holds_the_newer_content(path):
    found = loaded(path)
    found.add_file("memory/a.md", sha("a"))
    found.add_file("memory/a.md", sha("b"))
    assert loaded(path).excludes("memory/a.md", sha("b"))
    assert not loaded(path).excludes("memory/a.md", sha("a"))


@pytest.mark.parametrize("line", [b"garbage", b"{}", b"[]", b"null", b"1", b'{"path":"x"}', b"\xff\xfe"])
def test_a_damaged_line_is_reported_and_the_others_count(path, line):
    found = loaded(path)
    found.add_file("memory/a.md", sha("a"))
    path.write_bytes(line + b"\n" + path.read_bytes())
    again = loaded(path)
    assert "1 lines" in again.problem
    assert again.excludes("memory/a.md", sha("a"))


def test_a_file_that_cannot_be_read_is_reported(path):
    path.mkdir(parents=True)
    assert "cannot be read" in loaded(path).problem


@pytest.fixture
def fail_fsync(monkeypatch):
    def fail_fsync(number):
        def fsync(_fd):
            raise OSError(number, "no")

        monkeypatch.setattr(forgotten.os, "fsync", fsync)

    return fail_fsync


@pytest.mark.parametrize(
    ("number", "error"), [(28, DiskFull), (122, DiskFull), (30, IndexReadOnly), (13, IndexReadOnly)]
)
def test_a_forget_that_cannot_be_recorded_has_not_happened(path, fail_fsync, number, error):
    found = loaded(path)
    found.add_session("abc")

    fail_fsync(number)
    for add in (lambda: found.add_file("memory/a.md", sha("a")), lambda: found.add_session("def")):
        with pytest.raises(error, match="nothing was forgotten"):
            add()
    assert not found.excludes("memory/a.md", sha("a"))
    assert not found.has_session("def")
    assert loaded(path).has_session("abc")


def test_a_change_counts_even_where_it_cannot_be_written_down(path, fail_fsync):
    found = loaded(path)
    found.add_file("memory/a.md", sha("a"))

    fail_fsync(28)
    assert not found.check_excluded("memory/a.md", sha("changed"))


def test_many_threads_lose_nothing(path):
    found = loaded(path)
    threads = [threading.Thread(target=found.add_session, args=(str(n),)) for n in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(loaded(path).has_session(str(n)) for n in range(16))
