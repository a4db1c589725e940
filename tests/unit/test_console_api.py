"""The API's document: made of the code, kept beside the manual, and complete."""

from __future__ import annotations

import json
import os

from homing.broker.console.api.openapi import document
from homing.broker.console.api.operations import OPERATIONS
from tests.process import ROOT

KEPT = ROOT / "docs" / "openapi.json"


def test_the_document_that_is_kept_is_the_one_that_is_served() -> None:
    made = json.dumps(document(), indent=1, ensure_ascii=False) + "\n"
    if "HOMING_APPROVE" in os.environ:
        KEPT.write_text(made)
    assert KEPT.read_text() == made, "it has changed; if that is meant: HOMING_APPROVE=1 and this test, then read the difference"


def test_all_that_it_refers_to_is_in_it() -> None:
    text, said = json.dumps(document()), document()
    references = {part.partition('"')[0] for part in text.split("#/components/schemas/")[1:]}
    assert references == said["components"]["schemas"].keys()
    names = [each.name for each in OPERATIONS]
    assert len(set(names)) == len(names) == sum(len(each) for each in said["paths"].values())
    for each in OPERATIONS:
        (parameters,) = [said["paths"]["/api/v1" + each.path][each.method.lower()].get("parameters", [])]
        in_path = {parameter["name"] for parameter in parameters if parameter["in"] == "path"}
        assert all(f"{{{name}}}" in each.path for name in in_path)
        assert each.path.count("{") == len(in_path)
