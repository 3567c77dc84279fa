"""Edits of memory files over gRPC."""

import hashlib

from memoryd.v1 import memory_service_pb2 as pb
from rpc.wire import TIMEOUT

EDITS = {"memoryd": {"writes": "edit"}}


def digest(content):
    """Return the SHA-256 of a text or bytes in hexadecimal; empty for None, a file that does not exist."""
    if content is None:
        return ""
    return hashlib.sha256(content if isinstance(content, bytes) else content.encode()).hexdigest()


async def write(running, path, seen=None, **fields):
    """Write a file that the caller has seen with the content `seen`."""
    request = pb.MemoryWriteRequest(path=path, expected_sha256=digest(seen), **fields)
    return await running.stub.MemoryWrite(request, timeout=TIMEOUT)


async def move(running, path, new_path, seen, **fields):
    request = pb.MemoryMoveRequest(path=path, new_path=new_path, expected_sha256=digest(seen), **fields)
    return await running.stub.MemoryMove(request, timeout=TIMEOUT)


async def restore(running, version_id, seen=None, **fields):
    request = pb.MemoryRestoreRequest(version_id=version_id, expected_sha256=digest(seen), **fields)
    return await running.stub.MemoryRestore(request, timeout=TIMEOUT)


async def history(running, path="", **fields):
    return await running.stub.MemoryHistory(pb.MemoryHistoryRequest(path=path, **fields), timeout=TIMEOUT)


async def all_versions(running, path="", **fields):
    """Return the writes of all pages, newest first."""
    versions, token = [], ""
    while True:
        page = await history(running, path, page_token=token, **fields)
        versions += page.versions
        token = page.next_page_token
        if not token:
            return versions


async def forget(running, **request):
    return await running.stub.MemoryForget(pb.MemoryForgetRequest(**request), timeout=TIMEOUT)


def kind(version):
    return pb.WriteKind.Name(version.kind).removeprefix("WRITE_KIND_")


def content(home, path):
    """Return the bytes of a memory file; None if it does not exist."""
    file = home.workspace / path
    return file.read_bytes() if file.exists() else None


def files_of(home):
    """Return the bytes of every file of the workspace, by path."""
    return {
        str(file.relative_to(home.workspace)): file.read_bytes()
        for file in home.workspace.rglob("*")
        if file.is_file() and not file.is_symlink()
    }
