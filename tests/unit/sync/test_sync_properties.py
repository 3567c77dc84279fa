"""After any sequence of edits and syncs, the index equals one built from the files alone."""

import itertools
import os
import shutil
import tempfile
from pathlib import Path

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from index_fixture import SOUND, IndexFixture
from memoryd_server.sync.progress import SyncMode
from properties import examples

# Few, so that edits meet.
FOLDERS = ("memory", "memory/a", "memory/b", "memory/a/deep")
NAMES = ("one.md", "two.md", "2026-02-08.md", "notes.txt", ".one.md.swp", "three.md.tmp")
PATHS = st.one_of(
    st.sampled_from(["MEMORY.md", "memory.md"]),
    st.builds("{}/{}".format, st.sampled_from(FOLDERS), st.sampled_from(NAMES)),
)
TEXTS = st.sampled_from(
    [
        *(
            "",
            "heron",
            "stork",
            "heron\n\nstork",
            "# Birds\n\nheron\n",
            "---\nt: x\n---\nstork\n",
            "heron\r\nstork\r\n",
        ),
        *("long line " * 400, "\n".join(f"line {i} heron" for i in range(200)), "成语接龙", "a\x00b"),
    ]
)
QUERIES = ("heron", "stork", "birds", "line 7", "成语", "long", "2026-02-08", "one")


class EditsAndSyncs(RuleBasedStateMachine):
    """Edits a workspace and syncs it now and then; in the end both ways of indexing must agree."""

    @initialize()
    def begin(self):
        self.folder = Path(tempfile.mkdtemp())
        self.index = IndexFixture(self.folder).open()
        self.revision = 0
        self.fresh = itertools.count()

    def file(self, path):
        return self.index.workspace / path

    @rule(path=PATHS, text=TEXTS)
    def write(self, path, text):
        if not self.file(path).is_dir():
            self.index.write(path, text)

    @rule(path=PATHS, text=TEXTS)
    def replace_as_an_editor_does(self, path, text):
        if not self.file(path).is_dir():
            self.index.write(f"{path}.new", text).replace(self.file(path))

    @rule(path=PATHS)
    def append(self, path):
        if self.file(path).is_file():
            with self.file(path).open("ab") as file:
                file.write(b"\nmore heron\n")

    @rule(path=PATHS)
    def turn_around_in_place_without_a_new_mtime(self, path):
        if self.file(path).is_file():
            stat = self.file(path).stat()
            data = self.file(path).read_bytes()
            with self.file(path).open("r+b") as file:
                file.write(data[::-1] if data.isascii() else data)
            os.utime(self.file(path), ns=(stat.st_atime_ns, stat.st_mtime_ns))

    @rule(path=PATHS, seconds=st.sampled_from([1, 10**9, 2 * 10**9, 10**10]))
    def touch(self, path, seconds):
        if self.file(path).is_file():
            os.utime(self.file(path), (seconds, seconds))

    @rule(path=PATHS)
    def delete(self, path):
        if self.file(path).is_file():
            self.file(path).unlink()

    @rule(path=PATHS, other=PATHS)
    def rename(self, path, other):
        if self.file(path).is_file() and not self.file(other).is_dir():
            self.file(other).parent.mkdir(parents=True, exist_ok=True)
            self.file(path).replace(self.file(other))

    @rule(path=PATHS, other=PATHS)
    def exchange(self, path, other):
        if self.file(path).is_file() and self.file(other).is_file() and path != other:
            spare = self.folder / "spare"
            self.file(path).replace(spare)
            self.file(other).replace(self.file(path))
            spare.replace(self.file(other))

    @rule(path=PATHS, other=PATHS)
    def link(self, path, other):
        if self.file(path).is_file() and not self.file(other).exists():
            self.file(other).parent.mkdir(parents=True, exist_ok=True)
            os.link(self.file(path), self.file(other))

    @rule(folder=st.sampled_from(FOLDERS), other=st.sampled_from([*FOLDERS, "memory/c", "elsewhere"]))
    def move_a_folder(self, folder, other):
        fits = self.file(other).parent.is_dir() and not f"{other}/".startswith(f"{folder}/")
        if self.file(folder).is_dir() and fits and not self.file(other).exists():
            self.file(folder).rename(self.file(other))

    @rule(folder=st.sampled_from(FOLDERS))
    def delete_a_folder(self, folder):
        shutil.rmtree(self.file(folder), ignore_errors=True)

    @rule(path=PATHS)
    def put_a_folder_in_a_files_place(self, path):
        if self.file(path).is_file():
            self.file(path).unlink()
            self.file(path).mkdir()

    @rule(mode=st.sampled_from([SyncMode.INCREMENTAL, SyncMode.INCREMENTAL, SyncMode.FULL]), batch=st.integers(1, 5))
    def sync(self, mode, batch):
        self.index.sync(mode, files_per_transaction=batch)
        self.check_against_scratch()

    @rule()
    def restart(self):
        self.index.reopen()

    @invariant()
    def the_revision_never_falls(self):
        if hasattr(self, "index"):
            revision = self.index.revision()
            assert revision >= self.revision
            self.revision = revision

    def check_against_scratch(self):
        scratch = IndexFixture(self.folder, name=f"scratch-{next(self.fresh)}.sqlite").open()
        try:
            scratch.sync()
            assert self.index.rows() == scratch.rows()
            for query in QUERIES:
                assert sorted(self.index.hits(query)) == sorted(scratch.hits(query)), query
            assert self.index.integrity() == SOUND
        finally:
            scratch.close()

    def teardown(self):
        if hasattr(self, "index"):
            self.sync(SyncMode.INCREMENTAL, 100)
            self.index.close()
            shutil.rmtree(self.folder)


TestEditsAndSyncs = EditsAndSyncs.TestCase
TestEditsAndSyncs.settings = settings(
    max_examples=examples(60), stateful_step_count=30, deadline=None, suppress_health_check=list(HealthCheck)
)
