"""The table of the scopes that methods require: complete, and the same in the documentation."""

import re
from pathlib import Path

import pytest

from memoryd.v1 import entry_service_pb2, mcp_service_pb2, memory_service_pb2
from memoryd_server.access import Grant, Scope
from memoryd_server.access.grants import expand_scopes
from memoryd_server.errors import ScopeMissing
from memoryd_server.rpc.authorization import require_scope
from memoryd_server.rpc.method_scopes import METHOD_SCOPES, METHODS_BY_SCOPE

OPERATIONS = Path(__file__).parents[3] / "docs" / "operations.md"


def declared():
    """The methods of the contract, without a leading slash."""
    for module in (memory_service_pb2, entry_service_pb2, mcp_service_pb2):
        for service in module.DESCRIPTOR.services_by_name.values():
            yield from (f"{service.full_name}/{method.name}" for method in service.methods)


def test_every_method_of_the_contract_is_in_the_table_once():
    listed = [method for methods in METHODS_BY_SCOPE.values() for method in methods]
    assert sorted(method for method in listed if method.startswith("memoryd.")) == sorted(declared())
    assert len(listed) == len(set(listed))


def test_the_documentation_has_the_same_table():
    text = OPERATIONS.read_text(encoding="utf-8")
    section = text.partition("\n### Scopes\n")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| `(\w+)` \| ([^|]+) \| ([^|]+) \|$", section, re.MULTILINE)
    assert [row[0] for row in rows] == list(METHODS_BY_SCOPE)
    for scope, included, methods in rows:
        shown = [
            f"{service}/{name}"
            for service, names in re.findall(r"(\w+): ([^;]+)", methods)
            for name in re.findall(r"`(\w+)`", names)
        ]
        assert shown == [method.rpartition(".")[2] for method in METHODS_BY_SCOPE[Scope(scope)]]
        assert set(re.findall(r"\w+", included)) == expand_scopes([Scope(scope)]) - {scope}


def test_every_scope_includes_read():
    """MCP sessions and the metrics over HTTP need no more, and are not checked for it."""
    assert all(Scope.READ in expand_scopes([scope]) for scope in Scope)


def test_a_method_without_an_entry_requires_admin():
    method = "/memoryd.v1.MemoryService/NotYetListed"
    assert METHOD_SCOPES[method] is Scope.ADMIN
    with pytest.raises(ScopeMissing, match=r"'admin', which MemoryService\.NotYetListed requires") as missing:
        require_scope(method, Grant(scopes=expand_scopes([Scope.EDIT])))
    assert missing.value.metadata == {"scope": "admin"}
    require_scope(method, Grant())
