"""Patches of bodies: the examples of RFC 7396, appendix A; of JSON Patch, which a library does, how it is called."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from homing.client import UsageError
from homing.client.patch import Number, Patch, merged, read, written


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
    assert Patch({"of": None}).applied(body) == '{"name":"Käthe","n":12345678901234567890}'.encode()
    operations = [{"op": "test", "path": "/of/0", "value": 1}, {"op": "add", "path": "/of/-", "value": {"a/b": 1}}]
    assert Patch(operations).applied(body) == '{"name":"Käthe","of":[1,2.5,{"a/b":1}],"n":12345678901234567890}'.encode()


NUMBERS = ["19.999999999999999999", "1e400", "1E-400", "-0", "-0.0", "1.50", "1e99999999999999999999", "9" * 5_000, "0.1000"]


@pytest.mark.parametrize("number", NUMBERS)
def test_numbers_are_as_they_were_written(number: str) -> None:
    body = f'{{"p": {number}, "of": [{number}], "a": 1}}'.encode()
    assert Patch({"a": 2}).applied(body) == f'{{"p":{number},"of":[{number}],"a":2}}'.encode()
    moved = [{"op": "move", "from": "/p", "path": "/q"}, {"op": "copy", "from": "/of", "path": "/a"}]
    assert Patch(moved).applied(body) == f'{{"of":[{number}],"a":[{number}],"q":{number}}}'.encode()
    assert Patch(f'{{"a": {number}}}'.encode()).applied(b"{}") == f'{{"a":{number}}}'.encode()
    assert Patch(f'[{{"op": "add", "path": "/a", "value": [{number}]}}]'.encode()).applied(b"{}") == f'{{"a":[{number}]}}'.encode()
    assert written(read(f'[{number}, {{"a": []}}]'), indent=2) == f'[\n  {number},\n  {{\n    "a": []\n  }}\n]'


@pytest.mark.parametrize(("there", "tested"), [("5", 5.0), ("1e2", 100), ("0.10", 0.1), ("-0", 0), ("1e400", Number("10e399"))])
def test_a_test_compares_by_number(there: str, tested: Any) -> None:
    assert Patch([{"op": "test", "path": "/0", "value": tested}]).applied(f"[{there}]".encode()) == f"[{there}]".encode()


@pytest.mark.parametrize(("there", "tested"), [("20.0", "19.999999999999999999"), ("1", "true"), ("1", '"1"'), ("[1]", "[2]")])
def test_a_test_that_fails_says_what_is_not_so(there: str, tested: str) -> None:
    patch = Patch(f'[{{"op": "test", "path": "", "value": {there}}}, {{"op": "test", "path": "", "value": {tested}}}]'.encode())
    with pytest.raises(UsageError, match=re.escape(f"operation 2: it is not {tested}")):
        patch.applied(there.encode())


def test_a_lone_surrogate_stays_an_escape() -> None:
    assert Patch({"a": 1}).applied(b'{"s": "\\ud800"}') == b'{"s":"\\ud800","a":1}'


def test_a_patch_is_the_same_for_each_body() -> None:
    patch = Patch([{"op": "add", "path": "/a", "value": {}}, {"op": "add", "path": "/a/b", "value": 1}, {"op": "remove", "path": "/c"}])
    assert [patch.applied(b'{"c": %d}' % number) for number in range(2)] == [b'{"a":{"b":1}}'] * 2


@pytest.mark.parametrize("patch", [{"b": 1}, [{"op": "add", "path": "/b", "value": 1}]])
@pytest.mark.parametrize(
    "body",
    [
        b"no json",
        b"\xff",
        b'{"a": NaN}',
        b"[Infinity]",
        b"[-Infinity]",
        b'{"a": 1, "a": 2}',
        b'[{"of": {"a": 1, "a": 1}}]',
        b"[" * 100_000,
        b'{"a":' + b"[" * 2_000 + b"]" * 2_000 + b"}",
    ],
)
def test_a_body_that_a_patch_would_spoil(body: bytes, patch: Any) -> None:
    with pytest.raises(UsageError) as refused:
        Patch(patch).applied(body)
    assert (refused.value.code, "this body: " in refused.value.message) == ("patch-failed", True)


def test_what_is_refused_says_what_to_do() -> None:
    with pytest.raises(UsageError, match=r'an object has "ä" twice.*; give a whole body, not a patch'):
        Patch({}).applied('{"ä": 1, "ä": 2}'.encode())
    with pytest.raises(UsageError, match=r"NaN is no number of JSON.*; write a JSON Patch"):
        Patch(b'{"a": NaN}')


@pytest.mark.parametrize(
    ("body", "patch"),
    [
        (b"{}", [{"op": "remove", "path": "/a"}]),
        (b"{}", [{"op": "test", "path": "", "value": 1}]),
        (b"[1]", [{"op": "replace", "path": "/x", "value": 1}]),
        (b"[1]", [{"op": "add", "path": "/0/x", "value": 1}]),
        (b"[1e99999999999999999999]", [{"op": "test", "path": "/0", "value": 1}]),
    ],
)
def test_a_patch_that_does_not_fit(body: bytes, patch: Any) -> None:
    with pytest.raises(UsageError) as refused:
        Patch(patch).applied(body)
    assert refused.value.code == "patch-failed"


@pytest.mark.parametrize(
    "patch",
    [
        *(b"no json", b"7", b'"text"', b"null", b'{"a": 1, "a": 2}', b'{"a": Infinity}', b"[" * 100_000),
        *({"a": float("nan")}, {"a": b"bytes"}, {1: 2}, [7], [{"path": "/a"}]),
        [{"op": "frob", "path": "/a"}],
        [{"op": "add", "path": "/a", "value": 1}, {"op": "remove", "path": "a"}],
        [{"op": "remove", "path": 7}],
        [{"op": "remove"}],
        [{"op": "add", "path": "/a"}],
        [{"op": "test", "path": "/a"}],
        [{"op": "move", "path": "/a"}],
        [{"op": "copy", "path": "/a", "from": "b"}],
        [{"op": "copy", "path": "/a", "from": 7}],
    ],
)
def test_what_is_no_patch_is_refused_before_any_body(patch: Any) -> None:
    with pytest.raises(UsageError) as refused:
        Patch(patch)
    assert refused.value.code == "no-patch"
