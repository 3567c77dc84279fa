"""The names of watchdog that are no part of its interface, and that the native watch uses, are where they were."""

import ast
import inspect
import tomllib
from importlib.metadata import version
from pathlib import Path

from packaging.requirements import Requirement
from watchdog.observers.inotify_c import InotifyEvent, InotifyFD, WatchCallback

from memoryd_server.sources import inotify
from memoryd_server.sources.inotify import InotifyThread, InotifyWatch

REPOSITORY = Path(__file__).parents[3]
# A new name needs a look at what watchdog does with it.
IMPORTED = {"CallbackId", "InotifyConstants", "InotifyEvent", "InotifyFD", "Mask", "WatchDescriptor"}
INHERITED = {"_check_inotify_fd", "_closed", "_inotify_fd", "_kill_r", "_kill_w", "_lock"}
OVERRIDDEN = {"_check_inotify_fd", "_close_resources", "close", "run"}
# Of the event, as `InotifyWatch` reads it.
EVENT = {"is_create", "is_directory", "is_moved_from", "is_moved_to", "name", "wd"}


def class_node(name):
    tree = ast.parse(inspect.getsource(inotify))
    return next(node for node in ast.walk(tree) if isinstance(node, ast.ClassDef) and node.name == name)


def own_names(node):
    """The methods of a class and the attributes that it sets first."""
    methods = {each.name for each in node.body if isinstance(each, ast.FunctionDef)}
    init = next(each for each in node.body if isinstance(each, ast.FunctionDef) and each.name == "__init__")
    stored = {
        each.attr for each in ast.walk(init) if isinstance(each, ast.Attribute) and isinstance(each.ctx, ast.Store)
    }
    return methods | stored


def test_the_installed_version_is_one_that_was_looked_at():
    with (REPOSITORY / "pyproject.toml").open("rb") as file:
        requirements = map(Requirement, tomllib.load(file)["project"]["dependencies"])
    (watchdog,) = [each for each in requirements if each.name == "watchdog"]
    assert version("watchdog") in watchdog.specifier
    assert "7.2" not in watchdog.specifier


def test_the_native_watch_uses_no_other_private_names():
    tree = ast.parse(inspect.getsource(inotify))
    imported = {
        alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("watchdog")
        for alias in node.names
    }
    node = class_node("InotifyThread")
    used = {
        each.attr
        for each in ast.walk(node)
        if isinstance(each, ast.Attribute) and each.attr.startswith("_") and not each.attr.startswith("__")
    }
    # `_check_inotify_fd` is both overridden and called.
    assert (imported, (used - own_names(node)) | {"_check_inotify_fd"}) == (IMPORTED, INHERITED)


def test_watchdog_has_the_names_that_the_native_watch_uses_and_overrides():
    thread = InotifyThread()
    thread.release()
    assert {
        name for name in INHERITED | OVERRIDDEN if not hasattr(InotifyFD, name) and name not in vars(thread)
    } == set()
    assert list(inspect.signature(InotifyFD.add_callback).parameters) == ["self", "path", "mask", "callback", "id_"]
    assert list(inspect.signature(InotifyFD.remove_callbacks).parameters) == ["self", "callbacks"]
    assert list(inspect.signature(InotifyFD.handle_event).parameters) == ["self", "event"]
    # What is overridden is called.
    source = inspect.getsource(InotifyFD)
    assert "self._check_inotify_fd()" in source
    assert "self._close_resources()" in source


def test_an_event_has_the_fields_that_the_native_watch_reads():
    assert {name for name in EVENT if name not in inspect.get_annotations(InotifyEvent)} <= set(vars(InotifyEvent))


def test_a_watch_has_every_method_that_watchdog_calls():
    called = {name for name in vars(WatchCallback) if name.startswith("on_")}
    assert called == {name for name in vars(InotifyWatch) if name.startswith("on_")}
