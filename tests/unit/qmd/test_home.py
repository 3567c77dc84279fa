"""qmd's home folder: its configuration, and the files that are kept."""

import os

import pytest
import yaml

from memoryd_server.qmd.home import Collection, QmdHome

COLLECTIONS = (Collection("memory-root", "/w", "{MEMORY.md,memory/**/*.md}"), Collection("日", "/a b/ü", "**/*.md"))


@pytest.fixture
def home(tmp_path):
    def home(collections=COLLECTIONS, **environment):
        return QmdHome(tmp_path / "qmd", collections, {"PATH": "/bin", "HOME": str(tmp_path), **environment})

    return home


def written(home):
    return yaml.safe_load(home.index_yml.read_text("utf-8"))


def test_collections_are_written_once(home):
    made = home()
    assert made.prepare()
    assert written(made) == {
        "collections": {
            "memory-root": {"path": "/w", "pattern": "{MEMORY.md,memory/**/*.md}"},
            "日": {"path": "/a b/ü", "pattern": "**/*.md"},
        }
    }
    before = made.index_yml.stat().st_ino
    assert not made.prepare()
    assert made.index_yml.stat().st_ino == before
    assert [file.name for file in made.index_yml.parent.iterdir()] == ["index.yml"]


def test_files_written_by_qmd_stay_and_files_that_it_would_execute_do_not(home):
    made = home()
    made.prepare()
    theirs = {
        "models": {"embed": "hf:a/b/c.gguf"},
        "global_context": "notes",
        "collections": {"memory-root": {"path": "/w", "pattern": "x", "update": "rm -rf /"}, "old": {"path": "/o"}},
    }
    made.index_yml.write_text(yaml.safe_dump(theirs))
    assert made.prepare()
    after = written(made)
    assert (after["models"], after["global_context"]) == (theirs["models"], "notes")
    assert set(after["collections"]) == {"memory-root", "日"}
    assert "update" not in after["collections"]["memory-root"]
    assert made.models() == {"embed": "hf:a/b/c.gguf"}


@pytest.mark.parametrize("text", ["", "[1, 2]", "a: [", "\x00", "collections: nonsense"])
def test_a_configuration_that_is_none_is_replaced(home, text):
    made = home()
    made.prepare()
    made.index_yml.write_text(text)
    assert made.prepare()
    assert set(written(made)["collections"]) == {"memory-root", "日"}


def test_models_of_the_environment_win_and_are_not_handed_on(home):
    made = home(QMD_EMBED_MODEL="/m/e.gguf", QMD_RERANK_MODEL="", QMD_FORCE_CPU="1")
    made.prepare()
    assert written(made)["models"] == {"embed": "/m/e.gguf"}
    assert "QMD_EMBED_MODEL" not in made.environment
    assert made.environment["QMD_FORCE_CPU"] == "1"


def test_a_process_gets_its_own_folders_and_nothing_of_the_users(home, tmp_path):
    environment = home(XDG_CACHE_HOME="/theirs").environment
    folder = tmp_path / "qmd"
    assert environment == {
        "PATH": "/bin",
        "HOME": str(tmp_path),
        "XDG_CONFIG_HOME": str(folder / "xdg-config"),
        "QMD_CONFIG_DIR": str(folder / "xdg-config" / "qmd"),
        "XDG_CACHE_HOME": str(folder / "xdg-cache"),
        "NO_COLOR": "1",
        "PWD": str(folder),
    }


@pytest.mark.parametrize("where", ["home", "variable"])
def test_models_that_the_user_has_are_used(home, tmp_path, where):
    cache = tmp_path / ".cache" if where == "home" else tmp_path / "elsewhere"
    (cache / "qmd" / "models").mkdir(parents=True)
    (cache / "qmd" / "models" / "m.gguf").write_text("x")
    made = home(**({} if where == "home" else {"XDG_CACHE_HOME": str(cache)}))
    made.prepare()
    made.prepare()
    assert (made.cache_home / "qmd" / "models" / "m.gguf").read_text() == "x"


def test_models_of_its_own_are_left_alone(home, tmp_path):
    (tmp_path / ".cache" / "qmd" / "models").mkdir(parents=True)
    made = home()
    (made.cache_home / "qmd" / "models").mkdir(parents=True)
    made.prepare()
    assert not (made.cache_home / "qmd" / "models").is_symlink()


def test_nobody_else_may_look_in(home):
    made = home()
    made.prepare()
    assert [path.stat().st_mode & 0o077 for path in (made.folder, made.index_yml.parent, made.index_yml)] == [0, 0, 0]


def test_a_folder_that_cannot_be_written_is_an_error(home, tmp_path):
    (tmp_path / "qmd").write_text("a file stands there")
    with pytest.raises(OSError, match="qmd"):
        home().prepare()


def test_without_a_path_the_systems_own_is_used(tmp_path):
    assert QmdHome(tmp_path, (), {}).environment["PATH"] == os.defpath
