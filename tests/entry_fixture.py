"""An entry store in a test's folder, and vectors made from words."""

import importlib.util
import itertools
import uuid

import grpc
import pytest

from memoryd.v1.entry_service_pb2 import ListEntriesRequest
from memoryd.v1.entry_service_pb2_grpc import EntryServiceStub
from memoryd_server.entries.model import DatasetLocation, EntryCategory, IdentifiedVector
from memoryd_server.entries.store import EntryStore, NewEntry
from memoryd_server.text.analyzer import Analyzer
from word_provider import word_vector

needs_lancedb = pytest.mark.skipif(
    importlib.util.find_spec("lancedb") is None, reason="lancedb is missing: `make setup-lancedb` installs it"
)


def open_entries(address, seconds=120):
    """Have a daemon import LanceDB, which takes longer than the documented deadlines on a busy machine."""
    with grpc.insecure_channel(address) as channel:
        EntryServiceStub(channel).ListEntries(ListEntriesRequest(), timeout=seconds)


def embedded(text, identity="words", dimensions=16):
    return IdentifiedVector(word_vector(text, dimensions), identity)


def new(text, importance=0.7, category=EntryCategory.OTHER, key=""):
    return NewEntry(text, importance, category, key)


def store_at(folder, ticks=None, **options):
    ticks = ticks or itertools.count(1_000)
    place = DatasetLocation(str(folder))
    return EntryStore(place, Analyzer(), lambda: next(ticks), lambda: str(uuid.uuid4()), **options)


def dataset_of(store):
    """Return the LanceDB dataset of an open store."""
    return store._dataset


def table_of(store):
    return dataset_of(store)._table


def texts(scored):
    return [each.entry.text for each in scored]
