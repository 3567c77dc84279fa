"""Which files are memory: what an upgrade adds and keeps, and which paths can be read."""

import pytest

from fake_providers import embedding_server
from rpc.wire import check_refused
from waiting import eventually


def search_settings(**search):
    return {"agents": {"defaults": {"memorySearch": search}}}


def paths(reply):
    return [result.path for result in reply.results]


async def listed(running):
    return [file.path for file in (await running.files()).files]


async def test_the_user_file_is_found_listed_read_and_appended_to(serve, home):
    home.put("USER.md", "# User\n\nborn in Oslo\n")
    running = await serve()
    await running.synced()
    assert paths(await running.search("Oslo")) == ["USER.md"]
    assert await listed(running) == ["USER.md"]
    assert (await running.get("USER.md")).text == "# User\n\nborn in Oslo\n"
    await running.append("likes herons", path="USER.md")
    assert (home.workspace / "USER.md").read_text().endswith("likes herons\n")


async def test_a_user_file_that_appears_is_noticed(serve, home):
    home.put("MEMORY.md", "a crane")
    running = await serve(search_settings(sync={"watchDebounceMs": 50}), background=True)
    await eventually(lambda: finds(running, "crane", "MEMORY.md"))
    home.put("USER.md", "born in Oslo")
    await eventually(lambda: finds(running, "Oslo", "USER.md"))


async def finds(running, query, path):
    return path in paths(await running.search(query))


async def test_an_index_from_before_gets_the_user_file_without_embedding_other_texts_again(serve, home):
    with embedding_server() as server:
        remote = {"baseUrl": server.url, "apiKey": "sk-of-this-test"}
        settings = search_settings(provider="openai-compatible", model="words", remote=remote)
        home.put("MEMORY.md", "a heron waits")
        home.write(boat="the red ferry sails")
        running = await serve(settings)
        await running.synced()
        await running.stop()
        asked = len(server.requests)
        home.put("USER.md", "born in Oslo")
        running = await serve(settings)
        completed = await running.synced()
        assert (completed.indexed_files, completed.removed_files) == (1, 0)
        embedded = [text for request in server.requests[asked:] for text in request.texts]
        assert embedded == ["born in Oslo"]
        assert await listed(running) == ["MEMORY.md", "USER.md", "memory/boat.md"]


async def test_repaired_copies_of_files_are_neither_found_nor_read(serve, home):
    home.put("memory/.openclaw-repair/root-memory/2026.md", "a crane of old")
    home.write(a="a crane")
    running = await serve()
    await running.synced()
    assert paths(await running.search("crane")) == ["memory/a.md"]
    await check_refused(
        running.get("memory/.openclaw-repair/root-memory/2026.md"), "PERMISSION_DENIED", "PATH_NOT_ALLOWED"
    )


async def test_both_spellings_of_the_long_term_memory_stay_searchable(serve, home):
    home.put("MEMORY.md", "a crane")
    home.put("memory.md", "a heron")
    running = await serve()
    await running.synced()
    assert paths(await running.search("heron")) == ["memory.md"]
    assert (await running.get("memory.md")).text == "a heron"


async def test_a_citation_of_the_old_spelling_is_answered_by_the_file_that_replaced_it(serve, home):
    home.put("MEMORY.md", "one\ntwo")
    running = await serve()
    reply = await running.get("memory.md", start_line=2)
    assert (reply.path, reply.text, reply.start_line) == ("MEMORY.md", "two", 2)
    (home.workspace / "MEMORY.md").unlink()
    await check_refused(running.get("memory.md"), "NOT_FOUND", "FILE_NOT_FOUND")


async def test_generated_files_are_found_and_dreams_are_only_read(serve, home):
    home.put("DREAMS.md", "a crane in a dream")
    home.put("memory/dreaming/light/2026-02-01.md", "a crane in a report")
    home.put("memory/.dreams/corpus/a.md", "a crane in a corpus")
    running = await serve()
    await running.synced()
    generated = ["memory/.dreams/corpus/a.md", "memory/dreaming/light/2026-02-01.md"]
    assert sorted(paths(await running.search("crane"))) == generated
    assert await listed(running) == generated
    assert (await running.get("DREAMS.md")).text == "a crane in a dream"
    assert not (await running.search("dream")).results


@pytest.fixture
def team(home):
    folder = home.root / "team"
    for name in ("docs/a.md", "docs/x/b.md", "src/c.md", "docs/.d/e.md"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("an avocet")
    return folder


async def test_the_pattern_of_an_extra_path_holds_for_every_call(serve, home, team):
    running = await serve(search_settings(extraPaths=[{"path": "../team", "pattern": "docs/**/*.md"}]))
    await running.synced()
    matching = ["../team/docs/a.md", "../team/docs/x/b.md"]
    assert sorted(paths(await running.search("avocet"))) == matching
    assert await listed(running) == matching
    assert (await running.get("../team/docs/x/b.md")).text == "an avocet"
    for other in ("../team/src/c.md", "../team/docs/.d/e.md"):
        await check_refused(running.get(other), "PERMISSION_DENIED", "PATH_NOT_ALLOWED")
    (team / "docs/a.md").unlink()
    (team / "docs/x/b.md").unlink()
    await running.synced()
    issues = (await running.status()).source_issues
    assert any("matches its pattern: docs/**/*.md" in issue for issue in issues)


async def test_files_outside_a_pattern_that_is_added_leave_the_index(serve, home, team):
    running = await serve(search_settings(extraPaths=["../team"]))
    await running.synced()
    assert len((await running.search("avocet")).results) == 4
    await running.stop()
    running = await serve(search_settings(extraPaths=[{"path": "../team", "pattern": "src/*"}]))
    assert (await running.synced()).removed_files == 3
    assert paths(await running.search("avocet")) == ["../team/src/c.md"]


async def test_a_linked_extra_path_is_not_followed_and_is_reported(serve, home, team):
    (home.root / "link").symlink_to(team)
    running = await serve(search_settings(extraPaths=[{"path": "../link", "pattern": "**"}]))
    await running.synced()
    assert not (await running.search("avocet")).results
    assert any("link is a symbolic link: skipped" in issue for issue in (await running.status()).source_issues)
