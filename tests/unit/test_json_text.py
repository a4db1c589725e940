"""Whatever is written as JSON is JSON, to readers that know nothing but the standard, and bytes and numbers can be read back."""

from __future__ import annotations

import json
import math
from typing import Any, NoReturn

import pytest
from hypothesis import given
from hypothesis import strategies as st

from homing.broker.cli.values import property_given
from homing.journal import json_text

texts = st.text(st.characters(exclude_categories=()))
leaves = st.none() | st.booleans() | st.integers() | st.floats() | st.binary() | texts
values = st.recursive(leaves, lambda inner: st.lists(inner) | st.dictionaries(texts, inner), max_leaves=8)


def never(constant: str) -> NoReturn:
    raise AssertionError(f"{constant} is no JSON")


@given(values)
def test_any_value_is_json_in_utf8(value: Any) -> None:
    json.loads(json_text.dumps(value).encode(), parse_constant=never)


@given(st.binary() | st.sampled_from([math.inf, -math.inf]))
def test_what_says_what_it_is_is_read_back(value: bytes | float) -> None:
    assert json_text.read_back(json.loads(json_text.dumps(value))) == value


def test_what_says_nothing_is_a_map() -> None:
    for value in ({"base64": "?"}, {"base64": 1}, {"base64": "", "more": 1}, {"float": "1"}, {}):
        assert json_text.read_back(value) is None
    assert str(json_text.read_back({"float": "NaN"})) == "nan"


def test_a_property_is_given_as_it_was_shown() -> None:
    for value in (b"", b"\x00\xff", b"plain", "text", 7, True, None):
        assert property_given(f"p:={json_text.dumps(value)}") == ("p", value)
    with pytest.raises(Exception, match="base64"):
        property_given('p:={"other": 1}')
