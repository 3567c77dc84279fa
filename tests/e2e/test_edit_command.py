"""`memoryd edit`, `history`, `diff` and `undo`, with a daemon in its own process and scripts as editors."""

import hashlib
import json
import re
import stat
from pathlib import Path

import pytest

from daemon_process import memoryd, serving
from memoryd.client import connect
from terminal import converse

EDITS = {"memoryd": {"writes": "edit"}, "agents": {"defaults": {"memorySearch": {"provider": "none"}}}}
NOON = 'sed -i.old s/dawn/noon/ "$copy"'
FERRY = "# Ferry\n\nThe ferry sails at dawn.\n"


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    """A daemon that allows edits. Each test has its own file."""
    home = tmp_path_factory.mktemp("home")
    workspace, state = home / "workspace", home / "state"
    (workspace / "memory").mkdir(parents=True)
    state.mkdir()
    (state / "memoryd.json5").write_text(json.dumps(EDITS))
    with serving(workspace, state, home=home) as served:
        yield served


@pytest.fixture
def editor(tmp_path, monkeypatch):
    """Make a shell script the editor. `$copy` is the file that it edits."""
    monkeypatch.delenv("VISUAL", raising=False)
    # For the copies, some of which are kept.
    monkeypatch.setenv("TMPDIR", str(tmp_path))

    def editor(script):
        file = tmp_path / "an editor"
        file.write_text(f'#!/bin/sh\n[ "$1" = --wait ] || exit 9\ncopy="$2"\n{script}\n')
        file.chmod(0o755)
        monkeypatch.setenv("EDITOR", f"'{file}' --wait")

    return editor


def put(served, path, content):
    file = served.workspace / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(content if isinstance(content, bytes) else content.encode())
    return file


def check(done, *, code=0, out="", err=""):
    assert done.returncode == code, done.stderr
    assert out in done.stdout
    assert err in done.stderr
    return done.stdout


def kept_copy(done):
    """Return the copy that an edit has kept."""
    return Path(re.search(r"your text is in (\S+)", done.stderr)[1])


def versions(served, *arguments):
    return json.loads(check(served.memoryd("history", "--json", *arguments)))["versions"]


def sha256(content):
    return hashlib.sha256(content.encode()).hexdigest()


def test_an_edit_is_written_listed_shown_and_undone(served, editor, tmp_path):
    file = put(served, "memory/ferry.md", FERRY)
    editor(f'echo "$copy" > {tmp_path}/name; ls -ld "$(dirname "$copy")" | cut -c 1-10 >> {tmp_path}/name; {NOON}')
    check(served.memoryd("edit", "memory/ferry.md"), out="Written: memory/ferry.md\n")
    assert file.read_text() == FERRY.replace("dawn", "noon")
    copy, mode = (tmp_path / "name").read_text().split()
    assert (Path(copy).name, mode, Path(copy).parent.exists()) == ("ferry.md", "drwx------", False)
    (listed,) = check(served.memoryd("history", "memory/ferry.md")).splitlines()
    assert re.search(r" replace content  \d+ B -> \d+ B  local  memory/ferry.md$", listed)
    shown = check(served.memoryd("diff", "memory/ferry.md"))
    assert "-The ferry sails at dawn.\n+The ferry sails at noon.\n" in shown
    check(served.memoryd("undo", "memory/ferry.md"), out="Restored: memory/ferry.md\n")
    assert file.read_text() == FERRY


def test_change_by_another_program_during_an_edit_is_kept_and_so_is_the_text(served, editor):
    file = put(served, "memory/conflict.md", "first\n")
    editor(f'echo mine >> "$copy"; echo theirs >> {file}')
    done = served.memoryd("edit", "memory/conflict.md")
    check(done, code=1, err="memory/conflict.md was changed by another program during the edit")
    assert "[CONTENT_CHANGED]" in done.stderr
    assert "\n+theirs\n" in done.stderr
    assert "run `" in done.stderr
    assert "edit memory/conflict.md` again" in done.stderr
    assert file.read_text() == "first\ntheirs\n"
    copy = kept_copy(done)
    assert copy.read_text() == "first\nmine\n"
    assert stat.S_IMODE(copy.parent.stat().st_mode) == 0o700
    assert versions(served, "memory/conflict.md") == []


@pytest.mark.slow
def test_a_new_file_is_created_and_an_undo_deletes_it(served, editor):
    editor('test -f "$copy" && test ! -s "$copy" && echo new > "$copy"')
    done = check(served.memoryd("edit", "memory/deep/new.md", "--json"))
    file = served.workspace / "memory/deep/new.md"
    assert file.read_text() == "new\n"
    assert json.loads(done)["contentSha256"] == sha256("new\n")
    assert re.search(r" create +- -> 4 B +local +memory/deep/new\.md\n", check(served.memoryd("history")))
    check(served.memoryd("undo", "memory/deep/new.md"), out="Deleted: memory/deep/new.md")
    assert not file.exists()
    check(served.memoryd("undo", "memory/deep/new.md"), out="Restored: memory/deep/new.md")
    assert file.read_text() == "new\n"


@pytest.mark.slow
def test_an_unchanged_text_is_not_written(served, editor):
    file = put(served, "memory/same.md", "no line feed at the end")
    before = file.stat()
    for script in ("true", 'cp "$copy" "$copy.new"; mv "$copy.new" "$copy"', 'rm "$copy"'):
        editor(script)
        check(served.memoryd("edit", "memory/same.md"), out="No change: memory/same.md\n")
    done = json.loads(check(served.memoryd("edit", "memory/same.md", "--json")))
    assert (done["versionId"], done["contentSha256"]) == ("", sha256("no line feed at the end"))
    assert file.stat() == before
    editor("true")
    check(served.memoryd("edit", "memory/absent.md"), out="No change: memory/absent.md\n")
    assert not (served.workspace / "memory/absent.md").exists()


@pytest.mark.slow
def test_nothing_is_written_if_the_editor_fails(served, editor, monkeypatch):
    file = put(served, "memory/failed.md", FERRY)
    editor('echo more >> "$copy"; exit 3')
    done = served.memoryd("edit", "memory/failed.md")
    check(done, code=1, err="the editor ended with status 3; nothing was written")
    assert kept_copy(done).read_text() == f"{FERRY}more\n"
    editor("exit 3")
    assert "your text" not in served.memoryd("edit", "memory/failed.md").stderr
    monkeypatch.setenv("EDITOR", "/nowhere/editor")
    check(served.memoryd("edit", "memory/failed.md"), code=1, err="cannot start the editor '/nowhere/editor'")
    monkeypatch.setenv("EDITOR", "'")
    check(served.memoryd("edit", "memory/failed.md"), code=2, err="is not a command")
    monkeypatch.setenv("EDITOR", " ")
    check(served.memoryd("edit", "memory/failed.md"), code=2, err="neither $VISUAL nor $EDITOR is set")
    assert file.read_text() == FERRY


@pytest.mark.slow
def test_visual_takes_precedence_over_editor(served, editor, monkeypatch):
    file = put(served, "memory/visual.md", "a\n")
    editor("exit 3")
    monkeypatch.setenv("VISUAL", "sed -i.old s/a/b/")
    check(served.memoryd("edit", "memory/visual.md"), out="Written")
    assert file.read_text() == "b\n"


@pytest.mark.slow
def test_files_and_texts_that_are_not_utf8_are_refused(served, editor, tmp_path):
    file = put(served, "memory/latin.md", b"caf\xe9\n")
    editor(f"touch {tmp_path}/started")
    check(served.memoryd("edit", "memory/latin.md"), code=1, err="memory/latin.md contains bytes that are not UTF-8")
    assert not (tmp_path / "started").exists()
    file.write_text("café\n")
    editor(r"""printf 'caf\351' > "$copy" """)
    done = served.memoryd("edit", "memory/latin.md")
    check(done, code=1, err="not valid UTF-8")
    assert Path(re.search(r"it is in (\S+)", done.stderr)[1]).read_bytes() == b"caf\xe9"
    editor(r"""printf 'a\000b' > "$copy" """)
    done = served.memoryd("edit", "memory/latin.md")
    check(done, code=2, err="[INVALID_REQUEST]")
    assert kept_copy(done).read_bytes() == b"a\0b"
    assert file.read_text() == "café\n"


@pytest.mark.slow
def test_a_file_of_several_pages_is_edited_as_a_whole(served, editor):
    text = "".join(f"line {number} \r\n\n" for number in range(3_000)) + "x" * 200_000
    file = put(served, "memory/long.md", text)
    editor('printf "\\n\\nend" >> "$copy"')
    check(served.memoryd("edit", "memory/long.md"), out="Written")
    assert file.read_bytes() == f"{text}\n\nend".encode()
    put(served, "memory/wide.md", "x" * 300_000)
    check(served.memoryd("edit", "memory/wide.md"), code=1, err="a line that is too long")


@pytest.mark.slow
def test_paths_that_are_not_allowed_are_refused_before_the_editor_starts(served, editor, tmp_path):
    editor(f"touch {tmp_path}/started")
    for path in ("/etc/passwd", "../x.md", "notes.txt"):
        check(served.memoryd("edit", path), code=4, err="[PATH_NOT_ALLOWED]")
    assert not (tmp_path / "started").exists()


@pytest.mark.slow
def test_edits_that_are_disabled_are_refused_before_the_editor_starts(editor, tmp_path):
    """Without a running daemon, too."""
    editor(f"touch {tmp_path}/started")
    workspace, state = tmp_path / "w", tmp_path / "s"
    (workspace / "memory").mkdir(parents=True)
    (workspace / "memory" / "a.md").write_text(FERRY)
    flags = ("--workspace", workspace, "--state-dir", state)
    check(memoryd("edit", "memory/a.md", *flags, home=tmp_path), code=6, err='`memoryd.writes: "edit"`')
    assert not (tmp_path / "started").exists()
    check(memoryd("history", *flags, home=tmp_path), out="The history has no writes.")
    (state / "memoryd.json5").write_text(json.dumps(EDITS))
    editor('echo more >> "$copy"')
    check(memoryd("edit", "memory/a.md", *flags, home=tmp_path), out="Written")
    check(memoryd("undo", "memory/a.md", *flags, home=tmp_path), out="Restored")
    assert (workspace / "memory" / "a.md").read_text() == FERRY


@pytest.mark.slow
def test_an_undo_of_a_move_moves_the_file_back(served):
    put(served, "memory/from.md", FERRY)
    with connect(served.address) as client:
        client.move(path="memory/from.md", new_path="memory/to.md", expected_sha256=sha256(FERRY))
    check(served.memoryd("history", "memory/to.md"), out="memory/from.md -> memory/to.md")
    check(served.memoryd("diff", "memory/to.md"), err="did not change the content")
    # Undone by its old path, and although the file was changed since.
    put(served, "memory/to.md", "other\n")
    check(served.memoryd("undo", "memory/from.md"), out="Moved back: memory/to.md -> memory/from.md")
    assert (served.workspace / "memory/from.md").read_text() == "other\n"
    assert not (served.workspace / "memory/to.md").exists()
    check(served.memoryd("undo", "memory/from.md"), out="Moved back: memory/from.md -> memory/to.md")


@pytest.mark.slow
def test_a_path_with_a_line_break_is_listed_on_one_line(served):
    path = "memory/a\n2026-01-01\tb.md"
    with connect(served.address) as client:
        client.write(path=path, content="x\n")
    (listed,) = check(served.memoryd("history", path)).splitlines()
    assert listed.endswith("  local  memory/a 2026-01-01 b.md")


@pytest.mark.slow
def test_an_undo_that_discards_other_changes_needs_force_and_loses_nothing(served, editor):
    file = put(served, "memory/later.md", "one\n")
    editor('echo two > "$copy"')
    check(served.memoryd("edit", "memory/later.md"))
    file.write_text("three\n")
    done = served.memoryd("undo", "memory/later.md", "--yes")
    check(done, code=1, err="memory/later.md was changed after this write")
    assert file.read_text() == "three\n"
    check(served.memoryd("undo", "memory/later.md", "--force"), out="Restored")
    assert file.read_text() == "one\n"
    check(served.memoryd("undo", "memory/later.md"), out="Restored")
    assert file.read_text() == "three\n"
    file.unlink()
    check(served.memoryd("undo", "memory/later.md"), code=1, err="was deleted or moved after this write")


@pytest.mark.slow
def test_a_diff_says_that_its_content_was_removed_from_the_history(served, editor):
    put(served, "memory/secret.md", "the removed word\n")
    editor('echo none > "$copy"')
    check(served.memoryd("edit", "memory/secret.md"))
    with connect(served.address) as client:
        client.forget(text="the removed word")
    check(served.memoryd("diff", "memory/secret.md"), err="the history no longer has the content")
    check(served.memoryd("undo", "memory/secret.md"), code=3, err="the history no longer has the content")


@pytest.mark.slow
def test_an_earlier_write_is_undone_by_its_id(served, editor):
    file = put(served, "memory/ids.md", "one\n")
    for word in ("two", "three"):
        editor(f'echo {word} > "$copy"')
        check(served.memoryd("edit", "memory/ids.md"))
    newest, first = versions(served, "memory/ids.md", "--diff")
    assert "-two\n+three\n" in newest["diff"]
    assert [first["beforeSha256"], first["afterSha256"]] == [sha256("one\n"), sha256("two\n")]
    assert versions(served, "memory/ids.md", "--limit", "1")[0]["versionId"] == newest["versionId"]
    check(served.memoryd("diff", first["versionId"]), out="-one\n+two\n")
    check(served.memoryd("history", "memory/ids.md", "--diff"), out="-one\n+two\n")
    check(served.memoryd("undo", first["versionId"]), code=1, err="--force")
    done = check(served.memoryd("undo", first["versionId"], "--force", "--json"))
    assert json.loads(done)["contentSha256"] == sha256("one\n")
    assert file.read_text() == "one\n"


@pytest.mark.slow
def test_a_write_that_does_not_exist_is_not_found(served):
    for verb in ("diff", "undo"):
        check(served.memoryd(verb, "memory/none.md"), code=3, err="the history has no write to memory/none.md")
        check(served.memoryd(verb, "nowrite"), code=3, err="nowrite")
        check(served.memoryd(verb, " "), code=2, err="the argument is empty")
    check(served.memoryd("history", "memory/none.md"), out="The history has no write to memory/none.md.")


@pytest.mark.slow
def test_an_undo_at_a_terminal_shows_the_write_and_asks(served, editor):
    file = put(served, "memory/asked.md", "one\n")
    editor('echo two > "$copy"')
    check(served.memoryd("edit", "memory/asked.md"))
    verb = ("undo", "memory/asked.md", "--state-dir", served.state)
    code, shown = converse(*verb, home=served.home, answers=[("Undo it?", "n")])
    assert (code, file.read_text()) == (1, "two\n")
    assert "Undo this write: " in shown
    assert "-one\n+two\n" in shown
    assert "nothing was changed" in shown
    code, _ = converse(*verb, home=served.home, answers=[("Undo it?", "y")])
    assert (code, file.read_text()) == (0, "one\n")
    code, _ = converse(*verb, "--yes", home=served.home, answers=[])
    assert (code, file.read_text()) == (0, "two\n")
