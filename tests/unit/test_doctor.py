"""Advice of ``doctor``; on real consumers, integration/test_instrumented.py."""

from __future__ import annotations

from typing import Any

import pytest

from homing.broker.cli.doctor import _advice


@pytest.mark.parametrize(
    ("queue", "advised"),
    [("celery@host.celery.pidbox", False), ("celeryev.0a1b", False), ("celery", True), ("my.celery.pidbox.dead", True)],
)
def test_what_nobody_set_up_gets_no_advice(queue: str, advised: bool) -> None:
    nothing = dict.fromkeys(("settled_when_given", "instrumented", "sends", "queue_keeps", "protocol"))
    reports = {"with_its_settlement": 0, "after_acknowledgement": 0}
    consumer: Any = {**nothing, "queue": queue, "product": "py-amqp", "prefetch": 4, "reports": reports}
    assert bool(list(_advice(consumer, True, False))) is advised
