"""The same store over an object store, which speaks S3."""

import itertools
import uuid
from concurrent.futures import ThreadPoolExecutor

import pytest

from entry_fixture import embedded, needs_lancedb, new, texts
from memoryd_server.entries.model import DatasetLocation, RememberAction
from memoryd_server.entries.store import EntryStore
from memoryd_server.errors import EntriesUnavailable
from memoryd_server.text.analyzer import Analyzer
from object_store import BUCKET, needs_object_store, object_store

pytestmark = [needs_lancedb, needs_object_store]


@pytest.fixture(scope="module")
def options():
    with object_store() as found:
        yield found


def opened(options, name):
    clock = itertools.count(1_000)
    store = EntryStore(
        DatasetLocation(f"s3://{BUCKET}/{name}/main", options),
        Analyzer(),
        lambda: next(clock),
        lambda: str(uuid.uuid4()),
    )
    store.open()
    return store


@pytest.mark.slow
def test_entries_are_kept_in_an_object_store(options):
    store = opened(options, "kept")
    kept = store.remember(new("the heron nests by the weir", key="k"), embedded("the heron nests by the weir")).entry
    store.remember(new("otters hide keys"), None)
    store.optimize()
    store.close()
    again = opened(options, "kept")
    assert again.remember(new("the heron nests by the weir", key="k"), None).action is RememberAction.ALREADY_STORED
    assert again.nearest(embedded("heron weir"), 1)[0].entry == kept
    assert texts(again.match_words("otters", 5)) == ["otters hide keys"]
    assert again.forget(kept.entry_id) == kept
    again.optimize()
    assert [entry.text for entry in again.page(None, 5).entries] == ["otters hide keys"]
    again.close()


@pytest.mark.slow
def test_two_writers_lose_nothing_and_each_sees_what_the_other_stored(options):
    writers = [opened(options, "shared") for _ in range(2)]

    def write(name, store):
        for number in range(10):
            assert store.remember(new(f"{name} {number}", key=f"{name}-{number}"), None).action is RememberAction.STORED

    with ThreadPoolExecutor(2) as threads:
        for done in [threads.submit(write, name, store) for name, store in zip("ab", writers, strict=True)]:
            done.result()
    wanted = {f"{name} {number}" for name in "ab" for number in range(10)}
    for store in writers:
        assert {entry.text for entry in store.page(None, 99).entries} == wanted
        store.close()


@pytest.mark.slow
def test_a_store_that_does_not_answer_is_named_and_no_secret_is(options):
    unreachable = {**options, "endpoint": "http://127.0.0.1:9", "aws_secret_access_key": "sesame-secret"}
    place = DatasetLocation("s3://entries/x/main", {**unreachable, "client_max_retries": "0", "connect_timeout": "1s"})
    store = EntryStore(place, Analyzer(), lambda: 1, lambda: str(uuid.uuid4()))
    with pytest.raises(EntriesUnavailable, match="s3://entries/x/main") as found:
        store.open()
    assert "sesame" not in found.value.message + repr(place)
