"""`memoryd import` of conversations: what it prints, its exit statuses, and that the daemon finds what it wrote."""

import json
import zipfile

import pytest

from daemon_process import end, memoryd, start

SESSION = "0b7e3c52-6c1f-4f57-9d9f-000000000001"
SECRET = "ghp_0123456789abcdefghijABCDEFGHIJ012345"


def records(*texts):
    """The lines of a session of Claude Code, in which user and assistant speak in turn."""
    parent = None
    for number, text in enumerate(texts):
        role = "assistant" if number % 2 else "user"
        content = [{"type": "text", "text": text}] if number % 2 else text
        own = f"00000000-0000-4000-8000-{number:012}"
        yield json.dumps(
            {
                "type": role,
                "uuid": own,
                "parentUuid": parent,
                "sessionId": SESSION,
                "timestamp": f"2025-05-01T10:{number:02}:00.000Z",
                "cwd": "/home/me/harbour",
                "isSidechain": False,
                "message": {"role": role, "content": content},
            }
        )
        parent = own


class Import:
    """A home with one session of Claude Code, a workspace and a state directory."""

    def __init__(self, places):
        self.home, self.workspace, self.state = places
        folder = self.home / ".claude" / "projects" / "-home-me-harbour"
        folder.mkdir(parents=True)
        self.session = folder / f"{SESSION}.jsonl"

    def write(self, *texts):
        self.session.write_text("".join(f"{line}\n" for line in records(*texts)))

    def run(self, *arguments):
        state = ("--state-dir", self.state, "--workspace", self.workspace)
        return memoryd("import", "claude-code", *arguments, *state, home=self.home)

    def notes(self):
        return sorted((self.workspace / "memory" / "imported").rglob("*.md"))


@pytest.fixture
def imported(places):
    imported = Import(places)
    imported.write("Where does the pelican nest?", f"On the pier; the token is {SECRET}.")
    return imported


@pytest.mark.slow
def test_an_imported_conversation_is_found_by_the_running_daemon(imported):
    daemon = start(imported.workspace, imported.state, home=imported.home)
    try:
        dry = imported.run("--dry-run")
        assert (dry.returncode, imported.notes()) == (0, [])
        assert dry.stdout.splitlines()[1].startswith("Would import 1 conversation: 1 new, 0 updated (")
        done = imported.run()
        assert (done.returncode, done.stderr) == (0, "")
        lines = done.stdout.splitlines()
        assert lines[0] == f"Reading {imported.home}/.claude/projects."
        assert lines[1].startswith("Imported 1 conversation: 1 new, 0 updated (")
        assert lines[2] == f"Written to {imported.workspace}."
        (note,) = imported.notes()
        assert dry.stdout.splitlines()[2].strip() == note.relative_to(imported.workspace).as_posix()
        daemon.memoryd("index")
        found = daemon.memoryd("search", "pelican nest").stdout
        assert note.relative_to(imported.workspace).as_posix() in found
        assert SECRET not in found + note.read_text()
    finally:
        end(daemon.process)


@pytest.mark.slow
def test_a_repeated_import_changes_nothing_and_a_grown_session_replaces_its_note(imported):
    imported.run(imported.session)
    (note,) = imported.notes()
    before = (note.read_bytes(), note.stat())
    again = imported.run(imported.session)
    assert again.stdout == "Imported 1 conversation: 0 new, 0 updated (0 B), 1 unchanged.\n"
    assert (note.read_bytes(), note.stat()) == before
    imported.write("Where does the pelican nest?", "On the pier.", "And the heron?")
    report = json.loads(imported.run(imported.session, "--json").stdout)
    assert {key: report[key] for key in ("agent", "place", "dryRun", "new", "updated", "unchanged", "messages")} == {
        "agent": "main",
        "place": str(imported.workspace),
        "dryRun": False,
        "new": 0,
        "updated": 1,
        "unchanged": 0,
        "messages": 3,
    }
    assert imported.notes() == [note]
    assert "And the heron?" in note.read_text()


@pytest.mark.slow
def test_an_edited_note_is_listed_and_the_status_is_1_until_it_is_replaced(imported):
    imported.run()
    (note,) = imported.notes()
    note.write_text(note.read_text() + "\nmy remark\n")
    imported.write("Where does the pelican nest?", "On the pier.", "And the heron?")
    kept = imported.run()
    assert kept.returncode == 1
    path = note.relative_to(imported.workspace).as_posix()
    assert f"memoryd: {path} was edited after its import, and was kept; --replace replaces it" in kept.stderr
    assert kept.stdout.splitlines()[1].endswith("0 unchanged; 1 left out.")
    assert "my remark" in note.read_text()
    assert imported.run("--replace").returncode == 0
    assert "my remark" not in note.read_text()


def test_damaged_lines_are_named_and_the_rest_is_imported(imported):
    with imported.session.open("a") as file:
        file.write('{"type": "user", "mess')
    done = imported.run()
    assert done.returncode == 1
    assert f"{SESSION}.jsonl" in done.stderr
    assert len(imported.notes()) == 1


def test_archive_that_was_left_out_is_named_and_the_rest_is_imported(imported):
    with zipfile.ZipFile(imported.session.with_name("older.zip"), "w") as archive:
        archive.write(imported.session, imported.session.name)
    done = imported.run()
    assert done.returncode == 1
    assert "older.zip" in done.stderr
    assert len(imported.notes()) == 1


@pytest.mark.slow
def test_sessions_are_found_if_the_settings_index_them(imported):
    done = imported.run("--to", "sessions")
    assert done.returncode == 0
    assert 'memory.search.sources to ["memory", "sessions"]' in done.stdout
    assert imported.notes() == []
    search = {"experimental": {"sessionMemory": True}, "sources": ["memory", "sessions"]}
    (imported.state / "memoryd.json5").write_text(json.dumps({"memory": {"search": search}}))
    again = imported.run("--to", "sessions")
    assert again.stdout.splitlines()[1:] == ["Imported 1 conversation: 0 new, 0 updated (0 B), 1 unchanged."]
    daemon = start(imported.workspace, imported.state, home=imported.home)
    try:
        daemon.memoryd("index")
        found = daemon.memoryd("search", "pelican nest").stdout
        assert f"sessions/import-claude-code-{SESSION}.jsonl" in found
        assert SECRET not in found
    finally:
        end(daemon.process)


@pytest.mark.slow
def test_conversations_before_a_day_are_left_out(imported):
    done = imported.run("--since", "2025-05-02")
    assert done.stdout.splitlines()[1].endswith("0 unchanged; 1 before 2025-05-02.")
    assert imported.notes() == []


@pytest.mark.parametrize("origin", ["chatgpt", "claude", "claude-code", "codex"])
def test_a_folder_without_files_of_the_format_is_an_error(places, origin):
    home, workspace, state = places
    state_options = ("--state-dir", state, "--workspace", workspace)
    done = memoryd("import", origin, workspace, *state_options, home=home)
    assert (done.returncode, done.stdout) == (2, "")
    assert f"nothing to import in {workspace}" in done.stderr
