import os
import resource
import socket
import stat
import threading
import time
from contextlib import contextmanager
from pathlib import Path

import pytest

from deep_folders import MORE_THAN_RECURSION, deep_folders
from memoryd_server.errors import FileNotFound, IndexUnavailable, PathNotAllowed
from memoryd_server.sources.discover import discover_files
from memoryd_server.sources.files import (
    FileTooLarge,
    open_directory,
    open_file,
    open_for_append,
    read_file,
    stat_file,
    stat_files,
)
from memoryd_server.sources.roots import Location, Roots, resolve_for_append, resolve_path

LIMIT = 1 << 20


@contextmanager
def more_descriptors(count):
    """Let this process open at most `count` further files until the block ends."""
    most = resource.getrlimit(resource.RLIMIT_NOFILE)
    probe = os.open("/", os.O_RDONLY)
    os.close(probe)
    resource.setrlimit(resource.RLIMIT_NOFILE, (probe + count, most[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, most)


def read(roots: Roots, path: str, limit: int = LIMIT) -> bytes:
    return read_file(resolve_path(roots, path), limit)[0]


def append(roots: Roots, path: str, data: bytes) -> None:
    descriptor = open_for_append(resolve_for_append(roots, path))
    try:
        os.write(descriptor, data)
    finally:
        os.close(descriptor)


def refuse_everywhere(roots: Roots, path: str) -> None:
    location = resolve_path(roots, path)
    for use in (lambda: read_file(location, LIMIT), lambda: stat_file(location), lambda: open_for_append(location)):
        started = time.monotonic()
        with pytest.raises(PathNotAllowed):
            use()
        assert time.monotonic() - started < 1
    assert stat_files([location]) == [None]


def test_a_file_is_read_with_the_stat_that_discovery_saw(workspace, roots):
    (workspace / "memory" / "a.md").write_bytes(b"one\xff\r\n")
    data, status = read_file(resolve_path(roots, "memory/a.md"), LIMIT)
    (found,) = discover_files(roots).files
    assert data == b"one\xff\r\n"
    assert status == found.stat == stat_file(found)
    assert read_file(found, LIMIT) == (data, status)


@pytest.mark.attacks
def test_files_below_any_number_of_folders_are_looked_at_without_recursion(workspace):
    parts = ("memory", *["d"] * MORE_THAN_RECURSION)
    (workspace / "memory" / "d").mkdir()
    (workspace / "memory" / "d" / "x.md").touch()
    with deep_folders(workspace / "memory" / "d", MORE_THAN_RECURSION - 1, "x.md"):
        files = [Location("x", os.fspath(workspace), (*parts[:depth], "x.md")) for depth in (2, len(parts), 5)]
        found = stat_files(files)
    assert [each is not None for each in found] == [True, True, False]


@pytest.mark.attacks
def test_a_look_at_files_of_many_deep_folders_holds_few_descriptors(workspace):
    files = []
    for number in range(20):
        folder = workspace.joinpath("memory", f"n{number}", *"abcdefghij")
        folder.mkdir(parents=True)
        (folder / "x.md").touch()
        files.append(Location("x", os.fspath(workspace), (*folder.relative_to(workspace).parts, "x.md")))
    with more_descriptors(20):
        found = stat_files(files)
    assert None not in found


@pytest.mark.faults
def test_files_are_not_taken_for_missing_because_descriptors_ran_out(workspace, roots):
    (workspace / "memory" / "a.md").touch()
    with more_descriptors(0), pytest.raises(IndexUnavailable, match="Too many open files"):
        stat_files([resolve_path(roots, "memory/a.md")])


def test_many_files_are_looked_at_as_one_is(workspace, outside, roots):
    paths = ["MEMORY.md", "memory/a.md", "memory/sub/b.md", "memory/missing.md", "memory/no/such.md", "memory/link.md"]
    (workspace / "memory" / "sub").mkdir()
    for path in paths[:3]:
        (workspace / path).write_text(path)
    (workspace / "memory" / "link.md").symlink_to(outside / "secret.md")
    found = stat_files([resolve_path(roots, path) for path in paths])
    assert found == [*(stat_file(resolve_path(roots, path)) for path in paths[:3]), None, None, None]
    assert None not in found[:3]
    assert stat_files([]) == []


def test_an_empty_file_is_read(workspace, roots):
    (workspace / "MEMORY.md").touch()
    assert read(roots, "MEMORY.md") == b""


@pytest.mark.parametrize("path", ["MEMORY.md", "memory/a.md", "memory/no/such/a.md", "memory/" + "x" * 300 + ".md"])
def test_a_missing_file_is_not_found_rather_than_refused(roots, path):
    with pytest.raises(FileNotFound) as caught:
        read(roots, path)
    assert caught.value.metadata == {"path": path}
    assert stat_file(resolve_path(roots, path)) is None


def test_a_missing_workspace_has_no_files(tmp_path):
    roots = Roots(os.fspath(tmp_path / "none"))
    with pytest.raises(FileNotFound):
        read(roots, "MEMORY.md")
    with pytest.raises(FileNotFound):
        append(roots, "MEMORY.md", b"")


def test_a_file_above_the_limit_is_refused_with_its_size(workspace, roots):
    (workspace / "MEMORY.md").write_bytes(b"12345")
    assert read(roots, "MEMORY.md", 5) == b"12345"
    with pytest.raises(FileTooLarge, match="5 bytes, more than the 4 allowed"):
        read(roots, "MEMORY.md", 4)


def test_a_link_as_the_file_is_refused(workspace, outside, roots):
    (workspace / "MEMORY.md").symlink_to(outside / "secret.md")
    refuse_everywhere(roots, "MEMORY.md")


def test_a_link_to_a_file_inside_is_refused_too(workspace, roots):
    (workspace / "memory" / "a.md").write_text("a")
    (workspace / "MEMORY.md").symlink_to("memory/a.md")
    refuse_everywhere(roots, "MEMORY.md")


def test_a_dangling_link_is_not_written_through(workspace, outside, roots):
    (workspace / "MEMORY.md").symlink_to(outside / "new.md")
    refuse_everywhere(roots, "MEMORY.md")
    assert not (outside / "new.md").exists()


def test_a_link_as_a_folder_on_the_way_is_refused(workspace, outside, roots):
    (workspace / "memory" / "link").symlink_to(outside)
    refuse_everywhere(roots, "memory/link/secret.md")
    refuse_everywhere(roots, "memory/link/no-such.md")


def test_a_link_as_the_memory_folder_is_refused(tmp_path, outside):
    (tmp_path / "ws").mkdir()
    (tmp_path / "ws" / "memory").symlink_to(outside)
    refuse_everywhere(Roots(os.fspath(tmp_path / "ws")), "memory/secret.md")


def test_a_link_as_an_extra_path_is_refused(workspace, outside, tmp_path):
    (tmp_path / "extra").symlink_to(outside)
    refuse_everywhere(Roots(os.fspath(workspace), ("../extra",)), "../extra/secret.md")


def test_an_extra_path_inside_the_workspace_may_not_lead_through_a_link(workspace, outside):
    (outside / "sub").mkdir()
    (outside / "sub" / "x.md").write_text("secret")
    (workspace / "link").symlink_to(outside)
    refuse_everywhere(Roots(os.fspath(workspace), ("link/sub",)), "link/sub/x.md")


def test_links_on_the_way_to_the_workspace_are_the_owner_s_choice(workspace, tmp_path):
    (workspace / "MEMORY.md").write_text("mine")
    (tmp_path / "link").symlink_to(workspace)
    roots = Roots(os.fspath(tmp_path / "link"))
    assert read(roots, "MEMORY.md") == b"mine"
    append(roots, "MEMORY.md", b"!")
    assert read(roots, "MEMORY.md") == b"mine!"


def test_a_fifo_is_refused_without_waiting_for_a_writer(workspace, roots):
    os.mkfifo(workspace / "MEMORY.md")
    refuse_everywhere(roots, "MEMORY.md")


def test_a_socket_is_refused(workspace, roots, monkeypatch):
    monkeypatch.chdir(workspace)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind("MEMORY.md")
        refuse_everywhere(roots, "MEMORY.md")


def test_a_device_is_refused(workspace, roots):
    try:
        os.mknod(workspace / "MEMORY.md", stat.S_IFCHR | 0o666, os.makedev(1, 5))
    except OSError:
        pytest.skip("device nodes cannot be made here")
    refuse_everywhere(roots, "MEMORY.md")


def test_a_folder_named_like_a_note_is_refused(workspace, roots):
    (workspace / "memory" / "x.md").mkdir()
    refuse_everywhere(roots, "memory/x.md")


def test_a_file_used_as_a_folder_is_refused(workspace, roots):
    (workspace / "memory" / "x.md").touch()
    refuse_everywhere(roots, "memory/x.md/y.md")


def test_appending_makes_the_file_and_its_folders_with_the_umask_s_modes(tmp_path):
    (tmp_path / "ws").mkdir()
    roots = Roots(os.fspath(tmp_path / "ws"))
    old = os.umask(0o027)
    try:
        append(roots, "memory/2026/02/a.md", b"one\n")
    finally:
        os.umask(old)
    append(roots, "memory/2026/02/a.md", b"two\n")
    file = tmp_path / "ws" / "memory" / "2026" / "02" / "a.md"
    assert file.read_bytes() == b"one\ntwo\n"
    assert stat.S_IMODE(file.stat().st_mode) == 0o640
    assert stat.S_IMODE(file.parent.stat().st_mode) == 0o750


def test_the_descriptor_for_appending_can_be_read(workspace, roots):
    (workspace / "MEMORY.md").write_text("abc")
    descriptor = open_for_append(resolve_for_append(roots, "MEMORY.md"))
    try:
        assert os.pread(descriptor, 10, 0) == b"abc"
    finally:
        os.close(descriptor)


def test_a_forbidden_file_is_the_operating_system_s_error(workspace, roots, forbid):
    (workspace / "MEMORY.md").touch()
    forbid(workspace / "MEMORY.md")
    with pytest.raises(PermissionError):
        read(roots, "MEMORY.md")


def test_descriptors_are_not_inherited_and_not_leaked(workspace, roots):
    (workspace / "memory" / "x.md").touch()
    (workspace / "MEMORY.md").symlink_to("/etc/passwd")
    before = len(list(Path("/proc/self/fd").iterdir()))
    descriptor = open_file(roots.base(), ("memory", "x.md"))
    assert not os.get_inheritable(descriptor)
    os.close(descriptor)
    os.close(open_directory(roots.base(), ("memory",)))
    for path in ("MEMORY.md", "memory/none.md", "memory/x.md/y.md"):
        with pytest.raises((PathNotAllowed, FileNotFound)):
            read(roots, path)
    assert len(list(Path("/proc/self/fd").iterdir())) == before


def test_a_file_that_never_holds_still_is_given_as_it_was_with_a_stat_that_looks_stale(workspace, roots):
    path = workspace / "MEMORY.md"
    path.write_bytes(b"x" * 4_000_000)
    done = threading.Event()

    def grow() -> None:
        with path.open("ab") as stream:
            while not done.is_set():
                stream.write(b"y")
                stream.flush()

    writer = threading.Thread(target=grow)
    writer.start()
    try:
        data, status = read_file(resolve_path(roots, "MEMORY.md"), 1 << 30)
    finally:
        done.set()
        writer.join()
    assert data.startswith(b"x" * 4_000_000)
    assert status.size_bytes <= path.stat().st_size


def test_a_folder_swapped_for_a_link_never_yields_outside_bytes(workspace, outside, roots):
    inside = workspace / "memory" / "d"
    inside.mkdir()
    (inside / "secret.md").write_text("mine")
    done = threading.Event()
    swapper = threading.Thread(target=swap_until, args=(done, inside, outside))
    swapper.start()
    outcomes = set()
    try:
        deadline, rounds = time.monotonic() + 30, 0
        # On a busy machine a thread may meet the folder in one state only for a long while.
        while rounds < 2_000 or (b"mine" not in outcomes and time.monotonic() < deadline):
            rounds += 1
            try:
                outcomes.add(read(roots, "memory/d/secret.md"))
            except (PathNotAllowed, FileNotFound) as refusal:
                outcomes.add(type(refusal))
    finally:
        done.set()
        swapper.join()
    assert outcomes <= {b"mine", PathNotAllowed, FileNotFound}
    assert b"mine" in outcomes


def swap_until(done: threading.Event, inside: Path, outside: Path) -> None:
    parked = inside.with_name("parked")
    while not done.is_set():
        inside.rename(parked)
        inside.symlink_to(outside)
        inside.unlink()
        parked.rename(inside)
