"""Imports of conversations as notes in a folder: repeated, grown, edited, forgotten and interrupted ones."""

import re
from datetime import timedelta

import pytest

from imported import START, conversation, document
from memoryd_server.errors import FileBusy, FileNotFound
from memoryd_server.imports import (
    FolderNotes,
    ImportOptions,
    NoteImport,
    NoteOptions,
    import_all,
)
from memoryd_server.imports.conversation import Unreadable
from memoryd_server.sources import Roots, path_without_title

MOST = 1 << 20
FOLDER = "memory/imported/chatgpt"


class Imports:
    """A workspace into which conversations are imported."""

    def __init__(self, workspace):
        self.workspace = workspace
        workspace.mkdir()

    def run(self, *items, forgotten=(), since=None, **options):
        """Import items, and return the report."""
        options = NoteOptions(**{"most_bytes": MOST, **options})
        store = FolderNotes(Roots(str(self.workspace)), MOST, dry_run=options.dry_run)
        with store.locked():
            return import_all(items, NoteImport(store, forgotten, options), ImportOptions(since))

    def files(self):
        """The files of the workspace with their contents, times and inodes."""
        found = (path for path in sorted(self.workspace.rglob("*")) if not path.is_dir())
        return {
            path.relative_to(self.workspace).as_posix(): (
                path.read_bytes(),
                path.stat().st_mtime_ns,
                path.stat().st_ino,
            )
            for path in found
        }

    def only(self):
        """The path of the only file."""
        (path,) = self.files()
        return self.workspace / path


@pytest.fixture
def imports(tmp_path):
    return Imports(tmp_path / "w")


def counts(report):
    return {effect.value: count for effect, count in report.counts.items() if count}


def test_a_conversation_becomes_a_note_with_its_time(imports):
    report = imports.run(conversation("a", "b"))
    assert counts(report) == {"new": 1}
    assert report.messages == 2
    path = imports.only()
    assert path.relative_to(imports.workspace).as_posix() == report.paths[0]
    assert re.fullmatch(rf"{FOLDER}/2025-03-14-backups-of-the-gateway-[0-9a-f]{{8}}\.md", report.paths[0])
    assert path.stat().st_mtime_ns == int((START + timedelta(minutes=1)).timestamp()) * 1_000_000_000
    assert report.written_bytes == path.stat().st_size


def test_the_same_import_twice_changes_nothing(imports):
    items = [conversation("a", own="1"), conversation("b", own="2", start=None), document("text")]
    imports.run(*items)
    before = imports.files()
    report = imports.run(*items)
    assert counts(report) == {"unchanged": 3}
    assert (report.paths, report.written_bytes) == ([], 0)
    assert imports.files() == before


def test_a_conversation_twice_in_one_import_is_written_once(imports):
    report = imports.run(conversation("a"), conversation("a"))
    assert counts(report) == {"new": 1, "unchanged": 1}
    assert counts(imports.run(conversation("a", "b"), conversation("a", "b"), dry_run=True)) == {
        "updated": 1,
        "unchanged": 1,
    }
    other = Imports(imports.workspace.with_name("other"))
    assert counts(other.run(conversation("a"), conversation("a"), dry_run=True)) == {"new": 1, "unchanged": 1}


def test_two_states_of_a_conversation_in_one_export_do_not_alternate(imports):
    states = [conversation("a", "b"), conversation("a", "x"), conversation("a")]
    assert counts(imports.run(*states)) == {"new": 1, "older": 2}
    before = imports.files()
    assert counts(imports.run(*states)) == {"unchanged": 1, "older": 2}
    assert imports.files() == before
    assert counts(imports.run(states[1])) == {"updated": 1}


def test_a_conversation_that_has_grown_replaces_its_note_which_keeps_its_name(imports):
    imports.run(conversation("a", "b"))
    path = imports.only()
    path.chmod(0o640)
    report = imports.run(conversation("a", "b", "c", title="Another title"))
    assert counts(report) == {"updated": 1}
    assert imports.only() == path
    assert "# Another title\n" in path.read_text()
    assert "\n\nc\n" in path.read_text()
    assert path.stat().st_mtime_ns == int((START + timedelta(minutes=2)).timestamp()) * 1_000_000_000
    assert path.stat().st_mode & 0o777 == 0o640


@pytest.mark.parametrize(
    ("old", "new"),
    [("\n\na\n", "\n\nA\n"), ("messages:", "tags: [mine]\nmessages:"), ("---\n", ""), ("\n", "\r\n")],
)
def test_an_edited_note_is_kept_until_it_is_to_be_replaced(imports, old, new):
    imports.run(conversation("a", "b"))
    path = imports.only()
    edited = path.read_bytes().replace(old.encode(), new.encode())
    path.write_bytes(edited)
    report = imports.run(conversation("a", "b", "c"))
    assert counts(report) == {"conflict": 1}
    assert not report.is_complete
    assert list(report.conflicts) == [path.relative_to(imports.workspace).as_posix()]
    assert path.read_bytes() == edited
    assert counts(imports.run(conversation("a", "b", "c"), replace=True)) == {"updated": 1}
    assert "\n\nc\n" in imports.only().read_text()
    assert counts(imports.run(conversation("a", "b", "c"))) == {"unchanged": 1}


@pytest.mark.parametrize("replace", [False, True])
@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("\n\nb\n", "\n\nb\nmine\n"),
        ("messages:", "tags: x\nmessages:"),
        ("\n---\n", "\ntags: x\n---\n"),
        ("\n", "\r\n"),
    ],
)
def test_an_edited_note_is_no_conflict_if_the_conversation_has_not_changed(imports, old, new, replace):
    imports.run(conversation("a", "b"))
    path = imports.only()
    path.write_bytes(path.read_bytes().replace(old.encode(), new.encode()))
    before = imports.files()
    assert counts(imports.run(conversation("a", "b"), replace=replace)) == {"unchanged": 1}
    assert imports.files() == before


@pytest.mark.parametrize("replace", [False, True])
def test_an_older_export_replaces_nothing(imports, replace):
    imports.run(conversation("a", "b", "c"))
    before = imports.files()
    assert counts(imports.run(conversation("a", "b"), replace=replace)) == {"older": 1}
    assert imports.files() == before


def test_without_times_the_conversation_with_more_messages_is_newer(imports):
    imports.run(conversation("a", "b", "c", start=None))
    assert counts(imports.run(conversation("a", "b", start=None))) == {"older": 1}
    assert counts(imports.run(conversation("a", "b", "c", "d", start=None))) == {"updated": 1}


def test_a_document_with_another_text_replaces_the_older_one(imports):
    imports.run(document("likes tea"))
    assert counts(imports.run(document("likes coffee"))) == {"updated": 1}
    assert "likes coffee" in imports.only().read_text()


def test_a_document_and_a_conversation_can_have_the_same_id(imports):
    report = imports.run(document("text", own="1", origin="claude"), conversation("a", own="1", origin="claude"))
    assert counts(report) == {"new": 2}


# Two ids whose SHA-256 begin with the same eight hexadecimal digits.
SAME_KEY = ("id-10014", "id-22672")


def test_conversations_with_the_same_short_key_have_different_notes(imports):
    one, two = (conversation("a", own=own, title="t") for own in SAME_KEY)
    report = imports.run(one, two)
    assert counts(report) == {"new": 2}
    first, second = sorted(imports.files(), key=len)
    assert len(second) == len(first) + 8
    assert counts(imports.run(two, one)) == {"unchanged": 2}
    grown = conversation("a", "b", own=SAME_KEY[1], title="t")
    assert counts(imports.run(grown)) == {"updated": 1}
    assert len(imports.files()) == 2


def test_a_forgotten_note_is_not_written_again_also_with_another_title(imports):
    path = imports.run(conversation("a")).paths[0]
    imports.only().unlink()
    assert counts(imports.run(conversation("a", title="x"), forgotten=[path])) == {"forgotten": 1}
    assert counts(imports.run(conversation("a", own="2"), forgotten=[path])) == {"new": 1}


def test_a_conversation_with_the_same_short_key_as_a_forgotten_one_is_imported(imports):
    one, two = (conversation("a", own=own, title="t") for own in SAME_KEY)
    _, longer = imports.run(one, two).paths
    remembered = path_without_title(longer)
    assert re.fullmatch(rf"{FOLDER}/[0-9a-f]{{16}}\.md", remembered)
    for path in imports.files():
        (imports.workspace / path).unlink()
    assert counts(imports.run(one, two, forgotten=[remembered])) == {"new": 1, "forgotten": 1}


def test_a_forgotten_note_that_is_on_disk_is_not_replaced(imports):
    path = imports.run(conversation("a")).paths[0]
    before = imports.files()
    assert counts(imports.run(conversation("a", "b"), forgotten=[path, "memory/a.md"])) == {"forgotten": 1}
    assert imports.files() == before


def test_a_dry_run_writes_nothing_and_reports_what_it_would_write(imports):
    report = imports.run(conversation("a"), dry_run=True)
    assert counts(report) == {"new": 1}
    assert imports.files() == {}
    assert list(imports.workspace.iterdir()) == []
    assert imports.run(conversation("a")).paths == report.paths
    before = imports.files()
    assert counts(imports.run(conversation("a", "b"), dry_run=True)) == {"updated": 1}
    assert imports.files() == before


def test_older_conversations_are_left_out_on_request(imports):
    since = START + timedelta(days=1)
    items = (
        conversation("a", own="1"),
        conversation("b", own="2", start=since),
        conversation("c", own="3", start=None),
    )
    assert counts(imports.run(*items, since=since)) == {"before_since": 1, "new": 2}


def test_unreadable_parts_are_reported_and_the_rest_is_imported(imports):
    left_out = Unreadable("conversations.json, conversation 2", "it is not an object")
    report = imports.run(conversation("a", own="1"), left_out, conversation("b", own="3"))
    assert counts(report) == {"new": 2}
    assert report.unreadable == [left_out]
    assert not report.is_complete


LONG = ["word " * 1_000 for _ in range(12)]
SMALL = 20_000


def test_a_long_conversation_has_several_notes_which_grow_and_shrink(imports):
    report = imports.run(conversation(*LONG), most_bytes=SMALL)
    stem = report.paths[0].removesuffix(".md")
    assert report.paths == [f"{stem}.md", *(f"{stem}-{part}.md" for part in range(2, len(report.paths) + 1))]
    assert len(report.paths) > 4
    assert counts(imports.run(conversation(*LONG), most_bytes=SMALL)) == {"unchanged": 1}
    # Another branch, with fewer messages, that is newer.
    shorter = conversation(*LONG[:3], start=START + timedelta(days=1))
    assert counts(imports.run(shorter, most_bytes=SMALL)) == {"updated": 1}
    assert len(imports.files()) < len(report.paths)
    assert counts(imports.run(shorter, most_bytes=SMALL)) == {"unchanged": 1}


def test_an_edited_part_keeps_all_parts(imports):
    report = imports.run(conversation(*LONG), most_bytes=SMALL)
    part = imports.workspace / report.paths[1]
    part.write_text("mine")
    before = imports.files()
    again = imports.run(conversation(*LONG, "more"), most_bytes=SMALL)
    assert list(again.conflicts) == [report.paths[1]]
    assert imports.files() == before


def test_a_missing_part_of_an_interrupted_import_is_written(imports):
    report = imports.run(conversation(*LONG), most_bytes=SMALL)
    before = imports.files()
    (imports.workspace / report.paths[-1]).unlink()
    again = imports.run(conversation(*LONG), most_bytes=SMALL)
    assert (counts(again), again.paths) == ({"updated": 1}, report.paths[-1:])
    assert {path: each[:2] for path, each in imports.files().items()} == {
        path: each[:2] for path, each in before.items()
    }


def test_a_missing_first_part_is_written_if_the_name_is_only_the_key(imports):
    texts = [f"... {'. ' * 3_000}" for _ in range(6)]
    item = conversation(*texts, title="...", start=None)
    report = imports.run(item, most_bytes=SMALL)
    first = imports.workspace / report.paths[0]
    assert re.fullmatch(r"[0-9a-f]{8}\.md", first.name)
    assert len(report.paths) > 1
    first.unlink()
    again = imports.run(item, most_bytes=SMALL)
    assert (counts(again), again.paths) == ({"updated": 1}, report.paths[:1])


def test_temporary_files_of_a_killed_import_are_removed(imports):
    imports.run(conversation("a"))
    draft = imports.only().with_name(".memoryd-import")
    draft.write_text("part")
    imports.run(conversation("a", "b"), dry_run=True)
    assert draft.exists()
    assert counts(imports.run(conversation("a", "b"))) == {"updated": 1}
    assert not draft.exists()


def test_links_are_not_followed(imports, tmp_path):
    outside = tmp_path / "outside"
    outside.mkdir()
    (imports.workspace / "memory").mkdir()
    (imports.workspace / "memory" / "imported").symlink_to(outside)
    report = imports.run(conversation("a"))
    assert counts(report) == {"conflict": 1}
    assert list(outside.iterdir()) == []


def test_a_note_that_is_a_link_is_kept(imports, tmp_path):
    imports.run(conversation("a"))
    path, target = imports.only(), tmp_path / "target.md"
    path.rename(target)
    path.symlink_to(target)
    before = target.read_bytes()
    report = imports.run(conversation("a", "b"), replace=True)
    assert counts(report) == {"conflict": 1}
    assert (target.read_bytes(), path.is_symlink()) == (before, True)


def test_two_imports_into_one_workspace_do_not_run_at_the_same_time(imports):
    other = FolderNotes(Roots(str(imports.workspace)), MOST)
    with other.locked(), pytest.raises(FileBusy):
        imports.run(conversation("a"))


def test_a_missing_workspace_is_an_error(tmp_path):
    store = FolderNotes(Roots(str(tmp_path / "none")), MOST)
    with pytest.raises(FileNotFound, match="none' does not exist; run `memoryd init`"), store.locked():
        pass
