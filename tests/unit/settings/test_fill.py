"""`fill` copies the fields of settings blocks into a configuration and misses none."""

from dataclasses import dataclass

import pytest

from memoryd_server.settings.memory_search import CacheSettings, MmrSettings, SyncSettings
from memoryd_server.settings.rules import fill


@dataclass(frozen=True)
class Config:
    enabled: bool
    max_entries: int
    watch_debounce_seconds: float
    folder: str = ""


def test_each_field_is_from_the_values_or_the_first_block_that_has_it():
    mmr, cache, sync = MmrSettings(), CacheSettings(), SyncSettings()
    assert fill(Config, mmr, cache, sync, folder="x") == Config(False, 50_000, 1.5, "x")
    assert fill(Config, cache, mmr, sync, folder="x", max_entries=1) == Config(True, 1, 1.5, "x")


def test_field_that_no_block_has_is_an_error_even_with_a_default():
    with pytest.raises(TypeError, match="folder"):
        fill(Config, CacheSettings(), SyncSettings())


def test_value_that_is_not_a_field_is_an_error():
    with pytest.raises(TypeError, match="colour"):
        fill(Config, CacheSettings(), SyncSettings(), folder="x", colour="red")
