"""The tools' schemas are the contract's: what fits them is a request, and their words are its comments."""

import json
import re
from pathlib import Path

import pytest
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.json_format import ParseDict

from memoryd.v1 import memory_service_pb2 as pb
from memoryd_server.sessions.recall import TOOL_NAMES, tool_schemas

PROTO = Path(__file__).parents[3] / "protos" / "memoryd" / "v1" / "memory_service.proto"
REQUESTS = {"memory_search": pb.MemorySearchRequest, "memory_get": pb.MemoryGetRequest}
TYPES = {FieldDescriptor.TYPE_STRING: "string", FieldDescriptor.TYPE_INT32: "integer"}
TYPES[FieldDescriptor.TYPE_DOUBLE] = "number"


def schema(name):
    [tool] = tool_schemas([name])
    return json.loads(tool.parameters_json)


def field_of(name, key):
    return next(field for field in REQUESTS[name].DESCRIPTOR.fields if field.json_name == key)


def properties():
    return [
        pytest.param(name, key, value, id=f"{name}.{key}")
        for name in TOOL_NAMES
        for key, value in schema(name)["properties"].items()
    ]


def test_only_the_tools_that_are_asked_for_are_given_the_search_first():
    assert [tool.name for tool in tool_schemas(["memory_get", "exec", "memory_search"])] == list(TOOL_NAMES)
    assert [tool.name for tool in tool_schemas(["memory_get"])] == ["memory_get"]
    assert tool_schemas([]) == ()


@pytest.mark.parametrize("name", TOOL_NAMES)
def test_a_schema_is_an_object_that_takes_nothing_unknown(name):
    found = schema(name)
    assert (found["type"], found["additionalProperties"]) == ("object", False)
    assert set(found["required"]) <= set(found["properties"])
    assert found["required"]


@pytest.mark.parametrize(("name", "key", "value"), properties())
def test_a_property_is_a_field_of_the_request_and_of_its_type(name, key, value):
    field = field_of(name, key)
    assert value["type"] == TYPES[field.type]


@pytest.mark.parametrize(("name", "key", "value"), properties())
def test_a_description_is_the_contract_s_comment(name, key, value):
    words = " ".join(re.sub(r"\n\s*//", "", PROTO.read_text("utf-8")).split())
    assert value["description"] in words
    assert value["description"].endswith(".")


@pytest.mark.parametrize("name", TOOL_NAMES)
def test_nothing_that_the_gateway_has_to_answer_for_is_left_to_the_model(name):
    assert not {"agentId", "sessionKey", "minRevision", "now"} & set(schema(name)["properties"])


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("memory_search", {"query": "who?", "maxResults": 3, "minScore": 0.5}),
        ("memory_get", {"path": "MEMORY.md", "startLine": 2, "lineCount": 3, "from": 2, "lines": 3}),
    ],
)
def test_arguments_are_the_request_in_json(name, arguments):
    request = ParseDict(arguments, REQUESTS[name]())
    assert {field.json_name for field, _ in request.ListFields()} == set(arguments)
    assert set(arguments) == set(schema(name)["properties"])
