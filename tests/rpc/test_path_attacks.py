"""Every field that names a file, given whatever leads outside: no byte comes out, and none is written or deleted there.

A name may lead outside by its spelling, by a link in any of its parts, or by a folder that is swapped for a link while
it is walked. The rest of the paths is in test_error_table.py, and what they mean in tests/unit/sources.
"""

import asyncio
import contextlib
import ctypes
import os
import subprocess
import threading
import time
from pathlib import Path

import pytest

from fake_qmd.installs import make_fake
from memoryd.v1 import memory_service_pb2 as pb
from memoryd.v1 import sync_event_pb2
from rpc.agent_calls import call
from rpc.qmd_calls import qmd_settings
from rpc.wire import kinds_of, refusal

pytestmark = pytest.mark.attacks

SECRET = "the otter hides the key under the boathouse"
SPOKEN = '{"type":"message","message":{"role":"user","content":"' + SECRET + '"}}\n'
SESSIONS = {"memorySearch": {"experimental": {"sessionMemory": True}, "sources": ["memory", "sessions"]}}
# Of linux/fs.h and linux/fcntl.h.
EXCHANGE, AT_CWD = 2, -100
POST_COMPACTION = sync_event_pb2.SYNC_TRIGGER_POST_COMPACTION

# OUT stands for a folder outside, as an absolute path; UP for the way to it from the workspace.
SPELLINGS = [
    "OUT/note.md", "UP/note.md", "memory/../UP/note.md", "memory/real/../../UP/note.md", "./UP/note.md",
    "memory/./../UP/note.md", "/OUT/note.md", "//OUT/note.md", "memory//OUT/note.md", "file:OUT/note.md",
    "file://OUT/note.md", "~/outside/note.md", "$HOME/outside/note.md", "%2e%2e/outside/note.md", "memory/..%2foutside",
    "memory\\..\\..\\outside\\note.md", "memory/..\\..\\outside/note.md", "memory/\uff0e\uff0e/outside/note.md",
    "memory\u2215..\u2215note.md", "memory/\u202e/note.md", "memory/..", "memory/...", "..", ".", "/", "",
    "OUT/note.md\0memory/a.md", "memory/a.md\0", "memory/\0/a.md", "\0", "memory/a.md\n", "memory/a.md ",
    " memory/a.md", "MEMORY.MD", "Memory/a.md", "MEMORY/a.md", "memory/A.MD", "memory/a.Md", "mEmOrY.md",
    "memory/a.md/", "memory/a.md/.",
    "/dev/zero", "/dev/stdin", "/dev/fd/0", "/proc/self/environ", "/proc/self/fd/0", "/proc/self/root/OUT/note.md",
    "/proc/self/cwd/note.md", "memory/" + "../" * 900 + "OUT/note.md", "memory/" + "a/" * 200 + "a.md",
    "memory/" + "a" * 300 + ".md", "con.md", "memory/nul.md:stream", "memory/a.md::$DATA", "\\\\server\\share\\a.md",
    # Where qmd's results are read, and where transcripts are.
    "qmd", "qmd/", "qmd/notes", "qmd/notes/../../outside/note.md", "qmd/../outside/note.md", "qmd/OUT/note.md",
    "qmd//OUT/note.md", "qmd/notes//note.md", "qmd/notes/linked/note.md", "qmd/notes/link.md", "qmd/./notes/a.md",
    "QMD/notes/a.md", "qmd/memory/../../../outside/note.md",
    "qmd/../../state/memory/main.memoryd.sqlite", "qmd/nothing/a.md",
    "sessions/../../outside/spoken.jsonl", "sessions/link.jsonl", "sessions/OUT/spoken.jsonl",
    "sessions/spoken.jsonl\0", "Sessions/own.jsonl", "sessions//own.jsonl", "sessions/./own.jsonl", "sessions",
    # The daemon's own.
    "../state/memory/main.memoryd.sqlite", "STATE/memory/main.memoryd.sqlite", "STATE/memoryd.token",
    "STATE/memoryd.json5",
    "memory/../.git/config.md",
]  # fmt: skip
LINKS = [
    "memory/link.md", "memory/linked/note.md", "memory/linked/deep/note.md", "memory/real/up/outside/note.md",
    "memory/real/link.md", "memory/linked/../a.md", "memory/linked/new.md", "memory/broken.md", "memory/device.md",
    "memory/pipe.md", "memory/loop.md", "memory/loop/a.md", "memory/self.md", "memory.md",
    "OUT/../workspace/memory/linked/note.md", "memory/linked", "WORKSPACE/memory/linked/note.md",
]  # fmt: skip
TRANSCRIPTS = [
    "link.jsonl", "../../../../outside/spoken.jsonl", "OUT/spoken.jsonl", "linked/spoken.jsonl", "own.jsonl\0", "..",
    ".", "../sessions/own.jsonl", "./own.jsonl", "broken.jsonl", "OWN.JSONL", "pipe.jsonl", "folder.jsonl",
    "x/../own.jsonl", "spoken", "link", "", " ", "*", "own*", "%", "own.jsonl/",
]  # fmt: skip


@pytest.fixture
def attack_home(home):
    """A workspace, a sessions folder, and every way out of them."""
    outside = home.root / "outside"
    (outside / "deep").mkdir(parents=True)
    for name in ("note.md", "deep/note.md", "a.md"):
        (outside / name).write_text(SECRET)
    (outside / "spoken.jsonl").write_text(SPOKEN)
    home.write(a="the heron nests by the weir\n")
    home.put("notes/a.md", "a crane\n")
    home.say("own.jsonl", SPOKEN.replace(SECRET, "the weir is high"))
    memory, sessions = home.workspace / "memory", home.state_dir / "agents" / "main" / "sessions"
    (memory / "real").mkdir()
    for folder, suffix, target in ((memory, ".md", "note.md"), (sessions, ".jsonl", "spoken.jsonl")):
        (folder / f"link{suffix}").symlink_to(outside / target)
        (folder / f"broken{suffix}").symlink_to(outside / f"made{suffix}")
        (folder / "linked").symlink_to(outside)
        os.mkfifo(folder / f"pipe{suffix}")
        (folder / f"folder{suffix}").mkdir()
    (memory / "real" / "up").symlink_to("../../..")
    (memory / "real" / "link.md").symlink_to(outside / "note.md")
    (memory / "device.md").symlink_to("/dev/zero")
    (memory / "loop").symlink_to("loop")
    (memory / "loop.md").symlink_to("loop.md")
    (memory / "self.md").symlink_to("/proc/self/environ")
    (home.workspace / "memory.md").symlink_to(outside / "note.md")
    (home.workspace / "notes" / "link.md").symlink_to(outside / "note.md")
    (home.workspace / "notes" / "linked").symlink_to(outside)
    return home


@pytest.fixture(params=["builtin", "qmd"])
async def running(request, serve, attack_home, tmp_path):
    """Start the daemon with either backend."""
    settings = {"agents": {"defaults": SESSIONS}}
    if request.param == "qmd":
        attack_home.environ = {"PATH": os.defpath, "HOME": str(tmp_path)}
        paths = [{"path": "notes", "name": "notes"}]
        settings = qmd_settings(make_fake(tmp_path / "bin").path, paths=paths, memory_search=SESSIONS["memorySearch"])
    running = await serve(settings)
    await running.synced()
    return running


def placed(home, name):
    outside = str(home.root / "outside")
    name = name.replace("OUT", outside).replace("UP", "../outside").replace("STATE", str(home.state_dir))
    return name.replace("WORKSPACE", str(home.workspace))


def tree(home):
    """Everything that no call may touch: what is outside, and what of the workspace is not its memory."""
    inside = {str(home.workspace / "memory"), str(home.state_dir), str(home.root / "bin")}
    found = {}
    for folder, folders, files in os.walk(home.root):
        folders[:] = [name for name in folders if f"{folder}/{name}" not in inside]
        found |= {f"{folder}/{name}": Path(folder, name) for name in files}
    return {name: file.read_bytes() for name, file in found.items() if file.is_file()}


def kept(home):
    """The sessions folder: nothing is made in it, and deleted is only what may be."""
    return {file.name for file in (home.state_dir / "agents" / "main" / "sessions").iterdir()} - {"own.jsonl"}


async def told(running, method, request):
    """Whether a call succeeded, and all that it said."""
    made = call(running, method, request)
    try:
        if hasattr(made, "__aiter__"):
            events = [event async for event in made]
            assert kinds_of(events)[-1] == "completed"
            return "OK", str(events)
        return "OK", str(await made)
    except Exception as error:  # noqa: BLE001 -- only what gRPC says passes the decoding
        found = refusal(error)
        return found.code, f"{found.message} {found.metadata} {found.violations}"


FIELDS = {
    "MemoryGet.path": lambda name: ("MemoryGet", pb.MemoryGetRequest(path=name)),
    "MemoryAppend.path": lambda name: ("MemoryAppend", pb.MemoryAppendRequest(path=name, text="overwritten")),
    "MemoryForget.path": lambda name: ("MemoryForget", pb.MemoryForgetRequest(path=name)),
    "MemoryForget.path, deleting": lambda name: (
        "MemoryForget",
        pb.MemoryForgetRequest(path=name, delete_source=True),
    ),
}
SESSION_FIELDS = {
    "MemoryForget.session_id": lambda name: (
        "MemoryForget",
        pb.MemoryForgetRequest(session_id=name, delete_source=True),
    ),
    "SessionArchive.transcript": lambda name: ("SessionArchive", pb.SessionArchiveRequest(transcript=name)),
    "Sync.transcript": lambda name: ("Sync", pb.SyncRequest(transcript=name, trigger=POST_COMPACTION)),
}
OTHER_FIELDS = {
    "SessionArchive.slug": lambda name: (
        "SessionArchive",
        pb.SessionArchiveRequest(transcript="own.jsonl", slug=name[:200]),
    ),
    "MemoryAppend.heading": lambda name: (
        "MemoryAppend",
        pb.MemoryAppendRequest(path="memory/b.md", text="x", heading=name[:200]),
    ),
    "agent_id": lambda name: ("Status", pb.StatusRequest(agent_id=name)),
    "FlushDecision.time_zone": lambda name: ("FlushDecision", pb.FlushDecisionRequest(time_zone=name)),
    "SessionContext.session_key": lambda name: ("SessionContext", pb.SessionContextRequest(session_key=name[:900])),
    "MemoryGet.path of a transcript": lambda name: ("MemoryGet", pb.MemoryGetRequest(path=f"sessions/{name}")),
}


async def attack(running, home, fields, names, *, may_succeed=(), may_abort=False):
    """Sends every name in every field; returns the codes by field and name."""
    before, sessions = tree(home), kept(home)
    allowed = {"OK", "PERMISSION_DENIED", "NOT_FOUND", "INVALID_ARGUMENT", "FAILED_PRECONDITION"}
    allowed |= {"ABORTED"} if may_abort else set()
    codes = {}
    for field, made in fields.items():
        for name in names:
            method, request = made(placed(home, name))
            code, words = await told(running, method, request)
            assert SECRET not in words, (field, name, words)
            assert code in allowed, (field, name, code, words)
            assert code != "OK" or field in may_succeed, (field, name, words)
            codes[field, name] = code
    assert tree(home) == before
    assert kept(home) == sessions
    return codes


@pytest.fixture
def deep(attack_home):
    """What is made of a path of a thousand parts goes at the end: pytest's own clearing up does not reach as deep."""
    yield attack_home
    subprocess.run(["rm", "-rf", attack_home.workspace / "memory"], check=True, timeout=60)


async def test_no_spelling_of_a_path_leads_outside(running, deep):
    attack_home = deep
    appending = {"MemoryAppend.path"}
    await attack(running, attack_home, {field: FIELDS[field] for field in FIELDS if field not in appending}, SPELLINGS)
    # Odd names below memory/ are names like others, and are made there.
    await attack(running, attack_home, {field: FIELDS[field] for field in appending}, SPELLINGS, may_succeed=appending)


async def test_no_link_in_any_part_of_a_path_is_followed(running, attack_home):
    codes = await attack(running, attack_home, FIELDS, LINKS)
    odd = {key: code for key, code in codes.items() if code != "PERMISSION_DENIED"}
    # What is there is told from what is not only where nothing leads outside.
    assert odd == {}


async def test_no_name_of_a_transcript_leads_outside(running, attack_home):
    await attack(running, attack_home, SESSION_FIELDS, TRANSCRIPTS, may_succeed={"Sync.transcript"})


@pytest.mark.slow
async def test_fields_that_become_a_part_of_a_name_lead_nowhere_else(running, attack_home):
    before = tree(attack_home)
    for field, made in OTHER_FIELDS.items():
        for name in [*SPELLINGS, *LINKS, *TRANSCRIPTS]:
            _, words = await told(running, *made(placed(attack_home, name)))
            assert SECRET not in words, (field, name)
    assert tree(attack_home) == before
    archives = {file.parent for file in attack_home.workspace.rglob("*.md") if "heron" not in file.name}
    inside = {attack_home.workspace / name for name in ("memory", "memory/real", "notes", ".")}
    assert {folder.resolve() for folder in archives} <= {folder.resolve() for folder in inside}


def swap(one, other):
    """Lets two names change places in one step; skips the test where the system cannot."""
    exchange = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    if exchange is None or exchange(AT_CWD, os.fsencode(one), AT_CWD, os.fsencode(other), EXCHANGE):
        pytest.skip("names cannot change places in one step here")


@contextlib.contextmanager
def swapping(folder, outside):
    """Swaps a folder for a link to one outside and back, without rest, in a thread; yields how often, as a list."""
    done, rounds = threading.Event(), []
    link = folder.with_name(f"{folder.name}-link")
    link.symlink_to(outside)
    swap(folder, link)
    swap(folder, link)

    def run():
        while not done.is_set():
            swap(folder, link)
            time.sleep(0)
            swap(folder, link)
            rounds.append(1)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield rounds
    finally:
        done.set()
        thread.join()


ROUNDS = [20, pytest.param(250, marks=[pytest.mark.slow, pytest.mark.timeout(300)])]


@pytest.mark.parametrize("calls", ROUNDS)
@pytest.mark.parametrize("part", ["memory", "memory/real", "memory/real/inner"])
async def test_a_folder_that_is_swapped_for_a_link_leads_no_call_outside(serve, attack_home, part, calls):
    home = attack_home
    outside = home.root / "outside"
    for folder in ("real", "real/inner", "inner"):
        (outside / folder).mkdir(exist_ok=True)
    for folder in ("", "real/", "inner/", "real/inner/"):
        (outside / f"{folder}b.md").write_text(SECRET)
    path = f"{part}/b.md"
    home.put(path, "mine\n")
    for number in range(calls):
        home.put(f"{part}/x{number}.md", "mine\n")
        (outside / f"x{number}.md").write_text(SECRET)
    running = await serve()
    await running.synced()
    beyond = {file: file.read_bytes() for file in outside.rglob("*") if file.is_file()}
    codes = set()

    async def one(number):
        for method, request in (
            ("MemoryGet", pb.MemoryGetRequest(path=path)),
            ("MemoryAppend", pb.MemoryAppendRequest(path=path, text="overwritten")),
            ("MemoryForget", pb.MemoryForgetRequest(path=f"{part}/x{number}.md", delete_source=True)),
            ("SessionArchive", pb.SessionArchiveRequest(transcript="own.jsonl")),
            ("MemorySearch", pb.MemorySearchRequest(query="mine otter boathouse")),
            ("Sync", pb.SyncRequest()),
        ):
            code, words = await told(running, method, request)
            assert SECRET not in words, (method, words)
            codes.add((method, code))

    with swapping(home.workspace / part, outside) as rounds:
        for start in range(0, calls, 4):
            await asyncio.gather(*(one(start + number) for number in range(4)))
    assert len(rounds) > calls
    assert running.logged("fail-call") == []
    assert {code for _, code in codes} <= {"OK", "PERMISSION_DENIED", "NOT_FOUND", "FAILED_PRECONDITION"}, codes
    # Both states were met: otherwise nothing was tried.
    assert {("MemoryGet", "OK"), ("MemoryGet", "PERMISSION_DENIED")} <= codes or calls < 100, codes
    assert {file: file.read_bytes() for file in outside.rglob("*") if file.is_file()} == beyond
