"""Measure the memory of processes, and of the vectors of an index: a private copy per process, and shared memory."""

import multiprocessing
from multiprocessing.connection import Connection
from multiprocessing.shared_memory import SharedMemory
from pathlib import Path
from typing import Any

import numpy as np

from memoryd_server.chunk import CHUNKER_VERSION
from memoryd_server.store import BuildIdentity

MIB = 2**20
PROCESSES = 2


def memory_mib(pid: int) -> dict[str, float]:
    """Return the resident, proportional and private memory (RSS, PSS and USS) of a process in MiB."""
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text("ascii").splitlines()[1:]
    kib = {line.split(":")[0]: int(line.split()[1]) for line in lines}
    private = kib["Private_Clean"] + kib["Private_Dirty"]
    return {"rss": round(kib["Rss"] / 1024, 1), "pss": round(kib["Pss"] / 1024, 1), "private": round(private / 1024, 1)}


def vectors_in_memory(index: Path, dimensions: int) -> dict[str, Any]:
    """Return the memory that the vectors of an index take, and by how much each of two processes grows, in MiB."""
    # Imported here, because the spawned processes import this module and do not need `reader_prototype_server`.
    from reader_prototype_server import ReadingStore, VectorIndex  # noqa: PLC0415

    vectors = VectorIndex(sqlite_vec=False, extension_path=None, memory_budget_bytes=2**30)
    store = ReadingStore(index, BuildIdentity(str(CHUNKER_VERSION), 0, 0), vectors)
    store.open()
    with store.read() as reader:
        vectors.search(reader, np.ones(dimensions, np.float32), 6)
    size, form = vectors.resident.memory_bytes, vectors.form
    store.close()
    return {
        "form": form,
        "mib": round(size / MIB, 1),
        "private_copy_pss_mib": _added(size, shared=False),
        "shared_memory_pss_mib": _added(size, shared=True),
    }


def _added(size: int, *, shared: bool) -> list[float]:
    """Return by how many MiB the PSS of each of two processes grows when it reads all bytes, as a copy or shared."""
    block = SharedMemory(create=True, size=size)
    try:
        block.buf[:size] = np.random.default_rng(1).bytes(size)
        spawn = multiprocessing.get_context("spawn")
        pipes = [spawn.Pipe() for _ in range(PROCESSES)]
        processes = [spawn.Process(target=_reader, args=(theirs, block.name, shared)) for _, theirs in pipes]
        for process in processes:
            process.start()
        for ours, _ in pipes:
            ours.recv()
        before = [memory_mib(process.pid)["pss"] for process in processes]
        for ours, _ in pipes:
            ours.send(None)
        for ours, _ in pipes:
            ours.recv()
        # Otherwise PSS would also divide the pages by this process, which has them mapped.
        block.close()
        after = [memory_mib(process.pid)["pss"] for process in processes]
        for (ours, _), process in zip(pipes, processes, strict=True):
            ours.send(None)
            process.join()
    finally:
        block.unlink()
    return [round(now - then, 1) for now, then in zip(after, before, strict=True)]


def _reader(pipe: Connection, name: str, shared: bool) -> None:
    block = SharedMemory(name)
    pipe.send(None)
    pipe.recv()
    data = np.frombuffer(block.buf, np.uint8)
    kept = data if shared else data.copy()
    del data
    if not shared:
        block.close()
    pipe.send(int(kept.sum()))
    pipe.recv()
    del kept
    block.close()
