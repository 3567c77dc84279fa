"""docs/configuration.md says what the code does."""

import json
import re
import runpy
from pathlib import Path

import pytest
from pydantic_core import PydanticUndefined

from memoryd_server.settings.document import document, parse_docstring
from memoryd_server.settings.rules import FloatRange, IntRange, SettingsBlock, keys, nested, rules_of

ROOT = Path(__file__).parents[3]

# Defaults that are made from something else, or that are too long for a table.
IN_WORDS = {"dbPath", "listen", "path", "name", "model", "exportDir", "interval", "embedInterval"}


def plain_fields(block=SettingsBlock):
    for child in block.__subclasses__():
        yield from (
            (f"{child.__name__}.{key}", key, field) for _, key, field in keys(child) if nested(field.annotation) is None
        )
        yield from plain_fields(child)


FIELDS = list(plain_fields())


def test_the_committed_page_is_the_generated_one():
    assert (ROOT / "docs" / "configuration.md").read_text(encoding="utf-8") == document()


def test_the_module_prints_the_page(capsys):
    with pytest.warns(RuntimeWarning, match="found in sys.modules"):
        runpy.run_module("memoryd_server.settings.document", run_name="__main__")
    assert capsys.readouterr().out == document()


def tells_the_true_default(key, field):
    said = parse_docstring(field).default
    if key in IN_WORDS:
        return True
    if field.default is PydanticUndefined:
        return "required" in said
    if field.default is None:
        return said in ("unset", "custom-<number>")
    return json.loads(said) == json.loads(json.dumps(field.default))


def tells_the_true_bounds(field):
    said = parse_docstring(field).bounds
    rules = [rule for rule in rules_of(field) if isinstance(rule, IntRange | FloatRange)]
    return all(re.search(rf"(^| ){re.escape(rule.bounds)}$", said) for rule in rules)


def test_docstrings_tell_the_true_defaults():
    assert [name for name, key, field in FIELDS if not tells_the_true_default(key, field)] == []


def test_docstrings_tell_the_true_bounds():
    assert [name for name, _, field in FIELDS if not tells_the_true_bounds(field)] == []


def test_every_key_stands_in_the_page():
    page = document()
    assert len(FIELDS) > 100
    assert [name for name, key, _ in FIELDS if f"| `{key}` |" not in page] == []


def test_every_block_has_a_docstring_of_its_own():
    blocks = SettingsBlock.__subclasses__()
    assert len(blocks) > 20
    assert all(block.__doc__ and block.__doc__ != SettingsBlock.__doc__ for block in blocks)
