"""Programs that write to the workspaces: editors with every way to save, and one that saves an append file."""

import asyncio

from e2e.saving_editor import save
from editors import SAVES
from soak.model import Note
from soak.world import GUEST
from soak.writers import EDITED_LOG

NOTES = 8
LINES = 12


async def editors(world):
    """Save notes in every way, each version with a word of its own."""
    while not world.stop.is_set():
        agent = world.any_agent()
        path = f"memory/notes/{world.chance.randrange(NOTES)}.md"
        # Two programs that save one file at the same time would lose text between themselves.
        if path not in agent.notes or agent.notes[path].is_resting:
            await save_version(world, agent, path)
        await world.pause(0.05, 0.4)


async def save_version(world, agent, path):
    """Save a new version of a note."""
    note = agent.notes.setdefault(path, Note(path))
    token = world.token()
    body = "\n".join(
        f"{token if line == LINES // 2 else world.sentence(1)} {world.sentence()}" for line in range(LINES)
    )
    text = f"# Note {token}\n\n{body}\n"
    note.versions.append((token, text))
    file = agent.workspace / path
    file.parent.mkdir(parents=True, exist_ok=True)
    way = world.chance.choice(SAVES)
    if not file.exists():
        way = SAVES[0]
    await asyncio.to_thread(way, file, text)
    note.saved = len(note.versions)


async def moves(world):
    """Rename notes, and folders of notes, within the workspace and back."""
    number = 0
    while not world.stop.is_set():
        agent = world.agents["main" if number % 2 else GUEST]
        number += 1
        token = world.token()
        text = f"# Moved\n\n{token} {world.sentence()}\n"
        for path in ("memory/moved/a/note.md", "memory/moved/b/note.md", "memory/moved/a/note.txt"):
            if path.endswith(".md"):
                note = agent.notes.setdefault(path, Note(path))
                note.versions.append((token, text))
                note.saved = len(note.versions)
        folder = agent.workspace / "memory" / "moved"
        (folder / "a").mkdir(parents=True, exist_ok=True)
        (folder / "a" / "note.md").write_text(text)
        await world.pause(0.1, 0.8)
        (folder / "a").rename(folder / "b")
        await world.pause(0.1, 0.8)
        (folder / "b").rename(folder / "a")
        (folder / "a" / "note.md").rename(folder / "a" / "note.txt")
        await world.pause(0.1, 0.5)


async def locking_editors(world):
    """Save an append file by renaming, while holding its lock: what was acknowledged stays."""
    number = 0
    while not world.stop.is_set():
        number += 1
        agent = world.any_agent()
        file = agent.workspace / EDITED_LOG
        agent.edited.add(EDITED_LOG)
        if file.exists():
            lost = await asyncio.to_thread(save, file, number, locking=True)
            world.evidence.check("save under a lock", not lost, "an append wrote in between", lost=sorted(lost))
        await world.pause(0.1, 0.6)
