"""Clients that read: searches, files, lists, status, sessions' contexts, and calls that are cancelled."""

import asyncio
import itertools

from memoryd.messages import SEARCH_MODE_HYBRID, SEARCH_MODE_KEYWORD, SEARCH_MODE_VECTOR
from soak.world import wrong_text

VECTOR_REASONS = ("EMBEDDING_UNAVAILABLE", "EMBEDDING_QUOTA_EXCEEDED", "EMBEDDING_NOT_CONFIGURED")
MODES = (0, SEARCH_MODE_KEYWORD, SEARCH_MODE_KEYWORD, SEARCH_MODE_HYBRID, SEARCH_MODE_VECTOR)


async def searches(world):
    """Search for words that are, were and never were in the memory."""
    async with world.connect() as client:
        while not world.stop.is_set():
            agent, chance = world.any_agent(), world.chance
            words = [world.sentence(3), "zqsss " + world.sentence(1), "  ¿" + world.sentence(1) + '?" OR ( *'] + [
                version[0] for note in list(agent.notes.values())[:20] for version in note.versions[-2:]
            ]
            await world.search(
                client,
                agent,
                query=chance.choice(words),
                mode=chance.choice(MODES),
                max_results=chance.choice([1, 6, 50]),
                max_snippet_chars=chance.choice([80, 700, 4_000]),
                explain=chance.random() < 0.2,
                session_key=f"agent:{agent.agent_id}:soak-{chance.randint(1, 50)}",
                min_score=chance.choice([0.0, 0.1]),
            )
            await world.pause(0.0, 0.2)


async def reads(world):
    """Read files while they are written."""
    async with world.connect() as client:
        while not world.stop.is_set():
            agent = world.any_agent()
            paths = [path for path in agent.notes if path.startswith("memory/notes/")]
            if paths and world.chance.random() < 0.5:
                await read_note(world, client, agent, world.chance.choice(paths))
            elif agent.lines:
                await read_log(world, client, agent, world.chance.choice(list(agent.lines)))
            await world.pause(0.0, 0.2)


async def read_note(world, client, agent, path):
    """Read a note; the text is that of the last save before the call, or of a later one."""
    note = agent.notes[path]
    saved, was_resting = note.saved, note.is_resting
    got = await world.call("MemoryGet", client.get, ("FILE_NOT_FOUND",), agent_id=agent.agent_id, path=path)
    if got is None:
        return
    possible = [text for _, text in note.versions[max(0, saved - 1) :]]
    if was_resting and len(note.versions) == saved:
        right = got.text.rstrip("\n") == possible[0].rstrip("\n")
    else:
        right = any(text.startswith(got.text) for text in possible)
    world.evidence.check("read of a note", right, "not what the file held", path=path, got=got.text, last=possible[0])


async def read_log(world, client, agent, path):
    """Read an append file; it contains what was acknowledged before the call, once, and nothing that was not sent."""
    before = agent.acknowledged(path)
    first = world.chance.choice([1, 1, world.chance.randint(1, 200)])
    got = await world.call(
        "MemoryGet",
        client.get,
        ("FILE_NOT_FOUND",),
        agent_id=agent.agent_id,
        path=path,
        start_line=first,
        line_count=2_000,
    )
    if got is None or path not in agent.lines:
        return
    wrong = wrong_text(agent, path, got.text)
    world.evidence.check("read of a log", not wrong, wrong, path=path, agent=agent.agent_id)
    if first == 1 and not got.next_start_line:
        lost = [each.token for each in before if got.text.count(each.text) != 1]
        world.evidence.check(
            "read of a log",
            not lost,
            "acknowledged texts are missing or doubled",
            path=path,
            agent=agent.agent_id,
            lost=lost,
        )


async def lists(world):
    """Call what lists and describes, page by page."""
    async with world.connect() as client:
        for round_ in itertools.count():
            if world.stop.is_set():
                return
            agent = world.any_agent()
            await world.call("Status", client.status, agent_id=agent.agent_id, probe=round_ % 10 == 0, timeout=10.0)
            await world.call(
                "ExplainMiss",
                client.explain_miss,
                agent_id=agent.agent_id,
                path=world.chance.choice(["MEMORY.md", "memory/none.md"]),
                search={"query": world.sentence()},
                timeout=10.0,
            )
            await world.call("ListAgents", client.list_agents, page_size=world.chance.randint(0, 2))
            await all_files(world, client, agent, world.chance.choice([0, 3, 1_000]))
            await world.call(
                "FlushDecision",
                client.flush_decision,
                agent_id=agent.agent_id,
                total_tokens=world.chance.randint(0, 200_000),
            )
            await world.call(
                "SuggestCapture",
                client.entries.suggest_capture,
                agent_id=agent.agent_id,
                user_messages=["Remember that I prefer tea", world.sentence()],
            )
            await context(world, client, agent)
            await world.call(
                "MemoryHistory",
                client.history,
                agent_id=agent.agent_id,
                include_diffs=world.chance.random() < 0.5,
                page_size=world.chance.choice([0, 3, 1_000]),
                timeout=10.0,
            )
            await world.call("MemoryForget", client.forget, agent_id=agent.agent_id, text=world.sentence())
            await refused_records(world, client, agent)
            await world.pause(0.1, 0.6)


async def refused_records(world, client, agent):
    """Send records of a transcript, which are refused because the transcripts are files."""
    answer = await world.call(
        "SessionAppend",
        client.session_append,
        ("NOT_IMPLEMENTED",),
        agent_id=agent.agent_id,
        session_id="soak",
        records=['{"type": "message"}'],
        expected_records=0,
    )
    world.evidence.check("append of records", answer is None, "accepted", agent=agent.agent_id)


async def all_files(world, client, agent, page_size):
    """Return every listed file, or None if a page failed."""
    files, token = [], ""
    while True:
        page = await world.call(
            "ListFiles", client.list_files, agent_id=agent.agent_id, page_size=page_size, page_token=token, timeout=10.0
        )
        if page is None:
            return None
        files += page.files
        token = page.next_page_token
        if not token or (page_size and len(files) > 20 * page_size):
            return files


async def context(world, client, agent):
    """Read a session's context and check the text of MEMORY.md."""
    answer = await world.call(
        "SessionContext",
        client.session_context,
        agent_id=agent.agent_id,
        session_key="main",
        include_recall_prompt=True,
    )
    for file in answer.files if answer is not None else ():
        if file.path in agent.lines and not file.truncated:
            wrong = wrong_text(agent, file.path, file.text)
            world.evidence.check("session context", not wrong, wrong, path=file.path, agent=agent.agent_id)


async def cancelled_calls(world):
    """Begin calls and cancel them, or give them deadlines that they cannot meet."""
    async with world.connect() as client:
        while not world.stop.is_set():
            agent, chance = world.any_agent(), world.chance
            calls = {
                "MemorySearch": (client.search, {"query": world.sentence()}),
                "MemoryRecall": (client.recall, {"text": world.sentence()}),
                "MemoryGet": (client.get, {"path": "memory/log.md"}),
                "Status": (client.status, {"probe": True}),
                "ListFiles": (client.list_files, {}),
                "Recall": (client.entries.recall, {"query": world.sentence()}),
                "ListEntries": (client.entries.list, {}),
                "SessionContext": (client.session_context, {"session_key": "main"}),
            }
            name = chance.choice(list(calls))
            call, fields = calls[name]
            seconds = chance.choice([0.001, 0.01, 0.1])
            allowed = ("FILE_NOT_FOUND",)
            work = asyncio.ensure_future(
                world.call(
                    name, call, allowed, agent_id=agent.agent_id, timeout=chance.choice([seconds, 5.0]), **fields
                )
            )
            await asyncio.wait([work], timeout=seconds)
            work.cancel()
            await asyncio.gather(work, return_exceptions=True)
            await world.pause(0.0, 0.3)
