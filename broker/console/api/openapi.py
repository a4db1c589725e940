"""The OpenAPI document, made of the table of operations and its shapes."""

from __future__ import annotations

import re
from typing import Any, Final, TypeAlias

from pydantic import TypeAdapter

from . import answers
from .operations import JSON, OPERATIONS, Operation

#: Of JSON Schema and OpenAPI, as JSON.
Schema: TypeAlias = dict[str, Any]
ROOT: Final = "/api/v1"
#: Says which broker is meant, by its address.
BROKER: Final = "homing-broker"
_REF: Final = "#/components/schemas/{model}"
_PROBLEM: Final = {"application/problem+json": {"schema": {"$ref": _REF.format(model="Problem")}}}
#: What an operation may answer instead, whichever it is.
_PROBLEMS: Final = {
    "400": "What is asked for cannot be",
    "401": "Nobody, or somebody unknown, asks",
    "403": "A right is missing",
    "404": "What it is about is not there",
    "409": "Not as things are",
    "429": "Too many logins failed",
    "500": "The broker failed on this",
    "502": "The broker cannot be asked",
    "503": "The broker is away",
}


def document() -> Schema:
    """Of OpenAPI 3.1. It tells nothing of a broker, and no version but its own."""
    shapes = dict.fromkeys([answers.Problem, *(each.answers for each in OPERATIONS), *(each.asks for each in OPERATIONS)])
    named, schemas = TypeAdapter.json_schemas([(each, "validation", TypeAdapter(each)) for each in shapes], ref_template=_REF)
    schema_of = {shape: named[shape, "validation"] for shape in shapes}
    components = dict(schemas["$defs"])
    paths: dict[str, Schema] = {}
    for each in OPERATIONS:
        asked = components[_name_of(schema_of[each.asks])]
        paths.setdefault(ROOT + each.path, {})[each.method.lower()] = _operation(each, asked, schema_of[each.answers])
    used = _used(paths, components)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Homing console",
            "version": "1",
            "description": "What failed in a Homing broker, and what is done about it. Errors are problem details with the broker's codes."
            " Of a console of several brokers a header Homing-Broker has the address of the one that is meant; the first without.",
        },
        "security": [{"basic": []}, {"token": []}],
        "paths": paths,
        "components": {
            "schemas": {name: components[name] for name in sorted(used | {"Problem"})},
            "securitySchemes": {
                "basic": {"type": "http", "scheme": "basic", "description": "A user of the broker."},
                "token": {"type": "http", "scheme": "bearer", "description": "As `homing user token` makes it."},
            },
        },
    }


def _name_of(schema: Schema) -> str:
    return str(schema["$ref"]).rpartition("/")[2]


def _operation(operation: Operation, asked: Schema, answer: Schema) -> Schema:
    in_path = set(re.findall(r"{(\w+)}", operation.path))
    required, fields = asked.get("required", []), asked.get("properties", {})
    in_query = fields.keys() - in_path if operation.method == "GET" else set()
    parameters = [
        {"name": name, "in": "path" if name in in_path else "query", "required": name in required, "schema": _in_address(schema)}
        for name, schema in fields.items()
        if name in in_path | in_query
    ]
    found: Schema = {"operationId": operation.name, "summary": operation.summary}
    if parameters:
        found["parameters"] = parameters
    if operation.method == "POST" and fields.keys() - in_path:
        body = {
            "type": "object",
            "properties": {name: schema for name, schema in fields.items() if name not in in_path},
            "required": [name for name in required if name not in in_path],
            "additionalProperties": False,
        }
        found["requestBody"] = {"required": bool(body["required"]), "content": {JSON: {"schema": body}}}
    problems = {status: {"description": said, "content": _PROBLEM} for status, said in _PROBLEMS.items()}
    done: Schema = {operation.media: {"schema": answer}}
    if operation.streams:
        done = {operation.media: {"schema": {"type": "string", "contentMediaType": JSON, "contentSchema": answer}}}
    return {**found, "responses": {"200": {"description": "Done", "content": done}, **problems}}


def _in_address(schema: Schema) -> Schema:
    """No address has a null: what may be that is left out."""
    some = [each for each in schema.get("anyOf", ()) if each != {"type": "null"}]
    if len(some) != 1:
        return schema
    return {
        **{name: value for name, value in schema.items() if (name, value) not in (("anyOf", schema["anyOf"]), ("default", None))},
        **some[0],
    }


def _used(paths: Schema, components: Schema) -> set[str]:
    """Which schemas the paths refer to, those within others included: what an operation asks for stands in it."""
    found: set[str] = set()
    waiting: list[Any] = [paths]
    while waiting:
        match waiting.pop():
            case {"$ref": str(ref)} if (name := ref.rpartition("/")[2]) not in found:
                found.add(name)
                waiting.append(components[name])
            case dict() as each:
                waiting += each.values()
            case list() as each:
                waiting += each
    return found
