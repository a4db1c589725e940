"""Patches of bodies: the examples of RFC 7396, appendix A; of JSON Patch, which a library does, how it is called."""

from __future__ import annotations

import json
from typing import Any

import pytest

from homing.client import UsageError
from homing.client.patch import merged, patched


@pytest.mark.parametrize(
    ("target", "patch", "result"),
    [
        ('{"a":"b"}', '{"a":"c"}', '{"a":"c"}'),
        ('{"a":"b"}', '{"b":"c"}', '{"a":"b","b":"c"}'),
        ('{"a":"b"}', '{"a":null}', "{}"),
        ('{"a":"b","b":"c"}', '{"a":null}', '{"b":"c"}'),
        ('{"a":["b"]}', '{"a":"c"}', '{"a":"c"}'),
        ('{"a":"c"}', '{"a":["b"]}', '{"a":["b"]}'),
        ('{"a":{"b":"c"}}', '{"a":{"b":"d","c":null}}', '{"a":{"b":"d"}}'),
        ('{"a":[{"b":"c"}]}', '{"a":[1]}', '{"a":[1]}'),
        ('["a","b"]', '["c","d"]', '["c","d"]'),
        ('{"a":"b"}', '["c"]', '["c"]'),
        ('{"a":"foo"}', "null", "null"),
        ('{"a":"foo"}', '"bar"', '"bar"'),
        ('{"e":null}', '{"a":1}', '{"e":null,"a":1}'),
        ("[1,2]", '{"a":"b","c":null}', '{"a":"b"}'),
        ("{}", '{"a":{"bb":{"ccc":null}}}', '{"a":{"bb":{}}}'),
    ],
)
def test_merge_patch(target: str, patch: str, result: str) -> None:
    assert merged(json.loads(target), json.loads(patch)) == json.loads(result)


def test_what_is_written_is_the_document_and_no_spaces() -> None:
    body = '{"name": "Käthe", "of": [1, 2.5], "n": 12345678901234567890}'.encode()
    assert patched(body, {"of": None}) == '{"name":"Käthe","n":12345678901234567890}'.encode()
    operations = [{"op": "test", "path": "/of/0", "value": 1}, {"op": "add", "path": "/of/-", "value": {"a/b": 1}}]
    assert patched(body, operations) == '{"name":"Käthe","of":[1,2.5,{"a/b":1}],"n":12345678901234567890}'.encode()


@pytest.mark.parametrize(
    ("body", "patch"),
    [
        (b"no json", {}),
        (b"\xff", {}),
        (b"{}", [{"op": "remove", "path": "/a"}]),
        (b"{}", [{"op": "test", "path": "", "value": 1}]),
        (b"{}", [{"path": "/a"}]),
        (b"{}", [7]),
        (b"[1]", [{"op": "replace", "path": "/x", "value": 1}]),
        (b'{"a": 1}', [{"op": "remove", "path": "a"}]),
    ],
)
def test_a_patch_that_does_not_fit(body: bytes, patch: Any) -> None:
    with pytest.raises(UsageError) as refused:
        patched(body, patch)
    assert refused.value.code == "patch-failed"
