"""A path through many folders is refused in every call, and deep folders do not make other calls slow or fail."""

import subprocess

import pytest

from deep_folders import MORE_THAN_RECURSION, deep_folders
from memoryd.v1 import memory_service_pb2 as pb
from memoryd_server.sources.roots import MOST_FOLDERS
from rpc.wire import TIMEOUT, check_refused, paths

pytestmark = pytest.mark.attacks


@pytest.fixture(autouse=True)
def removed_folders(home):
    yield
    # Python's own rmtree, and so pytest's clean-up, recurses.
    subprocess.run(["rm", "-rf", home.workspace / "memory"], check=True)


def deep_path(folders):
    return "memory/" + "d/" * (folders - 1) + "a.md"


def calls(running, path):
    yield running.append("a heron", path=path)
    yield running.get(path)
    for delete in (False, True):
        yield running.stub.MemoryForget(pb.MemoryForgetRequest(path=path, delete_source=delete), timeout=TIMEOUT)


@pytest.mark.parametrize("folders", [MORE_THAN_RECURSION, MOST_FOLDERS + 1])
async def test_a_path_through_too_many_folders_is_refused_and_no_folder_is_made(home, serve, folders):
    home.write(a="the heron nests by the weir\n")
    running = await serve()
    for call in calls(running, deep_path(folders)):
        await check_refused(call, "PERMISSION_DENIED", "PATH_NOT_ALLOWED", mentions=f"more than the {MOST_FOLDERS}")
    assert [file.name for file in (home.workspace / "memory").iterdir()] == ["a.md"]
    await running.synced()
    assert paths(await running.search("heron")) == ["memory/a.md"]


async def test_the_deepest_path_can_be_appended_to_found_and_read(home, serve):
    running = await serve()
    path = deep_path(MOST_FOLDERS)
    await running.append("a heron", path=path)
    assert paths(await running.search("heron")) == [path]
    assert (await running.get(path)).text.startswith("a heron")


async def test_folders_that_are_too_deep_are_reported_and_the_others_are_searched(home, serve):
    home.write(a="the heron nests by the weir\n")
    with deep_folders(home.workspace / "memory", MORE_THAN_RECURSION, "a.md"):
        running = await serve()
        await running.synced()
        assert paths(await running.search("heron")) == ["memory/a.md"]
        issues = (await running.status()).source_issues
    assert any(f"more than {MOST_FOLDERS} levels deep" in issue for issue in issues)


async def test_a_file_of_an_earlier_index_that_is_too_deep_leaves_searches_working(home, serve):
    home.write(a="the heron nests by the weir\n", b="one more heron\n")
    running = await serve()
    await running.synced()
    # As an earlier version could index it.
    to = deep_path(MORE_THAN_RECURSION)
    assert home.store.change(to, "memory/b.md", sqlite="UPDATE files SET path = ? WHERE path = ?") == 1
    assert paths(await running.search("heron")) == ["memory/a.md"]
    assert (await running.synced()).removed_files == 1
