"""Properties of imports: repeated ones change nothing, none changes an edited note, and both targets agree."""

import tempfile
from datetime import timedelta
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from imported import START, conversation
from memoryd_server.imports import Effect, FolderTranscripts, ImportOptions, SessionImport, import_all
from properties import examples
from unit.imports.test_note_import import Imports, counts

pytestmark = pytest.mark.slow

# Few ids, so that exports have several states of a conversation, with equal, later and unknown times.
STATES = st.builds(
    lambda own, texts, day, title: conversation(
        *texts, own=own, title=title, start=None if day is None else START + timedelta(days=day)
    ),
    st.sampled_from(["one", "two", "id-10014", "id-22672"]),
    st.lists(st.sampled_from(["a", "b", "# c\n", "word " * 2_000]), min_size=1, max_size=6),
    st.sampled_from([None, 0, 0, 1]),
    st.sampled_from(["", "title", "other"]),
)
EXPORTS = st.lists(STATES, max_size=6)
SMALL = 20_000


def sessions_of(folder, items):
    store = FolderTranscripts(folder)
    with store.locked():
        report = import_all(items, SessionImport(store, ()), ImportOptions())
    return report, {path.name: path.read_bytes() for path in folder.iterdir()}


@settings(max_examples=examples(100), deadline=None)
@given(EXPORTS, EXPORTS)
def test_the_same_export_twice_changes_nothing_also_after_others(first, second):
    with tempfile.TemporaryDirectory() as folder:
        imports = Imports(Path(folder) / "w")
        for export in (first, second):
            dry = imports.run(*export, most_bytes=SMALL, dry_run=True)
            done = imports.run(*export, most_bytes=SMALL)
            assert (dry.counts, dry.paths, dry.written_bytes) == (done.counts, done.paths, done.written_bytes)
            before = imports.files()
            again = imports.run(*export, most_bytes=SMALL)
            assert set(counts(again)) <= {"unchanged", "older"}
            assert imports.files() == before
            _, written = sessions_of(Path(folder) / "s", export)
            report, after = sessions_of(Path(folder) / "s", export)
            assert set(report.counts) <= {Effect.UNCHANGED, Effect.OLDER}
            assert after == written


@settings(max_examples=examples(100), deadline=None)
@given(EXPORTS, EXPORTS, st.randoms(use_true_random=False))
def test_an_edited_note_is_never_changed(first, second, chance):
    with tempfile.TemporaryDirectory() as folder:
        imports = Imports(Path(folder) / "w")
        imports.run(*first, most_bytes=SMALL)
        edited = {}
        for path in imports.files():
            if chance.random() < 0.5:
                data = chance.choice([b"", b"mine", (imports.workspace / path).read_bytes() + b"\nmine"])
                (imports.workspace / path).write_bytes(data)
                edited[path] = data
        imports.run(*second, most_bytes=SMALL)
        assert {path: (imports.workspace / path).read_bytes() for path in edited} == edited
