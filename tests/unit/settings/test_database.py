"""`memoryd.store`: its URL selects the database, is a secret, and comes into force after a restart."""

import json

import pytest

from memoryd_server.app.config import agent_config, check_backends
from memoryd_server.errors import SettingsError
from memoryd_server.settings.resolved import changed_keys, keep_until_restart

URL = "postgresql://memoryd:s3cr3t@db1,db2/memoryd"


def store(**block):
    return {"memoryd": {"store": block}}


def driver(settings):
    return agent_config(settings.agent(""), settings).store_driver


def test_indexes_are_files_unless_the_url_is_set(home):
    assert driver(home.load()) == "sqlite"
    assert driver(home.load(own=store(url=" "))) == "sqlite"
    loaded = home.load(own=store(url=URL, passwordFile="/p", maxConnections=20))
    assert driver(loaded) == "postgres"
    found = loaded.service.store
    assert (found.url.get_secret_value(), str(found.password_file), found.max_connections) == (URL, "/p", 20)


def test_the_url_can_come_from_a_variable(home):
    home.environ["MEMORYD_STORE__URL"] = URL
    assert driver(home.load()) == "postgres"


def test_the_password_in_the_url_is_not_shown(home):
    loaded = home.load(own=store(url=URL))
    assert "s3cr3t" not in json.dumps(loaded.describe(), default=str) + repr(loaded)
    assert "s3cr3t" not in home.refused(own=store(url=URL.replace("postgresql", "mysql")))


@pytest.mark.parametrize("block", [{"url": "mysql://h/d"}, {"url": "h"}])
def test_values_that_are_none_are_refused(home, block):
    assert f"memoryd.store.{next(iter(block))}" in home.refused(own=store(**block))


def test_a_standby_has_a_url_of_the_same_form_which_is_a_secret_too(home):
    assert home.load(own=store(url=URL, standbyUrl=" ")).service.store.standby_url is None
    loaded = home.load(own=store(url="postgresql://h/d", standbyUrl=URL))
    assert loaded.service.store.standby_url.get_secret_value() == URL
    assert "s3cr3t" not in json.dumps(loaded.describe(), default=str) + repr(loaded)
    refusal = home.refused(own=store(url="postgresql://h/d", standbyUrl=URL.replace("postgresql", "mysql")))
    assert "memoryd.store.standbyUrl" in refusal
    assert "s3cr3t" not in refusal


def test_another_database_waits_for_a_restart(home):
    old, loaded = home.load(own=store(url=URL)), home.load(own=store(url=URL + "2"))
    new = keep_until_restart(old, loaded)
    assert changed_keys(old, new) == ()
    assert changed_keys(new, loaded) == ("memoryd.store.url",)


def test_memory_files_are_in_the_workspace_unless_url_and_setting_say_otherwise(home):
    for own in ({}, store(documents="database"), store(url=" "), store(url=URL, documents="folder")):
        settings = home.load(own=own)
        config = agent_config(settings.agent(""), settings)
        assert (config.documents_driver, config.roots.workspace) == ("folder", str(settings.agent("").workspace))
        assert config.memory_location == config.roots.workspace


def test_agents_with_documents_in_the_database_have_no_folder(home):
    settings = home.load(own=store(url=URL))
    config = agent_config(settings.agent(""), settings)
    assert config.documents_driver == "postgres"
    # No file can exist below it.
    assert config.roots.workspace == "/dev/null"


def test_extra_paths_are_reported_as_not_read(home):
    extra = {"memory": {"search": {"extraPaths": ["/notes", {"path": "/docs", "pattern": "*.md"}]}}}
    settings = home.load(own={**store(url=URL, documents="database"), **extra})
    config = agent_config(settings.agent(""), settings)
    assert config.roots.extras() == ()
    assert [(each.kind, each.wanted) for each in config.impairments] == [
        ("SOURCE_SKIPPED", "/notes"),
        ("SOURCE_SKIPPED", "/docs"),
    ]
    assert 'memoryd.store.documents to "folder"' in config.impairments[0].reason
    folder = home.load(own={**store(url=URL, documents="folder"), **extra})
    assert agent_config(folder.agent(""), folder).impairments == ()


def test_qmd_needs_files(home):
    qmd = {"memory": {"backend": "qmd"}}
    with pytest.raises(SettingsError, match=r'memoryd\.store\.documents to "folder"'):
        check_backends(home.load(own={**store(url=URL, documents="database"), **qmd}))
    check_backends(home.load(own={**store(url=URL, documents="folder"), **qmd}))
    check_backends(home.load(own=store(url=URL, documents="database")))
