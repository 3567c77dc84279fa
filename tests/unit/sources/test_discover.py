import os
import socket
import threading
import time
from pathlib import Path

import pytest

from deep_folders import MORE_THAN_RECURSION, deep_folders
from memoryd_server.errors import FileNotFound, PathNotAllowed
from memoryd_server.model import Source
from memoryd_server.sources.discover import discover_files, has_memory_files
from memoryd_server.sources.files import read_file
from memoryd_server.sources.roots import MOST_FOLDERS, ExtraPath, Roots, resolve_path


def write(folder: Path, *names: str) -> None:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(os.fsencode(name))


def check(roots: Roots, *paths: str, issues: tuple[str, ...] = ()) -> None:
    discovery = discover_files(roots)
    assert [file.path for file in discovery.files] == list(paths)
    assert discovery.failures == ()
    assert len(discovery.issues) == len(issues), discovery.issues
    for issue, words in zip(discovery.issues, issues, strict=True):
        assert words in issue


def test_the_memory_files_of_a_workspace_are_found_in_path_order(workspace, roots):
    write(workspace, "MEMORY.md", "memory.md", "memory/b.md", "memory/a/z.md", "memory/a.md", "README.md", "src/x.md")
    check(roots, "MEMORY.md", "memory.md", "memory/a.md", "memory/a/z.md", "memory/b.md")


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("MEMORY.md", True),
        ("USER.md", True),
        ("memory/a/b/z.md", True),
        ("memory/a.txt", False),
        ("README.md", False),
        ("src/memory/a.md", False),
    ],
)
def test_whether_a_workspace_has_memory_files(workspace, name, found):
    write(workspace, name)
    assert has_memory_files(str(workspace)) is found


def test_a_workspace_without_memory_files_or_with_links_alone_has_none(workspace, tmp_path):
    assert not has_memory_files(str(tmp_path / "missing"))
    write(tmp_path, "elsewhere/a.md")
    (workspace / "MEMORY.md").symlink_to(tmp_path / "elsewhere" / "a.md")
    (workspace / "memory").mkdir(exist_ok=True)
    (workspace / "memory" / "linked").symlink_to(tmp_path / "elsewhere")
    assert not has_memory_files(str(workspace))


def test_a_file_s_entry_says_where_it_is_and_what_stat_says(workspace, roots):
    write(workspace, "memory/a/z.md")
    (file,) = discover_files(roots).files
    status = (workspace / "memory/a/z.md").stat()
    assert (file.source, file.root, file.parts) == (Source.MEMORY, os.fspath(workspace), ("memory", "a", "z.md"))
    assert (file.stat.size_bytes, file.stat.mtime_ns) == (status.st_size, status.st_mtime_ns)
    assert (file.stat.device, file.stat.inode, file.stat.ctime_ns) == (
        status.st_dev,
        status.st_ino,
        status.st_ctime_ns,
    )


def test_dot_folders_and_node_modules_are_walked(workspace, roots):
    write(workspace, "memory/.hidden/a.md", "memory/node_modules/b.md", "memory/.c.md")
    check(roots, "memory/.c.md", "memory/.hidden/a.md", "memory/node_modules/b.md")


def test_only_the_exact_suffix_counts(workspace, roots):
    write(
        workspace,
        "memory/a.MD",
        "memory/b.md~",
        "memory/c.markdown",
        "memory/.d.md.swp",
        "memory/e.md.tmp",
        "memory/f.md",
    )
    check(roots, "memory/f.md")


def test_a_folder_named_like_a_note_is_walked(workspace, roots):
    write(workspace, "memory/x.md/y.md")
    check(roots, "memory/x.md/y.md")


def test_links_are_ignored_at_every_level(workspace, outside, roots):
    write(workspace, "memory/a.md")
    (workspace / "memory" / "link.md").symlink_to(outside / "secret.md")
    (workspace / "memory" / "folder").symlink_to(outside)
    (workspace / "memory" / "loop").symlink_to(workspace)
    check(roots, "memory/a.md")


def test_a_link_as_long_term_memory_is_skipped_and_said(workspace, outside, roots):
    (workspace / "MEMORY.md").symlink_to(outside / "secret.md")
    check(roots, issues=("MEMORY.md is a symbolic link", "no memory files found"))


def test_pipes_sockets_and_folders_are_no_long_term_memory(workspace, roots, monkeypatch):
    monkeypatch.chdir(workspace)
    (workspace / "MEMORY.md").mkdir()
    os.mkfifo(workspace / "memory" / "x.md")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind("memory.md")
        check(roots, issues=("MEMORY.md is a folder", "memory.md is a device, a pipe or a socket", "no memory files"))


def test_a_missing_workspace_is_an_issue(tmp_path):
    check(Roots(os.fspath(tmp_path / "none")), issues=("does not exist", "no memory files"))


def test_a_missing_memory_folder_is_an_issue(tmp_path):
    write(tmp_path, "MEMORY.md")
    check(Roots(os.fspath(tmp_path)), "MEMORY.md", issues=("no memory folder",))


def test_a_workspace_that_is_an_extra_path_needs_no_memory_folder(tmp_path):
    write(tmp_path, "garden/a.md")
    check(Roots(os.fspath(tmp_path), (ExtraPath(".", "**/*.md"),)), "garden/a.md")


def test_a_link_or_a_file_as_the_memory_folder_is_an_issue(tmp_path, outside):
    for name, make in (("a", lambda path: path.symlink_to(outside)), ("b", lambda path: path.write_text(""))):
        write(tmp_path / name, "MEMORY.md")
        make(tmp_path / name / "memory")
        check(Roots(os.fspath(tmp_path / name)), "MEMORY.md", issues=("not a folder: skipped",))


def test_extra_paths_may_be_folders_or_files_absolute_or_relative(workspace, tmp_path):
    write(tmp_path, "team/a.md", "team/sub/b.md", "other/c.md", "other/d.md", "workspace/notes/e.md")
    roots = Roots(os.fspath(workspace), ("../team", os.fspath(tmp_path / "other" / "c.md"), "notes"))
    check(roots, "../other/c.md", "../team/a.md", "../team/sub/b.md", "notes/e.md")
    for file in discover_files(roots).files:
        assert read_file(resolve_path(roots, file.path), 100) == read_file(file, 100)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda path: None, "is missing"),
        (lambda path: path.write_text("x"), "does not end in .md"),
        (lambda path: path.symlink_to("/"), "is a symbolic link"),
        (os.mkfifo, "is a device, a pipe or a socket"),
    ],
)
def test_an_extra_path_that_gives_nothing_is_an_issue(workspace, tmp_path, make, words):
    write(workspace, "memory/a.md")
    make(tmp_path / "extra")
    check(Roots(os.fspath(workspace), ("../extra",)), "memory/a.md", issues=(words,))


def test_overlapping_roots_give_each_file_once(workspace, tmp_path):
    write(workspace, "MEMORY.md", "memory/a.md", "memory/sub/b.md", "c.md")
    roots = Roots(os.fspath(workspace), ("memory", "memory/sub", "memory/a.md", ".", "..", os.fspath(workspace)))
    check(roots, "MEMORY.md", "c.md", "memory/a.md", "memory/sub/b.md")


def test_of_hard_links_the_first_candidate_and_then_the_first_name_wins(workspace, tmp_path):
    write(workspace, "memory/b.md", "extra/z.md")
    for name in ("memory/c.md", "memory/a.md", "extra/a.md"):
        os.link(workspace / "memory/b.md", workspace / name)
    os.link(workspace / "extra/z.md", workspace / "MEMORY.md")
    check(Roots(os.fspath(workspace), ("extra",)), "MEMORY.md", "memory/a.md")


def test_a_name_that_is_no_utf8_is_a_failure_with_a_printable_path(workspace, roots):
    write(workspace, "memory/ok.md")
    write(workspace, os.fsdecode(b"memory/\xff/\xe9.md"))
    discovery = discover_files(roots)
    assert [file.path for file in discovery.files] == ["memory/ok.md"]
    (failure,) = discovery.failures
    assert failure.path == "memory/\\xff/\\xe9.md"
    assert "UTF-8" in failure.error
    failure.path.encode()


def test_a_name_that_no_request_could_give_is_a_failure(workspace, roots):
    write(workspace, "memory/..\\..\\x.md", "memory/fine\\x.md")
    discovery = discover_files(roots)
    assert [file.path for file in discovery.files] == ["memory/fine\\x.md"]
    assert [failure.path for failure in discovery.failures] == ["memory/..\\..\\x.md"]


def test_a_forbidden_folder_is_a_failure(workspace, roots, forbid):
    write(workspace, "memory/locked/a.md")
    forbid(workspace / "memory" / "locked")
    (failure,) = discover_files(roots).failures
    (workspace / "memory" / "locked").chmod(0o700)
    assert failure.path == "memory/locked"
    assert "cannot be read: Permission denied" in failure.error


def test_a_forbidden_extra_path_is_a_failure_and_an_issue(workspace, tmp_path, forbid):
    write(tmp_path, "locked/extra/a.md")
    forbid(tmp_path / "locked")
    discovery = discover_files(Roots(os.fspath(workspace), ("../locked/extra",)))
    (tmp_path / "locked").chmod(0o700)
    assert [failure.path for failure in discovery.failures] == ["../locked/extra"]
    assert "unreadable" in discovery.issues[0]


def test_files_below_the_most_folders_are_found_and_deeper_folders_are_reported(workspace, roots):
    # memory/ is the first of the folders.
    with deep_folders(workspace / "memory", MOST_FOLDERS - 1, "x.md"):
        (file,) = discover_files(roots).files
        assert len(file.parts) == MOST_FOLDERS + 1
        assert read_file(file, 100)[0]
        assert discover_files(roots).issues == ()
    with deep_folders(workspace / "memory", MOST_FOLDERS, "x.md"):
        discovery = discover_files(roots)
        assert (discovery.files, discovery.unseen[0].device) == ((), (workspace / "memory").stat().st_dev)
        assert f"more than {MOST_FOLDERS} levels deep" in discovery.issues[0]
        assert f"memory{'/d' * MOST_FOLDERS}" in discovery.issues[0]


@pytest.mark.attacks
def test_a_walk_over_folders_beyond_the_recursion_limit_is_short(workspace, roots):
    write(workspace, "memory/a.md")
    with deep_folders(workspace / "memory", MORE_THAN_RECURSION, "x.md"):
        began = time.process_time()
        (file,) = discover_files(roots).files
        assert time.process_time() - began < 0.3
    assert file.path == "memory/a.md"


def test_ignored_folders_that_are_too_deep_are_not_reported(workspace, roots):
    write(workspace, "memory/a.md")
    (workspace / ".memoryignore").write_text("memory/d/\n")
    with deep_folders(workspace / "memory", MOST_FOLDERS, "x.md"):
        assert discover_files(roots).issues == ()


def test_an_extra_path_that_is_a_file_below_too_many_folders_is_reported(workspace):
    write(workspace, "memory/a.md")
    extra = "/".join(["d"] * (MOST_FOLDERS + 1)) + "/x.md"
    with deep_folders(workspace, MOST_FOLDERS + 1, "x.md"):
        (issue,) = discover_files(Roots(os.fspath(workspace), (extra,))).issues
    assert f"more than {MOST_FOLDERS} folders: skipped" in issue


def test_files_and_folders_that_vanish_during_a_listing_are_left_out(workspace, roots):
    write(workspace, "memory/stays.md")
    done = threading.Event()

    def churn() -> None:
        while not done.is_set():
            write(workspace, *(f"memory/d{number}/x.md" for number in range(20)))
            for number in range(20):
                (workspace / f"memory/d{number}/x.md").unlink()
                (workspace / f"memory/d{number}").rmdir()

    churner = threading.Thread(target=churn)
    churner.start()
    try:
        for _ in range(200):
            discovery = discover_files(roots)
            assert "memory/stays.md" in {file.path for file in discovery.files}
            assert (discovery.failures, discovery.issues) == ((), ())
            read_what_is_left(discovery.files)
    finally:
        done.set()
        churner.join()


def read_what_is_left(files) -> None:
    for file in files:
        try:
            assert read_file(file, 100)[0].decode() in {file.path, ""}
        except (FileNotFound, PathNotAllowed):
            assert file.path != "memory/stays.md"


@pytest.mark.slow
def test_ten_thousand_files_are_found(workspace, roots):
    for number in range(10_000):
        folder = workspace / "memory" / f"d{number % 200}"
        if number < 200:
            folder.mkdir()
        (folder / f"{number}.md").touch()
    files = discover_files(roots).files
    assert len(files) == 10_000
    assert [file.path for file in files] == sorted(file.path for file in files)
