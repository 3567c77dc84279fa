"""ListFiles with `include_excluded`: what rules exclude, with the rule of ExplainMiss; and the date of each file."""

import json
import os

import pytest

from memoryd.v1 import memory_pb2
from memoryd.v1 import memory_service_pb2 as pb
from memoryd_server.sources.ignore import IGNORE_FILE, MOST_RULES
from rpc.wire import TIMEOUT

SESSIONS = {"experimental": {"sessionMemory": True}, "sources": ["memory", "sessions"]}
EXCLUDED = pb.FILE_STATE_EXCLUDED


def searching(**options):
    return {"agents": {"defaults": {"memorySearch": options}}}


async def listed(running, **request):
    """Return every file of every page, by path."""
    files, token = [], ""
    while True:
        page = await running.files(page_token=token, **request)
        files += page.files
        token = page.next_page_token
        if not token:
            assert [file.path for file in files] == sorted({file.path for file in files})
            return {file.path: file for file in files}


async def excluded(running, **request):
    files = await listed(running, include_excluded=True, **request)
    found = {path: file.rule for path, file in files.items() if file.state == EXCLUDED}
    assert not any(file.rule for file in files.values() if file.state != EXCLUDED)
    assert {path for path in files if path not in found} == set(await listed(running, **request)) - set(found)
    return found


async def explained(running, path):
    search = pb.MemorySearchRequest(query="heron")
    return await running.stub.ExplainMiss(pb.ExplainMissRequest(path=path, search=search), timeout=TIMEOUT)


async def test_excluded_files_and_folders_are_listed_on_request_with_the_rule_of_explain_miss(serve, home):
    home.put(IGNORE_FILE, "drafts/\n*.tmp.md\n")
    for path in (
        "memory/a.md",
        "memory/b.tmp.md",
        "memory/drafts/c.md",
        "code/docs/d.md",
        "code/e.md",
        "code/src/f.md",
    ):
        home.put(path, "a heron")
    running = await serve(searching(extraPaths=[{"path": "code", "pattern": "docs/*.md"}]))
    await running.synced()
    assert set(await listed(running)) == {"memory/a.md", "code/docs/d.md"}
    rules = await excluded(running)
    assert rules == {
        "memory/b.tmp.md": ".memoryignore:2: *.tmp.md",
        "memory/drafts/": ".memoryignore:1: drafts/",
        "code/e.md": "docs/*.md",
        "code/src/": "docs/*.md",
    }
    files = {"memory/drafts/": "memory/drafts/c.md", "code/src/": "code/src/f.md"}
    for path, rule in rules.items():
        answer = await explained(running, files.get(path, path))
        assert (answer.reason, answer.rule) == (pb.MISS_REASON_EXCLUDED, rule), path


async def test_a_file_that_the_index_has_until_the_next_sync_is_excluded_and_not_gone(serve, home):
    home.write(a="a heron", b="a gull")
    running = await serve()
    await running.synced()
    home.put(IGNORE_FILE, "a.md\n")
    assert (await listed(running))["memory/a.md"].state == pb.FILE_STATE_GONE
    file = (await listed(running, include_excluded=True))["memory/a.md"]
    assert (file.state, file.chunks, file.size_bytes) == (EXCLUDED, 1, 7)
    assert file.rule == ".memoryignore:1: a.md"
    await running.synced()
    file = (await listed(running, include_excluded=True))["memory/a.md"]
    assert (file.state, file.chunks, file.HasField("modified_time")) == (EXCLUDED, 0, False)


async def test_links_and_second_names_are_listed_with_the_reason(serve, home):
    home.put(IGNORE_FILE, "drafts/\n")
    home.write(a="a heron")
    memory, outside = home.workspace / "memory", home.root / "outside"
    outside.mkdir()
    (outside / "secret.md").write_text("a heron")
    (memory / "drafts").symlink_to(outside)
    (memory / "link.md").symlink_to(outside / "secret.md")
    (memory / "b.md").hardlink_to(memory / "a.md")
    running = await serve()
    await running.synced()
    rules = await excluded(running)
    assert rules == {
        "memory/drafts": "symbolic links are not read",
        "memory/link.md": "symbolic links are not read",
        "memory/b.md": "it is another name of a file that the index has under its first name",
    }
    assert (await explained(running, "memory/b.md")).explanation == rules["memory/b.md"]
    assert (await explained(running, "memory/drafts/secret.md")).reason == pb.MISS_REASON_LINK


async def test_excluded_transcripts_are_listed_with_the_reason(serve, home):
    message = json.dumps({"type": "message", "message": {"role": "user", "content": "a heron"}}) + "\n"
    folder = home.say("kept.jsonl", message).parent
    home.say("cron.jsonl", message)
    (folder / "sessions.json").write_text(json.dumps({"agent:main:cron:daily:run:1": {"sessionId": "cron"}}))
    running = await serve(searching(**SESSIONS))
    await running.synced()
    assert set(await listed(running)) == {"sessions/kept.jsonl"}
    rules = await excluded(running)
    assert set(rules) == {"sessions/cron.jsonl"}
    answer = await explained(running, "sessions/cron.jsonl")
    assert (answer.reason, answer.explanation) == (pb.MISS_REASON_EXCLUDED, rules["sessions/cron.jsonl"])
    assert await excluded(running, sources=[memory_pb2.SOURCE_SESSIONS]) == rules
    assert await excluded(running, sources=[memory_pb2.SOURCE_MEMORY]) == {}


async def test_conditions_apply_to_excluded_files(serve, home):
    home.put(IGNORE_FILE, "drafts/\n2026-05-*\n")
    for name in ("2026-05-01.md", "2026-06-01.md", "drafts/a.md"):
        home.put(f"memory/{name}", "a heron")
    home.put("notes/2026-05-02.md", "---\ntags: x\n---\na heron")
    home.put(f"notes/{IGNORE_FILE}", "*.md\n")
    running = await serve(searching(extraPaths=["notes"]))
    await running.synced()

    async def found(**conditions):
        return sorted(await excluded(running, filter=pb.MemoryFilter(**conditions)))

    assert await found() == ["memory/2026-05-01.md", "memory/drafts/", "notes/2026-05-02.md"]
    assert await found(path_prefixes=["memory/"]) == ["memory/2026-05-01.md", "memory/drafts/"]
    assert await found(since="2026-05", until="2026-05") == ["memory/2026-05-01.md", "notes/2026-05-02.md"]
    assert await found(since="1970") == ["memory/2026-05-01.md", "notes/2026-05-02.md"]
    assert await found(front_matter=[pb.FrontMatterCondition(key="tags", values=["x"])]) == []


async def test_an_ignore_file_that_cannot_be_used_excludes_nothing_and_is_listed_as_failed(serve, home):
    home.write(a="a heron", b="a gull")
    running = await serve()
    await running.synced()
    home.put(IGNORE_FILE, "a.md\n" * (MOST_RULES + 1))
    assert await excluded(running) == {}
    files = await listed(running, include_excluded=True)
    assert files[IGNORE_FILE].state == pb.FILE_STATE_FAILED
    assert "rules" in files[IGNORE_FILE].error
    (home.workspace / IGNORE_FILE).unlink()
    (home.workspace / IGNORE_FILE).symlink_to(home.root / "rules")
    (home.root / "rules").write_text("a.md\n")
    assert await excluded(running) == {}


async def test_names_and_rules_that_are_not_utf_8_break_no_list(serve, home):
    (home.workspace / IGNORE_FILE).write_bytes(b"caf\xe9*\n")
    memory = home.workspace / "memory"
    name = os.fsdecode(b"caf\xe9")
    (memory / name).mkdir()
    for path in (f"{name}.md", f"{name}/a.md", os.fsdecode(b"other\xe9.md")):
        (memory / path).write_text("a heron")
    running = await serve()
    await running.synced()
    rule = r".memoryignore:1: caf\xe9*"
    assert await excluded(running) == {r"memory/caf\xe9.md": rule, r"memory/caf\xe9/": rule}


async def test_a_rule_of_64_kib_is_cut(serve, home):
    home.put(IGNORE_FILE, "[!" + "x" * 60_000 + "]*.md\n!memory\n")
    home.write(**{f"n{number}": "" for number in range(300)})
    running = await serve()
    rules = await excluded(running, page_size=1_000)
    assert len(rules) == 300
    assert max(map(len, rules.values())) < 5_000
    assert {(await explained(running, "memory/n1.md")).rule} == set(rules.values())


@pytest.mark.slow
async def test_pages_of_many_excluded_files_hold_each_once_and_are_of_one_list(serve, home):
    folder = home.workspace / "memory" / "many"
    folder.mkdir()
    for number in range(20_000):
        (folder / f"{number:05}.md").touch()
    home.write(a="a heron")
    home.put(IGNORE_FILE, "/memory/many/*\n")
    running = await serve()
    await running.synced()
    first = await running.files(page_size=1_000, include_excluded=True)
    home.write(**{"a-new": "a gull"})
    files, token = list(first.files), first.next_page_token
    while token:
        page = await running.files(page_size=1_000, page_token=token, include_excluded=True)
        files, token = [*files, *page.files], page.next_page_token
    assert len(files) == len({file.path for file in files}) == 20_001
    assert sum(file.state == EXCLUDED for file in files) == 20_000
    # A list without what is excluded is another one.
    assert [file.path for file in (await running.files(page_size=1)).files] == ["memory/a-new.md"]


@pytest.mark.parametrize("agent_id", ["main", "other"])
async def test_agents_list_what_is_excluded_of_their_own_only(serve, home, agent_id):
    for name, workspace in (("main", home.workspace), ("other", home.root / "other")):
        (workspace / "memory").mkdir(parents=True, exist_ok=True)
        (workspace / IGNORE_FILE).write_text(f"{name}.md\n")
        (workspace / "memory" / f"{name}.md").write_text("a heron")
    running = await serve(
        {"agents": {"list": [{"id": "main"}, {"id": "other", "workspace": str(home.root / "other")}]}}
    )
    assert await excluded(running, agent_id=agent_id) == {f"memory/{agent_id}.md": f".memoryignore:1: {agent_id}.md"}


async def test_each_file_is_listed_by_a_filter_of_its_date_alone(serve, home):
    home.put(IGNORE_FILE, "ignored*\n2024-02-*\ndrafts/\n")
    home.write(
        **{
            "2026-05-01-named": "---\ndate: 2020-01-01\n---\na",
            "front": "---\ndate: 2025-03-04\n---\na",
            "plain": "a",
            "touched": "a",
            "stale": "a",
            "gone": "a",
            "2026-99-99": "no date of the calendar",
            "too-large": "x" * 500,
            "ignored": "a",
            "2024-02-03-ignored": "a",
            "old": "a",
        }
    )
    home.put("memory/drafts/a.md", "a")
    home.say("s.jsonl", json.dumps({"type": "message", "message": {"role": "user", "content": "a"}}) + "\n")
    memory = home.workspace / "memory"
    os.utime(memory / "touched.md", (1_700_000_000, 1_700_000_000))
    os.utime(memory / "old.md", (-86_400 * 365, -86_400 * 365))
    running = await serve({**searching(**SESSIONS), "memoryd": {"limits": {"maxFileBytes": 400}}})
    await running.synced()
    os.utime(memory / "stale.md", (1_600_000_000, 1_600_000_000))
    (memory / "gone.md").unlink()
    home.write(**{"pending": "a", "2023-01-02-pending": "a", "pending-front": "---\ndate: 2022-01-01\n---\n"})
    os.utime(memory / "pending.md", (1_650_000_000, 1_650_000_000))
    files = await listed(running, include_excluded=True)
    dates = {path.removeprefix("memory/"): file.date for path, file in files.items()}
    today = dates["plain.md"]
    assert today >= "2026"
    assert dates == {
        "2026-05-01-named.md": "2026-05-01",
        "front.md": "2025-03-04",
        "plain.md": today,
        "touched.md": "2023-11-14",
        "stale.md": today,
        "gone.md": today,
        "2026-99-99.md": today,
        "too-large.md": today,
        "ignored.md": "",
        "2024-02-03-ignored.md": "2024-02-03",
        "old.md": "1969-01-01",
        "drafts/": "",
        "pending.md": "2022-04-15",
        "2023-01-02-pending.md": "2023-01-02",
        "pending-front.md": today,
        "sessions/s.jsonl": today,
    }
    for day in sorted(set(dates.values()) - {""}):
        found = await listed(running, include_excluded=True, filter=pb.MemoryFilter(since=day, until=day))
        assert {path.removeprefix("memory/") for path in found} == {path for path in dates if dates[path] == day}, day
