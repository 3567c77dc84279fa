"""For any content of the files, loading either works or gives the reason."""

import json
import tempfile
from pathlib import Path

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from memoryd_server.errors import SettingsError
from memoryd_server.settings.environment import variables
from memoryd_server.settings.layers import SettingsTree, merge
from memoryd_server.settings.loading import load
from memoryd_server.settings.memory import CompactionSettings, MemoryBlock
from memoryd_server.settings.memory_search import MemorySearchSettings
from memoryd_server.settings.rules import SettingsBlock, keys, nested
from memoryd_server.settings.service import ServiceSettings
from properties import examples

scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(max_size=8),
    st.sampled_from(["~", "5m", "unix:x", "${X}", "$${X}", "${UNSET}", "included.json5", "gone.json5"]),
)
keys_of_any = st.text(max_size=8) | st.just("$include")
anything = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keys_of_any, inner, max_size=3)
)


def shaped(block: type[SettingsBlock]) -> st.SearchStrategy:
    """Objects that have the keys of a block, with values that are right or wrong."""
    fields = {}
    for _, key, field in keys(block):
        inner = nested(field.annotation)
        fields[key] = shaped(inner) | anything if inner else anything
    return st.fixed_dictionaries({}, optional={**fields, "unknown": scalars})


search = shaped(MemorySearchSettings) | anything
agent = st.fixed_dictionaries(
    {}, optional={"id": st.sampled_from(["main", "b"]) | anything, "memorySearch": search, "workspace": anything}
)
defaults = st.fixed_dictionaries(
    {},
    optional={
        "memorySearch": search,
        "compaction": shaped(CompactionSettings) | anything,
        "userTimezone": anything,
        "workspace": anything,
    },
)
agents = st.fixed_dictionaries({}, optional={"defaults": defaults | anything, "list": st.lists(agent) | anything})
files = st.fixed_dictionaries(
    {},
    optional={
        "agents": agents | anything,
        "memory": shaped(MemoryBlock) | anything,
        "memoryd": shaped(ServiceSettings) | anything,
        "plugins": anything,
        "models": anything,
        "env": st.fixed_dictionaries({}, optional={"vars": anything, "shellEnv": anything}) | anything,
    },
)
environs = st.dictionaries(
    st.sampled_from(sorted(variables())) | st.text(max_size=8).map("MEMORYD_".__add__), st.text()
)


def check(reference: str, own: str, environ=None, flags=None, *, included="{}", dotenv=""):
    with tempfile.TemporaryDirectory() as folder:
        state = Path(folder) / ".openclaw"
        state.mkdir()
        (state / "openclaw.json").write_bytes(reference.encode("utf-8", "surrogatepass"))
        (state / "memoryd.json5").write_bytes(own.encode("utf-8", "surrogatepass"))
        (state / "included.json5").write_bytes(included.encode("utf-8", "surrogatepass"))
        (state / ".env").write_bytes(dotenv.encode("utf-8", "surrogatepass"))
        try:
            loaded = load(environ=environ or {}, home=Path(folder), flags=flags)
        except SettingsError as error:
            error.message.encode()
        else:
            json.dumps(loaded.describe())
            "".join(loaded.warnings).encode()


@settings(deadline=None, max_examples=examples(150), suppress_health_check=[HealthCheck.too_slow])
@given(files, files)
def test_no_content_of_the_files_raises_anything_but_a_settings_error(reference, own):
    check(json.dumps(reference), json.dumps(own))


@settings(deadline=None, max_examples=examples(150), suppress_health_check=[HealthCheck.too_slow])
@given(files | anything, files | anything, st.text())
def test_no_content_of_included_files_raises_anything_but_a_settings_error(reference, included, dotenv):
    root = reference if isinstance(reference, dict) else {"agents": reference}
    main = json.dumps({"$include": "included.json5", **root})
    check(main, "{}", {"X": "/x"}, included=json.dumps(included), dotenv=dotenv)


@settings(deadline=None)
@given(st.text())
def test_no_text_raises_anything_but_a_settings_error(text):
    check("{}", text)


@settings(deadline=None)
@given(environs, st.dictionaries(st.sampled_from(["workspace", "state_dir", "listen", "config", "x"]), anything))
def test_no_variable_or_flag_raises_anything_but_a_settings_error(environ, flags):
    check("{}", "{}", environ, flags)


trees = st.dictionaries(
    st.sampled_from("abc"), st.recursive(scalars, lambda i: st.dictionaries(st.sampled_from("ab"), i))
)


@given(trees, trees)
def test_merging_changes_neither_side_and_remembers_who_wrote_what(low, high):
    before = json.dumps([low, high])
    tree = SettingsTree()
    tree.overlay(low, "low")
    tree.overlay(high, "high")
    assert json.dumps([low, high]) == before
    assert json.dumps(tree.values) == json.dumps(merge(low, high))
    for key, value in high.items():
        assert tree.exact_origin((key,)) == (None if value is None else "high")


def test_a_key_that_is_taken_away_leaves_no_trace():
    tree = SettingsTree()
    tree.overlay({"a": {"b": {"c": 1}}}, "file")
    tree.remove(("a", "b"))
    tree.remove(("x", "y"))
    assert tree.values == {"a": {}}
    assert tree.exact_origin(("a", "b", "c")) is None
    assert tree.origin(("a", "b", "c")) == "file"
    assert tree.origin(("z",)) == "default"
