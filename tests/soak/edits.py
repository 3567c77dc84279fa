"""Clients that edit memory files: each acknowledged write is the content, is found, and can be undone."""

import hashlib

from memoryd.messages import SEARCH_MODE_KEYWORD, TextReplacement
from soak.model import Note
from soak.writers import forget, shows

EDIT_SECONDS = 8.0


def digest(text):
    return hashlib.sha256(text.encode()).hexdigest()


async def edits(world):
    """Create files, edit, move, delete, restore and forget them."""
    async with world.connect() as client:
        while not world.stop.is_set():
            agent = world.agents[world.chance.choice(["main", "heron"])]
            await _Edited(world, client, agent).live()
            await world.pause(0.2, 0.8)


class _Edited:
    """One file that no other client changes, so that no write of it may meet another content."""

    def __init__(self, world, client, agent):
        self.world, self.client, self.agent = world, client, agent
        self.name = world.token()
        self.path = f"memory/edited/{self.name}.md"
        self.writes = 0

    async def live(self):
        """Write the file several times, undo the writes, and have it forgotten with its history."""
        first = self._text()
        done = await self._send("MemoryWrite", self.client.write, first, path=self.path, content=first)
        text = first
        for _ in range(self.world.chance.randint(0, 3)):
            before, text = text, self._text()
            change = TextReplacement(old_text=before, new_text=text)
            fields = {"expected_sha256": digest(before), "replace": change}
            done = done and await self._send("MemoryWrite", self.client.write, text, path=self.path, **fields)
        if done and self.world.chance.random() < 0.5:
            new_path = f"memory/edited/deep/{self.name}.md"
            fields = {"path": self.path, "new_path": new_path, "expected_sha256": digest(text)}
            done = await self._send("MemoryMove", self.client.move, text, new_path, **fields)
        if done and self.world.chance.random() < 0.5:
            fields = {"expected_sha256": digest(text), "delete_file": {}}
            done = await self._send("MemoryWrite", self.client.write, None, path=self.path, **fields)
            # The text is restored by the ID of the deletion.
            fields = {"version_id": done.version_id if done else "", "path": self.path}
            done = done and await self._send("MemoryRestore", self.client.restore, text, **fields)
        await self._check(done, text)
        await forget(self.world, self.client, self.agent, text.split()[2], path=self.path, delete_source=True)
        await self._check_forgotten()

    def _text(self):
        return f"# Note\n\n{self.world.token()} {self.world.sentence()}\n"

    async def _send(self, method, call, text, target="", **fields):
        """Send a write until it is acknowledged; `text` is the content that the file has then."""
        path = target or self.path
        if text is not None:
            note = self.agent.notes.setdefault(path, Note(path))
            note.versions.append((text.split()[2], text))
            note.saved = len(note.versions)
        self.writes += 1
        done = await self.world.call_until_done(
            method,
            call,
            agent_id=self.agent.agent_id,
            idempotency_key=f"edit-{self.name}-{self.writes}-{self.world.seed}",
            timeout=EDIT_SECONDS,
            **fields,
        )
        self.path = path
        if done is not None:
            wanted = digest(text) if text is not None else ""
            right = done.content_sha256 == wanted and done.path == path
            self.world.evidence.check("edit", right, "not what was written", method=method, answer=str(done), path=path)
            if done.HasField("index_revision"):
                self.agent.revision = max(self.agent.revision, done.index_revision)
        return done

    async def _check(self, done, text):
        """Check the file, the read, the history and the search of the last write."""
        if not done:
            return
        file = self.agent.workspace / self.path
        found = file.read_text() if file.exists() else None
        self.world.evidence.check("edited file", found == text, "not the last write", path=self.path, found=found)
        fields = {"agent_id": self.agent.agent_id, "path": self.path, "timeout": EDIT_SECONDS}
        page = await self.world.call("MemoryHistory", self.client.history, include_diffs=True, **fields)
        if page is not None:
            newest = page.versions[0] if page.versions else None
            right = newest is not None and newest.after_sha256 == digest(text) and len(page.versions) == self.writes
            self.world.evidence.check("history", right, "not the writes", path=self.path, versions=str(page)[:2_000])
        if done.HasField("index_revision"):
            hits = await self.world.search(
                self.client,
                self.agent,
                query=text.split()[2],
                mode=SEARCH_MODE_KEYWORD,
                min_revision=done.index_revision,
            )
            if hits is not None:
                right = shows(hits, text.split()[2], self.path)
                self.world.evidence.check("search of an edit", right, "not found", path=self.path, found=str(hits))

    async def _check_forgotten(self):
        fields = {"agent_id": self.agent.agent_id, "path": self.path, "timeout": EDIT_SECONDS}
        page = await self.world.call("MemoryHistory", self.client.history, **fields)
        if page is not None:
            shown = str(page)[:2_000]
            self.world.evidence.check("history of a forgotten file", not page.versions, "kept", versions=shown)
