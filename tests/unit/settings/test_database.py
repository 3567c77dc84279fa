"""`memoryd.store`: its URL selects the database, is a secret, and comes into force after a restart."""

import json

import pytest

from memoryd_server.app.config import agent_config
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


def test_another_database_waits_for_a_restart(home):
    old, loaded = home.load(own=store(url=URL)), home.load(own=store(url=URL + "2"))
    new = keep_until_restart(old, loaded)
    assert changed_keys(old, new) == ()
    assert changed_keys(new, loaded) == ("memoryd.store.url",)
