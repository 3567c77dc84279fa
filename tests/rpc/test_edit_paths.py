"""Every path that leads outside, in every field of the calls of edits: no byte is read, written or deleted there.

The spellings and links are those of test_path_attacks.py.
"""

import asyncio

import pytest

from memoryd.v1 import memory_service_pb2 as pb
from rpc.editing import EDITS, all_versions, content, digest, history, move, restore, write
from rpc.test_path_attacks import (
    LINKS,
    SECRET,
    SPELLINGS,
    attack,
    attack_home,
    deep,
    placed,
    swapping,
    told,
    tree,
)
from rpc.wire import check_refused

pytestmark = pytest.mark.attacks

__all__ = ["attack_home", "deep"]

SEEN = digest(SECRET)
VERSION = "version"

# The caller even knows the hash of the file outside.
FIELDS = {
    "MemoryWrite.path, creating": lambda name: ("MemoryWrite", pb.MemoryWriteRequest(path=name, content="overwritten")),
    "MemoryWrite.path, replacing": lambda name: (
        "MemoryWrite",
        pb.MemoryWriteRequest(path=name, expected_sha256=SEEN, content="overwritten"),
    ),
    "MemoryWrite.path, inserting": lambda name: (
        "MemoryWrite",
        pb.MemoryWriteRequest(path=name, expected_sha256=SEEN, insert={"text": "overwritten"}),
    ),
    "MemoryWrite.path, deleting": lambda name: (
        "MemoryWrite",
        pb.MemoryWriteRequest(path=name, expected_sha256=SEEN, delete_file={}),
    ),
    "MemoryMove.path": lambda name: (
        "MemoryMove",
        pb.MemoryMoveRequest(path=name, new_path="memory/stolen.md", expected_sha256=SEEN),
    ),
    "MemoryMove.new_path": lambda name: (
        "MemoryMove",
        pb.MemoryMoveRequest(path="memory/mine.md", new_path=name, expected_sha256=digest("mine\n")),
    ),
    "MemoryRestore.path": lambda name: (
        "MemoryRestore",
        pb.MemoryRestoreRequest(version_id=VERSION, path=name, expected_sha256=SEEN),
    ),
    "MemoryRestore.path, creating": lambda name: (
        "MemoryRestore",
        pb.MemoryRestoreRequest(version_id=VERSION, path=name),
    ),
    "MemoryHistory.path": lambda name: ("MemoryHistory", pb.MemoryHistoryRequest(path=name, include_diffs=True)),
}
CREATING = {"MemoryWrite.path, creating", "MemoryMove.new_path", "MemoryRestore.path, creating"}
# The history of a path is looked up by its name and touches no file.
NAMING = {"MemoryHistory.path"}


@pytest.fixture
async def running(serve, attack_home):
    """Start a daemon with a file of its own, and a version of it that can be restored."""
    running = await serve(EDITS)
    await running.synced()
    await write(running, "memory/mine.md", content="older\n")
    running.version = (await write(running, "memory/mine.md", "older\n", content="mine\n")).version_id
    return running


def fields_of(running, home, names):
    """Return the fields with the ID of the version that can be restored. Each attack finds the file to move."""

    def prepared(make):
        def made(name):
            (home.workspace / "memory" / "mine.md").write_bytes(b"mine\n")
            method, request = make(name)
            if getattr(request, "version_id", "") == VERSION:
                request.version_id = running.version
            return method, request

        return made

    return {name: prepared(FIELDS[name]) for name in names}


async def test_no_spelling_of_a_path_leads_an_edit_outside(running, deep):
    others = fields_of(running, deep, FIELDS.keys() - CREATING - NAMING)
    await attack(running, deep, others, SPELLINGS, may_abort=True)
    # Odd names below memory/ are names like others, and are created there.
    creating = fields_of(running, deep, CREATING | NAMING)
    await attack(running, deep, creating, SPELLINGS, may_succeed=CREATING | NAMING, may_abort=True)


async def test_no_link_in_any_part_of_a_path_is_followed_by_an_edit(running, attack_home):
    codes = await attack(running, attack_home, fields_of(running, attack_home, FIELDS.keys() - NAMING), LINKS)
    odd = {key: code for key, code in codes.items() if code != "PERMISSION_DENIED"}
    assert odd == {}
    assert content(attack_home, "memory/mine.md") == b"mine\n"
    assert len(await all_versions(running)) == 2


async def test_the_history_of_a_path_outside_is_refused(running, attack_home):
    for name in ("../outside/note.md", "OUT/note.md", "/etc/passwd.md", "memory/../a.md", "memory/a.txt", "notes/a.md"):
        await check_refused(history(running, placed(attack_home, name)), "PERMISSION_DENIED", "PATH_NOT_ALLOWED")


async def test_files_that_can_only_be_read_are_not_edited(running, serve, home):
    """Extra paths, DREAMS.md and transcripts are not the workspace's own memory."""
    dreams = home.put("DREAMS.md", "a dream\n")
    for path, text in (("DREAMS.md", "a dream\n"), ("notes/a.md", "a crane\n"), ("sessions/own.jsonl", "")):
        for call in (
            write(running, path, text, content="x"),
            write(running, path, text, delete_file={}),
            move(running, path, "memory/b.md", text),
            move(running, "memory/mine.md", path, "mine\n"),
            restore(running, running.version, text, path=path),
        ):
            await check_refused(call, "PERMISSION_DENIED", "PATH_NOT_ALLOWED")
    assert dreams.read_text() == "a dream\n"
    assert content(home, "notes/a.md") == b"a crane\n"


async def test_a_restore_refuses_a_path_that_has_become_a_link(running, attack_home):
    outside = attack_home.root / "outside" / "note.md"
    (attack_home.workspace / "memory" / "mine.md").unlink()
    (attack_home.workspace / "memory" / "mine.md").symlink_to(outside)
    for seen in (None, SECRET, "mine\n"):
        await check_refused(restore(running, running.version, seen), "PERMISSION_DENIED", "PATH_NOT_ALLOWED")
    assert outside.read_text() == SECRET


ROUNDS = [20, pytest.param(250, marks=[pytest.mark.slow, pytest.mark.timeout(300)])]


@pytest.mark.parametrize("calls", ROUNDS)
@pytest.mark.parametrize("part", ["memory", "memory/real", "memory/real/inner"])
async def test_a_folder_that_is_swapped_for_a_link_leads_no_edit_outside(serve, attack_home, part, calls):
    home = attack_home
    outside = home.root / "outside"
    for folder in ("real", "real/inner", "inner"):
        (outside / folder).mkdir(exist_ok=True)
    for folder in ("", "real/", "inner/", "real/inner/"):
        (outside / f"{folder}b.md").write_text(SECRET)
    path = f"{part}/b.md"
    home.put(path, "mine\n")
    running = await serve(EDITS)
    await running.synced()
    beyond = {file: file.read_bytes() for file in outside.rglob("*") if file.is_file()}
    codes = set()

    async def one(number):
        seen = digest("mine\n")
        for method, request in (
            ("MemoryWrite", pb.MemoryWriteRequest(path=f"{part}/new{number}.md", content="mine\n")),
            ("MemoryWrite", pb.MemoryWriteRequest(path=path, expected_sha256=seen, content="mine\n")),
            ("MemoryWrite", pb.MemoryWriteRequest(path=path, expected_sha256=SEEN, content="overwritten\n")),
            ("MemoryWrite", pb.MemoryWriteRequest(path=path, expected_sha256=SEEN, delete_file={})),
            (
                "MemoryMove",
                pb.MemoryMoveRequest(path=path, new_path=f"{part}/moved{number}.md", expected_sha256=SEEN),
            ),
            (
                "MemoryMove",
                pb.MemoryMoveRequest(
                    path=f"{part}/new{number}.md", new_path=f"{part}/m{number}.md", expected_sha256=seen
                ),
            ),
            ("MemoryWrite", pb.MemoryWriteRequest(path=f"{part}/m{number}.md", expected_sha256=seen, delete_file={})),
        ):
            code, words = await told(running, method, request)
            assert SECRET not in words, (method, words)
            codes.add((method, code))

    with swapping(home.workspace / part, outside) as rounds:
        for start in range(0, calls, 4):
            await asyncio.gather(*(one(start + number) for number in range(4)))
    assert len(rounds) > calls
    assert running.logged("fail-call") == []
    assert {code for _, code in codes} <= {"OK", "PERMISSION_DENIED", "ABORTED", "NOT_FOUND", "UNAVAILABLE"}, codes
    assert {("MemoryWrite", "OK"), ("MemoryWrite", "PERMISSION_DENIED")} <= codes or calls < 100, codes
    assert {file: file.read_bytes() for file in outside.rglob("*") if file.is_file()} == beyond
    versions = await all_versions(running)
    assert SEEN not in {version.before_sha256 for version in versions}
    assert not list(outside.rglob(".*"))


def names_in(home):
    return {file.name for file in (home.workspace / "memory").iterdir()}


async def test_a_write_leaves_no_other_file_behind(running, attack_home):
    before = tree(attack_home)
    names = names_in(attack_home)
    seen = "mine\n"
    for number in range(5):
        await write(running, "memory/mine.md", seen, content=f"{number}\n")
        seen = f"{number}\n"
    await move(running, "memory/mine.md", "memory/moved.md", seen)
    await write(running, "memory/moved.md", seen, delete_file={})
    assert names_in(attack_home) == names - {"mine.md"}
    assert tree(attack_home) == before
