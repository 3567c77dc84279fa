"""Maintenance between syncs, without a call."""

from waiting import eventually

WORD = "xylophonographer"


async def test_words_of_a_deleted_file_vanish_from_the_disk_by_themselves(home, serve):
    home.write(secret=f"the {WORD} lives here", other="nothing of note")
    settings = {
        "memoryd": {"reconcileSeconds": 1},
        "agents": {"defaults": {"memorySearch": {"sync": {"watch": False}}}},
    }
    daemon = await serve(settings, background=True)
    await daemon.synced()
    assert (await daemon.search(WORD)).results

    def stored():
        return [
            file.name for file in home.state_dir.rglob("*") if file.is_file() and WORD.encode() in file.read_bytes()
        ]

    assert stored()
    (home.workspace / "memory" / "secret.md").unlink()
    await daemon.synced()
    await eventually(lambda: not stored())
    assert not (await daemon.search(WORD)).results
