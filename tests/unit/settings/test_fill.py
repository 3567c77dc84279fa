"""`fill` copies fields of settings blocks into a configuration and misses none."""

from dataclasses import dataclass

import pytest

from memoryd_server.settings.rules import SettingsBlock, fill


class Watcher(SettingsBlock):
    """A block with a time in milliseconds."""

    enabled: bool = True
    debounce_ms: int = 1500


class Service(SettingsBlock):
    """A block with a key of the same name as another block."""

    enabled: bool = False
    limit: int = 7


@dataclass(frozen=True)
class Config:
    enabled: bool
    debounce_seconds: float
    limit: int
    folder: str = ""


def test_each_field_is_from_the_values_or_the_first_block_that_has_it():
    assert fill(Config, Watcher(), Service(), folder="x") == Config(True, 1.5, 7, "x")
    assert fill(Config, Service(), Watcher(), folder="x", limit=1) == Config(False, 1.5, 1, "x")


def test_field_that_no_block_has_is_an_error_even_with_a_default():
    with pytest.raises(TypeError, match="folder"):
        fill(Config, Watcher(), Service())


def test_value_that_is_not_a_field_is_an_error():
    with pytest.raises(TypeError, match="colour"):
        fill(Config, Watcher(), Service(), folder="x", colour="red")
