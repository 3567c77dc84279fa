"""A quiet point: wait until the daemon has nothing to do, and compare its memory with the model."""

import asyncio
import time

from memoryd.messages import (
    FILE_STATE_FORGOTTEN,
    FILE_STATE_INDEXED,
    INDEX_STATE_EMPTY,
    INDEX_STATE_READY,
    SEARCH_MODE_KEYWORD,
    SYNC_MODE_FULL,
)
from soak.readers import all_files
from soak.world import GUEST
from soak.writers import follow_sync, is_found, shows

QUIET_SECONDS = 90.0
# Searches of a quiet point, for each agent and kind.
MOST_SEARCHES = 150
CONCURRENCY = 6
KEPT_ENTRIES = 10


async def quiet_point(world, daemon, *, with_entries):
    """Check everything that the model says, with the usual settings and a provider that works."""
    await daemon.restore_settings(world)
    async with world.connect() as client:
        for agent in world.agents.values():
            await settle(world, client, agent)
            await check_appends(world, client, agent)
            await check_notes(world, client, agent)
            await check_forgotten(world, client, agent)
            await check_files(world, client, agent)
            if with_entries and agent.agent_id != GUEST:
                await check_entries(world, client, agent.agent_id)


async def settle(world, client, agent):
    """Sync, and wait until the index is complete, with vectors."""
    last = await follow_sync(world, client, agent)
    if last is None:
        world.evidence.fail("quiet: a sync failed", agent=agent.agent_id)
    until = time.monotonic() + QUIET_SECONDS
    while True:
        status = await world.call("Status", client.status, agent_id=agent.agent_id, timeout=20.0)
        index = status.index if status is not None else None
        states = {INDEX_STATE_READY, INDEX_STATE_EMPTY}
        if index and index.state in states and not index.dirty and not status.active_sync.sync_id:
            if not index.pending_embeddings:
                return
            # Only a FULL sync sends a text again that the provider refused.
            await follow_sync(world, client, agent, mode=SYNC_MODE_FULL)
        if time.monotonic() > until:
            world.evidence.fail("quiet: the index is not complete", agent=agent.agent_id, status=str(status))
            return
        await asyncio.sleep(0.2)


def sample(world, items):
    """Return a list, or a sample of a long one."""
    return items if len(items) <= MOST_SEARCHES else world.chance.sample(items, MOST_SEARCHES)


async def check_each(check, items):
    """Await a check of each item, a few at a time."""
    limit = asyncio.Semaphore(CONCURRENCY)

    async def one(item):
        async with limit:
            await check(item)

    await asyncio.gather(*(one(item) for item in items))


async def check_appends(world, client, agent):
    """Every acknowledged append is in its file once, and is found."""
    for path in sorted(agent.lines):
        file = agent.workspace / path
        content = file.read_text() if file.exists() else ""
        wrong = agent.wrong_copies(path, content)
        world.evidence.check(
            "appends of a file",
            not wrong,
            "(token, words, copies, acknowledged, key)",
            wrong=wrong,
            path=path,
            agent=agent.agent_id,
        )
        await check_whole_file(world, client, agent, path, content)

    async def check(append):
        found = await world.search(
            client, agent, query=append.token, mode=SEARCH_MODE_KEYWORD, max_results=50, max_snippet_chars=4_000
        )
        world.evidence.check(
            "search of an append",
            found is not None and is_found(found, append),
            "not found",
            agent=agent.agent_id,
            append=append,
            found=str(found)[:2_000],
        )

    await check_each(check, sample(world, agent.acknowledged()))


async def check_whole_file(world, client, agent, path, content):
    """MemoryGet returns exactly what a file holds, page by page."""
    if not content:
        return
    texts, first = [], 1
    while first:
        got = await world.call(
            "MemoryGet",
            client.get,
            agent_id=agent.agent_id,
            path=path,
            start_line=first,
            line_count=2_000,
            timeout=20.0,
        )
        if got is None:
            break
        texts.append(got.text)
        first = got.next_start_line
    right = "\n".join(texts).rstrip("\n") == content.rstrip("\n")
    world.evidence.check(
        "read of a file",
        right,
        "not what the file holds",
        path=path,
        agent=agent.agent_id,
        read="\n".join(texts)[-500:],
        on_disk=content[-500:],
    )


async def check_notes(world, client, agent):
    """The last version of a note is found, and no earlier one."""

    async def check(note):
        content = (agent.workspace / note.path).read_text()
        token, text = note.versions[-1]
        world.evidence.check("note", content == text, "the file has changed", path=note.path)
        await check_whole_file(world, client, agent, note.path, content)
        found = await world.search(client, agent, query=token, mode=SEARCH_MODE_KEYWORD, max_results=50)
        right = found is not None and shows(found, token, note.path)
        world.evidence.check(
            "search of a note",
            right,
            "not found",
            path=note.path,
            agent=agent.agent_id,
            token=token,
            found=str(found)[:2_000],
        )
        for old, _ in note.versions[-6:-1]:
            found = await world.search(client, agent, query=old, mode=SEARCH_MODE_KEYWORD, max_results=50)
            gone = found is not None and not shows(found, old, "")
            world.evidence.check(
                "search of an old version", gone, "found", path=note.path, token=old, found=str(found)[:2_000]
            )

    notes = [note for note in agent.notes.values() if note.path.startswith("memory/notes/")]
    await check_each(check, notes)


async def check_forgotten(world, client, agent):
    """Nothing that was forgotten is found."""

    async def check(item):
        token, path = item
        found = await world.search(client, agent, query=token, max_results=50)
        gone = found is not None and not shows(found, token, path)
        world.evidence.check(
            "search of a forgotten text",
            gone,
            "found at a quiet point",
            token=token,
            path=path,
            agent=agent.agent_id,
            found=str(found)[:2_000],
        )

    await check_each(check, sample(world, list(agent.forgotten.items())))


async def check_files(world, client, agent):
    """ListFiles lists the files on disk, and all of them are indexed or forgotten."""
    files = await all_files(world, client, agent, 1_000) or []
    listed = {file.path for file in files if not file.path.startswith("sessions/")}
    disk = {str(file.relative_to(agent.workspace)) for file in agent.workspace.rglob("*.md") if file.is_file()}
    world.evidence.check(
        "listed files",
        listed == disk,
        "not those on disk",
        agent=agent.agent_id,
        only_listed=sorted(listed - disk),
        only_on_disk=sorted(disk - listed),
    )
    states = {FILE_STATE_INDEXED, FILE_STATE_FORGOTTEN}
    wrong = [str(file) for file in files if file.state not in states]
    world.evidence.check("listed files", not wrong, "not indexed at a quiet point", agent=agent.agent_id, files=wrong)


async def check_entries(world, client, agent_id):
    """The listed entries are those that were acknowledged."""
    listed, token = [], ""
    while True:
        page = await world.call(
            "ListEntries", client.entries.list, agent_id=agent_id, page_size=100, page_token=token, timeout=30.0
        )
        if page is None:
            world.evidence.fail("quiet: the entries cannot be listed", agent=agent_id)
            return
        listed += [(entry.entry_id, entry.text) for entry in page.entries]
        token = page.next_page_token
        if not token:
            break
    world.evidence.check(
        "number of entries", page.total == len(listed), "`total` differs", total=page.total, listed=len(listed)
    )
    problems = world.entries[agent_id].problems(listed)
    world.evidence.check(
        "entries", not problems, "they differ from what was acknowledged", agent=agent_id, problems=problems
    )


async def clear(world, *, with_entries):
    """Have everything forgotten that a round wrote, so that all rounds begin alike."""
    async with world.connect() as client:
        for agent in world.agents.values():
            paths = {*agent.lines, *agent.archives} | {
                path for path in agent.notes if "/forgotten/" in path or "/edited/" in path
            }
            for path in sorted(filter(None, paths)):
                await world.call_until_done(
                    "MemoryForget",
                    client.forget,
                    ("FILE_NOT_FOUND",),
                    timeout=30.0,
                    agent_id=agent.agent_id,
                    path=path,
                    delete_source=True,
                )
                agent.forget_file(path)
            agent.archives.clear()
            for session in agent.sessions.values():
                if not session.source_deleted:
                    await world.call_until_done(
                        "MemoryForget",
                        client.forget,
                        ("FILE_NOT_FOUND",),
                        timeout=30.0,
                        agent_id=agent.agent_id,
                        session_id=session.session_id,
                        delete_source=True,
                    )
                    session.source_deleted = True
            if with_entries and agent.agent_id != GUEST:
                await clear_entries(world, client, agent.agent_id)
        for agent in world.agents.values():
            await settle(world, client, agent)


async def clear_entries(world, client, agent_id):
    """Have all entries forgotten except the last few, including those that were stored without an acknowledgement."""
    page = await world.call("ListEntries", client.entries.list, agent_id=agent_id, page_size=1_000, timeout=30.0)
    model = world.entries[agent_id]
    for entry in page.entries[KEPT_ENTRIES:] if page is not None else ():
        await world.call_until_done(
            "Forget",
            client.entries.forget,
            ("ENTRY_NOT_FOUND",),
            timeout=30.0,
            agent_id=agent_id,
            entry_id=entry.entry_id,
        )
        model.remove(entry.entry_id)
