"""What the broker says where it cannot have its console beside it. That it has one: tests/integration/test_console_process.py."""

from __future__ import annotations

import asyncio
import logging

import pytest

from homing.broker.config.config import parse
from homing.broker.config.models import ConsoleSection
from homing.broker.config.source import ConfigError
from homing.broker.process import console_child
from homing.broker.process.console_child import ConsoleChild


@pytest.mark.plain
@pytest.mark.parametrize(
    ("extra", "said"), [("json", "nobody listens for it"), ("no_such_package", "no_such_package, which is not installed")]
)
async def test_it_goes_on_without_it(extra: str, said: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setattr(console_child, "_EXTRA", extra)
    child = ConsoleChild(ConsoleSection())
    with caplog.at_level(logging.WARNING, "homing"):
        assert child.start({}, asyncio.Event()) == {"console": "off"}
    assert said in caplog.text
    await child.close()


async def test_where_there_is_no_section_nothing_is_done() -> None:
    child = ConsoleChild(None)
    assert child.start({}, asyncio.Event()) == {}
    await child.close()


@pytest.mark.parametrize("host", ["0.0.0.0", "10.0.0.5", "broker.example"])
def test_it_is_for_this_machine_only(host: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse(f"console: {{host: {host}}}")
    assert "expected an address of this machine" in str(caught.value)
