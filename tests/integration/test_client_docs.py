"""Every example of docs/client.md runs as it stands, each against a fresh broker."""

from __future__ import annotations

import ast
import asyncio
import inspect
import re
import types

import pytest

import homing
from homing.client import AckMode, RedeliveryPolicy
from tests.process import ROOT, Server

PAGE = (ROOT / "docs" / "client.md").read_text()
EXAMPLES = re.findall(r"^## (.+?)$|^```python\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)


def named_examples() -> list[tuple[str, str]]:
    found: list[tuple[str, str]] = []
    heading = ""
    for title, code in EXAMPLES:
        heading = title or heading
        if code:
            found.append((heading, code))
    return found


def test_the_page_has_examples() -> None:
    assert len(named_examples()) >= 8


#: "Tracing" makes subclasses of the client's parts, which compiled classes do not have.
RUNS = [pytest.param(code, id=title, marks=[pytest.mark.plain] * (title == "Tracing")) for title, code in named_examples()]


@pytest.mark.parametrize("code", RUNS)
def test_example(code: str, server: Server) -> None:
    program = compile(code, "docs/client.md", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    names = {"URL": server.url, "homing": homing, "AckMode": AckMode, "RedeliveryPolicy": RedeliveryPolicy, "asyncio": asyncio}
    if program.co_flags & inspect.CO_COROUTINE:
        asyncio.run(asyncio.wait_for(types.FunctionType(program, names)(), 30))
    else:
        exec(program, names)
