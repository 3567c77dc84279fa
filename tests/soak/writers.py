"""Clients that write: appends with and without keys, notes that are forgotten, sessions, entries."""

import asyncio
import json

from memoryd.messages import (
    FORGET_ACTION_DELETED,
    REMEMBER_ACTION_DUPLICATE,
    SEARCH_MODE_KEYWORD,
    SOURCE_SESSIONS,
    MemoryAppendRequest,
)
from soak.model import Append, Note, Session
from soak.world import GUEST, PATIENCE_SECONDS, SingleAttempts
from transcript_fixture import HEAD, assistant, user

# An editor saves the first of these files again and again; it holds the file's lock as it does.
EDITED_LOG = "memory/log-edited.md"
LOGS = (EDITED_LOG, "memory/log.md", "memory/deep/er/log.md", "MEMORY.md")
APPEND_SECONDS = 8.0


def new_append(world, agent, *, key):
    """Return an append of one or many lines, recorded as about to be sent."""
    token, chance = world.token(), world.chance
    lines = [f"- {token} {world.sentence()}"]
    lines += [f"  {world.sentence()}" for _ in range(chance.choice([0, 0, 1, 3, 40]) if chance.random() < 0.5 else 0)]
    lines.append(f"- end of {token[::-1]}")
    heading = f"Part {token[::-1]}" if chance.random() < 0.2 else ""
    path = chance.choice(LOGS)
    append = Append(token, path, "\n".join(lines), f"key-{token}-{world.seed}" if key else "", heading)
    if path == EDITED_LOG:
        agent.edited.add(path)
    agent.sending(append)
    return append


def fields_of(agent, append):
    """Return the fields of an append's request."""
    fields = {"agent_id": agent.agent_id, "text": append.text, "path": append.path, "heading": append.heading}
    return {**fields, "idempotency_key": append.key} if append.key else fields


def acknowledge(world, agent, append, answer):
    """Record an answer, and check that it is the same as an earlier one."""
    place = (answer.start_line, answer.end_line)
    if append.answer:
        world.evidence.check(
            "repeated append",
            append.answer == place and answer.already_appended,
            "the answer differs from the first one",
            first=append.answer,
            now=str(answer),
        )
    append.answer = append.answer or place
    if answer.HasField("index_revision"):
        agent.revision = max(agent.revision, answer.index_revision)


async def keyed_appends(world):
    """Append with keys, each until it is acknowledged; some are sent twice, cancelled, or repeated later."""
    async with world.connect() as client, world.connect() as other:
        while not world.stop.is_set():
            agent, chance = world.any_agent(), world.chance
            append = new_append(world, agent, key=True)
            fields = fields_of(agent, append)
            if chance.random() < 0.15:
                # Cancelled at its deadline; the text may have been written.
                await world.call("MemoryAppend", client.append, **fields, timeout=chance.uniform(0.001, 0.05))
            calls = [client.append] + [other.append] * (chance.random() < 0.2)
            answers = await asyncio.gather(
                *(world.call_until_done("MemoryAppend", call, timeout=APPEND_SECONDS, **fields) for call in calls)
            )
            for answer in filter(None, answers):
                acknowledge_once(world, agent, append, answer)
            if answers[0] is not None:
                await after_append(world, agent, append, client, answers[0])
            await world.pause(0.0, 0.25)


def acknowledge_once(world, agent, append, answer):
    """Record the answer of one of two equal calls; either can be the one that wrote."""
    if append.answer is None:
        acknowledge(world, agent, append, answer)
        return
    world.evidence.check(
        "repeated append",
        append.answer == (answer.start_line, answer.end_line),
        "two answers to one key differ",
        first=append.answer,
        now=str(answer),
    )


async def after_append(world, agent, append, client, answer):
    """Read the text back by its lines, by a search of its revision, and by a repeated call."""
    chance, fields = world.chance, fields_of(agent, append)
    if append.path not in agent.edited:
        got = await world.call(
            "MemoryGet",
            client.get,
            agent_id=agent.agent_id,
            path=append.path,
            start_line=answer.start_line,
            line_count=answer.end_line - answer.start_line + 1,
        )
        if got is not None:
            world.evidence.check(
                "read of an append",
                got.text.endswith(append.text),
                "the lines of the answer differ",
                path=append.path,
                answer=str(answer),
                got=got.text,
                sent=append.text,
            )
    if chance.random() < 0.3 and answer.HasField("index_revision") and agent.agent_id != GUEST:
        found = await world.search(
            client,
            agent,
            query=append.token,
            mode=SEARCH_MODE_KEYWORD,
            min_revision=answer.index_revision,
            max_results=50,
            max_snippet_chars=4_000,
        )
        if found is not None:
            world.evidence.check(
                "search of an append's revision",
                is_found(found, append),
                "not found",
                agent=agent.agent_id,
                token=append.token,
                answer=str(answer),
                info=str(found.info),
                paths=[hit.path for hit in found.results],
            )
    if chance.random() < 0.2:
        again = await world.call_until_done("MemoryAppend", client.append, timeout=APPEND_SECONDS, **fields)
        if again is not None:
            acknowledge(world, agent, append, again)
    if chance.random() < 0.1:
        different = {**fields, "text": f"{append.text} and more"}
        done = await world.call("MemoryAppend", client.append, allowed=("INVALID_ARGUMENT",), **different)
        world.evidence.check("key with another text", done is None, "accepted", key=append.key)


def is_found(found, append):
    """Return whether a hit shows an append."""
    return any(hit.path == append.path and append.token in hit.snippet for hit in found.results)


async def appends_without_keys(world):
    """Append without keys, each sent once: an acknowledged text is there once, another one at most once."""
    single = SingleAttempts(world.address)
    send = single.method("MemoryAppend", MemoryAppendRequest, APPEND_SECONDS)
    async with single.client:
        while not world.stop.is_set():
            agent = world.any_agent()
            append = new_append(world, agent, key=False)
            answer = await world.call("MemoryAppend", send, **fields_of(agent, append))
            if answer is not None:
                acknowledge(world, agent, append, answer)
            await world.pause(0.1, 0.5)


async def forgotten_notes(world):
    """Write notes and have them forgotten, with and without their files."""
    async with world.connect() as client:
        while not world.stop.is_set():
            agent = world.agents[world.chance.choice(["main", "heron"])]
            token = world.token()
            path = f"memory/forgotten/{token}.md"
            text = f"# Note\n\n{token} {world.sentence()}\n"
            agent.notes[path] = Note(path, [(token, text)], 1)
            file = agent.workspace / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text)
            await follow_sync(world, client, agent)
            delete = world.chance.random() < 0.6
            await forget(world, client, agent, token, path=path, delete_source=delete)
            if delete:
                world.evidence.check("forgotten file", not file.exists(), "the file still exists", path=path)
            await world.pause(0.3, 1.0)


async def forget(world, client, agent, token, **target):
    """Have a target forgotten, and check that its word is not found from then on."""
    done = await world.call_until_done(
        "MemoryForget", client.forget, ("FILE_NOT_FOUND",), agent_id=agent.agent_id, timeout=20.0, **target
    )
    path = target.get("path") or f"sessions/{target['session_id']}"
    agent.forgotten[token] = path
    if done is not None:
        agent.revision = max(agent.revision, done.index_revision)
    for mode in (SEARCH_MODE_KEYWORD, 0):
        found = await world.search(client, agent, query=token, mode=mode, max_results=50)
        if found is not None:
            world.evidence.check(
                "search of a forgotten text",
                not shows(found, token, path),
                "found",
                token=token,
                path=path,
                agent=agent.agent_id,
                forgot=str(done),
                found=str(found)[:2_000],
            )


def shows(found, token, path):
    """Return whether a hit shows a word of a path or of a session's transcripts."""
    return any(hit.path.startswith(path) and token in hit.snippet for hit in found.results)


async def follow_sync(world, client, agent, **fields):
    """Follow a sync to its end, and return its last event, or None if it was interrupted."""

    async def follow(**fields):
        last = None
        async with client.sync(**fields) as stream:
            async for event in stream:
                last = event
        return last

    last = await world.call("Sync", follow, agent_id=agent.agent_id, timeout=PATIENCE_SECONDS, **fields)
    if last is not None:
        ended = last.WhichOneof("event")
        world.evidence.check("end of a sync", ended == "completed", "OK without `completed`", last=str(last))
        agent.revision = max(agent.revision, last.completed.index_revision)
    return last


async def sessions(world):
    """Write transcripts, have some of them archived, and have the others forgotten."""
    async with world.connect() as client:
        while not world.stop.is_set():
            agent = world.agents[world.chance.choice(["main", "heron"])]
            session = write_session(world, agent)
            if await follow_sync(world, client, agent):
                await search_session(world, client, agent, session)
            if world.chance.random() < 0.5:
                await archive(world, client, agent, session)
            else:
                await forget_session(world, client, agent, session)
            await world.pause(0.5, 2.0)


def write_session(world, agent):
    """Write a transcript of a few messages, with some records that are not messages."""
    session = Session(world.token(), [world.token() for _ in range(4)])
    agent.sessions[session.session_id] = session
    agent.sessions_folder.mkdir(parents=True, exist_ok=True)
    with (agent.sessions_folder / f"{session.session_id}.jsonl").open("w") as stream:
        stream.write(HEAD)
        for place, token in enumerate(session.tokens):
            stream.write((assistant if place % 2 else user)(f"{token} {world.sentence()}"))
            stream.write(json.dumps({"type": "custom", "text": world.sentence()}) + "\n")
    return session


async def search_session(world, client, agent, session):
    """Search a transcript after a sync that was started after its last line was written."""
    found = await world.search(
        client, agent, query=session.tokens[0], mode=SEARCH_MODE_KEYWORD, max_results=50, sources=[SOURCE_SESSIONS]
    )
    if found is not None:
        world.evidence.check(
            "search of a session",
            shows(found, session.tokens[0], f"sessions/{session.session_id}"),
            "not found after a sync",
            session=session.session_id,
            info=str(found.info),
        )


async def archive(world, client, agent, session):
    """Archive a transcript twice; the second call must write nothing."""
    fields = {"agent_id": agent.agent_id, "transcript": session.session_id, "slug": session.session_id}
    for _ in range(2):
        done = await world.call_until_done("SessionArchive", client.session_archive, timeout=20.0, **fields)
        if done is not None:
            agent.archives.add(done.path)
    files = list((agent.workspace / "memory").glob(f"20*-{session.session_id}*.md"))
    whole = len(files) == 1 and all(token in files[0].read_text() for token in session.tokens)
    world.evidence.check(
        "archive",
        whole,
        "not one file with every message",
        session=session.session_id,
        files=[str(file) for file in files],
    )


async def forget_session(world, client, agent, session):
    """Have a session forgotten, with or without its transcript."""
    session.source_deleted = world.chance.random() < 0.5
    session.forgotten = True
    await forget(
        world, client, agent, session.tokens[0], session_id=session.session_id, delete_source=session.source_deleted
    )
    if not session.source_deleted:
        # A forgotten session is not indexed again, even if it grows.
        with (agent.sessions_folder / f"{session.session_id}.jsonl").open("a") as stream:
            stream.write(user(f"{session.tokens[0]} once more"))


async def entries(world):
    """Store, list, recall and forget entries."""
    async with world.connect() as client:
        while not world.stop.is_set():
            agent_id = world.chance.choice(["main", "heron"])
            model, service = world.entries[agent_id], client.entries
            text = f"{world.token()} {world.sentence(5)} {world.token()} {world.token()}"
            model.sent.add(text)
            gone = set(model.forgotten)
            done = await world.call_until_done(
                "Remember",
                service.remember,
                agent_id=agent_id,
                text=text,
                idempotency_key=f"entry-{world.seed}-{text[:7]}",
                timeout=20.0,
            )
            if done is not None:
                remember(world, model, done, gone, text)
                await recall(world, service, agent_id, model)
            if model.stored and world.chance.random() < 0.4:
                await forget_entry(world, service, agent_id, model)
            await world.pause(0.1, 0.8)


def remember(world, model, done, gone, text):
    """Record the answer of Remember."""
    entry = done.entry
    world.evidence.check(
        "remembered entry",
        entry.entry_id not in gone,
        "it was forgotten before the call",
        entry=str(entry),
        action=done.action,
    )
    if entry.entry_id in model.forgotten:
        return
    same = done.action == REMEMBER_ACTION_DUPLICATE or entry.text == text
    world.evidence.check("remembered entry", same, "the text differs", sent=text, entry=str(entry))
    model.stored[entry.entry_id] = entry.text


async def recall(world, service, agent_id, model):
    """Recall by meaning and as a block, and check that no forgotten entry is returned."""
    gone, query = set(model.forgotten), world.chance.choice([*model.stored.values(), "heron weir"])
    for name, call, fields in (
        ("Recall", service.recall, {"query": query, "limit": world.chance.randint(1, 50)}),
        ("RecallBlock", service.recall_block, {"prompt": query}),
    ):
        answer = await world.call(name, call, agent_id=agent_id, **fields)
        for scored in answer.entries if answer is not None else ():
            entry = scored.entry
            right = entry.entry_id not in gone and entry.text in model.sent
            world.evidence.check("recalled entry", right, "forgotten or never sent", entry=str(entry), call=name)
    await world.call("ListEntries", service.list, agent_id=agent_id, page_size=world.chance.randint(0, 50))


async def forget_entry(world, service, agent_id, model):
    """Have an entry forgotten, by its id or by its text."""
    entry_id, text = world.chance.choice(list(model.stored.items()))
    if world.chance.random() < 0.3:
        # Another client may delete the entry between the search for the text and the deletion.
        done = await world.call("Forget", service.forget, ("ENTRY_NOT_FOUND",), agent_id=agent_id, query=text)
        model.uncertain += done is None
        if done is not None and done.action == FORGET_ACTION_DELETED:
            model.remove(done.deleted.entry_id)
        return
    await world.call_until_done("Forget", service.forget, ("ENTRY_NOT_FOUND",), agent_id=agent_id, entry_id=entry_id)
    model.remove(entry_id)
