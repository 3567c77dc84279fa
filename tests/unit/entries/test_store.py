"""The entries of one agent on a real dataset."""

import errno
import subprocess
import sys
import threading
import uuid
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from entry_fixture import dataset_of, embedded, needs_lancedb, new, store_at, texts
from memoryd_server.entries.dataset import COMMIT_ATTEMPTS
from memoryd_server.entries.model import EntryCategory, EntryFilter, IdentifiedVector, ListPosition, RememberAction
from memoryd_server.errors import (
    DiskFull,
    EntriesUnavailable,
    EntryNotFound,
    IndexBusy,
    IndexUnavailable,
    InvalidRequest,
)

pytestmark = needs_lancedb


@pytest.fixture
def store(tmp_path):
    opened = store_at(tmp_path / "entries")
    opened.open()
    yield opened
    opened.close()


def keep(store, text, **fields):
    return store.remember(new(text, **fields), embedded(text))


def files(folder):
    return [path for path in folder.rglob("*") if path.is_file()]


def spread(number):
    """A vector that is near no other's."""
    vector = np.random.default_rng(number).standard_normal(64).astype(np.float32)
    return IdentifiedVector(vector / np.linalg.norm(vector), "spread")


def test_an_entry_is_found_by_meaning_and_by_words(store):
    kept = keep(store, "the heron nests by the weir", importance=0.25, category=EntryCategory.FACT)
    keep(store, "otters hide keys")
    assert kept.action is RememberAction.STORED
    nearest = store.nearest(embedded("heron weir"), 2)
    assert nearest[0].entry == kept.entry
    assert nearest[0].score > nearest[1].score
    assert texts(store.match_words("heron", 5)) == ["the heron nests by the weir"]
    assert store.match_words("?!", 5) == []


def test_a_score_is_that_of_the_squared_distance(store):
    keep(store, "heron")
    ((same),) = store.nearest(embedded("heron"), 1)
    assert same.score == pytest.approx(1.0, abs=1e-5)
    other = embedded("otter")
    (found,) = store.nearest(other, 1)
    distance = float(np.sum((embedded("heron").vector - other.vector) ** 2))
    assert found.score == pytest.approx(1 / (1 + distance), abs=1e-5)


def test_a_text_of_equal_meaning_is_a_duplicate(store):
    first = keep(store, "the heron nests by the weir")
    near = IdentifiedVector(embedded("the heron nests by the weir").vector, "words")
    again = store.remember(new("THE HERON nests by the weir!"), near)
    assert (again.action, again.entry) == (RememberAction.DUPLICATE, first.entry)
    assert again.score >= 0.95
    assert store.count() == 1


def test_without_a_vector_only_the_very_same_text_is_a_duplicate(store):
    first = store.remember(new("the heron nests"), None)
    assert store.remember(new(" the heron nests\n"), None).entry == first.entry
    assert store.remember(new("the heron nests!"), None).action is RememberAction.STORED
    assert store.count() == 2


def test_a_key_stores_once_and_is_bound_to_its_contents(store):
    first = keep(store, "one thing", key="k'1")
    again = keep(store, "one thing", key="k'1")
    assert (again.action, again.entry) == (RememberAction.ALREADY_STORED, first.entry)
    for differing in (new("another", key="k'1"), new("one thing", 0.1, key="k'1")):
        with pytest.raises(InvalidRequest, match="idempotency_key"):
            store.remember(differing, None)
    assert store.count() == 1


def test_a_forgotten_entry_is_gone_and_can_be_stored_again(store):
    kept = keep(store, "the heron").entry
    assert store.forget(kept.entry_id) == kept
    with pytest.raises(EntryNotFound, match=kept.entry_id):
        store.forget(kept.entry_id)
    assert (store.count(), store.nearest(embedded("heron"), 5), store.match_words("heron", 5)) == (0, [], [])
    assert keep(store, "the heron").entry.entry_id != kept.entry_id


def test_an_id_is_text_and_no_condition(store):
    keep(store, "the heron")
    with pytest.raises(EntryNotFound):
        store.forget("x' OR '1'='1")
    assert store.count() == 1


def test_the_list_is_paged_newest_first_and_filtered(tmp_path):
    store = store_at(tmp_path / "e", iter([5, 5, 3, 9, 9]))
    store.open()
    kept = [store.remember(new(f"entry {n}", category=list(EntryCategory)[n % 2]), None).entry for n in range(5)]
    found, after = [], None
    while True:
        page = store.page(after, 2)
        assert page.total == 5
        found += page.entries
        if not page.more:
            break
        after = ListPosition(found[-1].created_ms, found[-1].entry_id)
    assert found == kept[::-1], "a clock that stands or goes back changes no order"
    facts = store.page(None, 10, [EntryCategory.FACT])
    assert [entry.text for entry in facts.entries] == ["entry 3", "entry 1"]
    assert (facts.total, facts.more) == (2, False)
    store.close()


def test_only_the_categories_asked_for_are_found(store):
    keep(store, "heron one", category=EntryCategory.FACT)
    keep(store, "heron two", category=EntryCategory.ENTITY)
    keep(store, "heron three", category=EntryCategory.OTHER)
    assert texts(store.match_words("heron", 9, EntryFilter([EntryCategory.FACT]))) == ["heron one"]
    found = texts(store.nearest(embedded("heron"), 9, EntryFilter([EntryCategory.FACT, EntryCategory.ENTITY])))
    assert sorted(found) == ["heron one", "heron two"]


@pytest.mark.parametrize(
    "text",
    [
        "žluťoučký kůň 🦫 神戸の鷺 ᚠᛇᚻ",
        "x" * 100_000,
        "it's a \"quote\" -- '; DROP",
        "a\nb\tc",
        "\U0001d573\U0001d58a\u200d\u0301",
    ],
)
def test_any_text_comes_back_as_it_was_given(store, text):
    kept = keep(store, text).entry
    assert store.nearest(embedded(text), 1)[0].entry == kept
    assert store.page(None, 1).entries == (kept,)
    assert store.find_by_text(text) == kept


def test_vectors_of_another_model_are_not_compared(store):
    keep(store, "the heron")
    assert store.nearest(embedded("the heron", "other"), 5) == []
    assert (store.count_pending("words"), store.count_pending("other")) == (0, 1)


def test_entries_without_a_vector_get_theirs_later(store):
    kept = store.remember(new("the heron"), None).entry
    assert store.count_pending("words") == 1
    assert store.list_pending("words", 5) == [kept]
    store.set_dimensions(16)
    store.set_vectors([(kept.entry_id, embedded("the heron")), (str(uuid.uuid4()), embedded("gone"))])
    assert (store.count_pending("words"), store.count()) == (0, 1)
    assert texts(store.nearest(embedded("heron"), 5)) == ["the heron"]


def test_a_model_of_other_dimensions_loses_no_text(store):
    kept = [keep(store, text).entry for text in ("the heron", "an otter")]
    longer = embedded("a badger", "longer", 24)
    odd = store.remember(new("an odd one"), longer)
    assert (odd.without_vector, store.count_pending("words")) == (True, 1), "one odd vector costs no other"
    store.forget(odd.entry.entry_id)
    store.set_dimensions(24)
    kept.append(store.remember(new("a badger"), longer).entry)
    assert [entry.text for entry in store.page(None, 9).entries] == ["a badger", "an otter", "the heron"]
    assert store.count_pending("longer") == 2
    store.set_vectors(
        [(entry.entry_id, embedded(entry.text, "longer", 24)) for entry in store.list_pending("longer", 9)]
    )
    assert store.count_pending("longer") == 0
    assert texts(store.nearest(embedded("heron", "longer", 24), 1)) == ["the heron"]
    # And back: the old vectors are gone, and the entries are known to have none.
    store.set_dimensions(16)
    keep(store, "a wren")
    assert store.count_pending("words") == 3


def test_everything_is_there_after_a_restart(tmp_path):
    store = store_at(tmp_path / "e")
    store.open()
    kept = keep(store, "the heron", key="k").entry
    store.close()
    again = store_at(tmp_path / "e")
    again.open()
    assert keep(again, "the heron", key="k").entry == kept
    assert texts(again.match_words("heron", 5)) == ["the heron"]
    again.close()


def test_one_process_holds_a_dataset(tmp_path, store):
    other = store_at(tmp_path / "entries")
    with pytest.raises(IndexBusy, match="in use by another memoryd"):
        other.open()
    store.close()
    other.open()
    other.close()


def test_nobody_else_of_this_machine_reads_entries(tmp_path, store):
    assert (tmp_path / "entries").stat().st_mode & 0o777 == 0o700


def test_a_folder_that_cannot_be_made_is_named(tmp_path):
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(IndexUnavailable, match="file"):
        store_at(tmp_path / "file" / "entries").open()


def test_a_folder_that_is_no_dataset_is_left_alone_and_named(tmp_path):
    folder = tmp_path / "e" / "memories.lance"
    (folder / "_versions").mkdir(parents=True)
    (folder / "_versions" / "1.manifest").write_bytes(b"not a manifest")
    store = store_at(tmp_path / "e")
    with pytest.raises(EntriesUnavailable, match="cannot be used"):
        store.open()
    assert (folder / "_versions" / "1.manifest").read_bytes() == b"not a manifest"


@pytest.mark.slow
def test_files_and_versions_are_bounded_however_much_is_written(tmp_path, store):
    for number in range(150):
        store.remember(new(f"number {number}"), spread(number))
        if store.needs_optimize:
            store.optimize()
    store.optimize()
    assert store.is_optimized
    assert store.count() == 150
    assert len(files(tmp_path / "entries")) < 40
    assert texts(store.match_words("149", 1)) == ["number 149"]


def deletions(folder):
    """Files that say which rows of others are gone, and so still there."""
    return list(folder.glob("**/_deletions/*"))


@pytest.mark.parametrize("tidied_before", [False, True])
def test_forgotten_entries_leave_the_disk_with_the_maintenance(tmp_path, store, tidied_before):
    folder = tmp_path / "entries"
    kept = [store.remember(new(f"plain {number}"), spread(number)).entry for number in range(30)]
    secret = store.remember(new("Xq7vZ2pL9wTjR4sKhYbN"), spread(30)).entry
    if tidied_before:
        store.optimize()
    store.forget(secret.entry_id)
    assert deletions(folder) or not tidied_before
    store.optimize()
    assert deletions(folder) == []
    assert texts(store.match_words("plain 7", 1)) == ["plain 7"]
    assert store.nearest(spread(7), 1)[0].entry == kept[7]
    assert [name for name in files(folder) if b"Xq7vZ2pL9wTjR4sKhYbN" in name.read_bytes()] == []
    assert store.count() == len(kept)


@pytest.mark.slow
def test_readers_and_a_writer_and_a_tidying_do_not_disturb_one_another(store):
    store.remember(new("the heron"), spread(0))
    stop = threading.Event()

    def recall():
        count = 0
        while not stop.is_set():
            assert store.nearest(spread(0), 1)[0].entry.text == "the heron"
            count += 1
        return count

    with ThreadPoolExecutor(3) as threads:
        readers = [threads.submit(recall) for _ in range(2)]
        try:
            for number in range(1, 41):
                store.remember(new(f"another {number}"), spread(number))
                if number % 8 == 0:
                    store.optimize()
        finally:
            stop.set()
        assert all(reader.result() for reader in readers)
    assert store.count() == 41


def test_lancedb_is_not_imported_before_it_is_needed():
    code = (
        "import sys, memoryd_server.app.daemon; print([m for m in sys.modules if m.startswith(('lance', 'pyarrow'))])"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert found.stdout.strip() == "[]"


def test_the_dataset_of_another_program_is_refused_and_left_alone(tmp_path):
    import lancedb  # noqa: PLC0415 -- an extra

    lancedb.connect(tmp_path / "e").create_table("memories", [{"id": "1", "text": "theirs"}])
    store = store_at(tmp_path / "e")
    with pytest.raises(EntriesUnavailable, match="another program"):
        store.open()
    assert lancedb.connect(tmp_path / "e").open_table("memories").count_rows() == 1


class Contested:
    """A change that another writer's commit comes before so many times, or that fails for another reason."""

    def __init__(self, conflicts, error="Retryable commit conflict for version 7"):
        self.left, self.error, self.tried = conflicts, error, 0

    def __call__(self):
        self.tried += 1
        if self.tried <= self.left:
            raise RuntimeError(self.error)
        return "done"


def commit(store, change):
    return dataset_of(store)._commit(change)


def test_a_commit_that_another_writer_came_before_is_made_again(store):
    change = Contested(COMMIT_ATTEMPTS - 1)
    assert commit(store, change) == "done"
    assert change.tried == COMMIT_ATTEMPTS


def test_a_commit_is_given_up_after_some_attempts_and_at_once_for_other_reasons(store):
    for change, tried in ((Contested(COMMIT_ATTEMPTS), COMMIT_ATTEMPTS), (Contested(1, "the disk is on fire"), 1)):
        with pytest.raises(EntriesUnavailable, match="cannot be used"):
            commit(store, change)
        assert change.tried == tried
    keep(store, "the heron")
    assert store.count() == 1


def test_a_full_disk_has_a_name_of_its_own(store):
    def full():
        raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.raises(DiskFull, match="free some space"):
        commit(store, full)


def test_a_search_finds_nothing_if_another_model_replaces_the_vectors_during_it(store):
    keep(store, "the heron")
    assert texts(store.nearest(embedded("heron"), 1)) == ["the heron"]
    dataset = dataset_of(store)
    search = dataset.nearest

    def search_after_a_change(*arguments):
        dataset.set_dimensions(24)
        return search(*arguments)

    dataset.nearest = search_after_a_change
    assert store.nearest(embedded("heron"), 1) == []
