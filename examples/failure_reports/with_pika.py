"""A pika consumer whose failures have reasons: ``channel.basic_consume("orders", reporting(handle))``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pika

from examples.failure_reports.report import EXCHANGE, failure


def reporting(handle: Callable[[bytes], None]) -> Callable[[Any, Any, Any, bytes], None]:
    def on_message(channel: Any, method: Any, properties: Any, body: bytes) -> None:
        try:
            handle(body)
        except Exception as error:
            headers = {"delivery_tag": method.delivery_tag, **failure(error, retryable=not isinstance(error, ValueError))}
            channel.basic_publish(EXCHANGE, "", b"", pika.BasicProperties(headers=headers))
            channel.basic_nack(method.delivery_tag)
        else:
            channel.basic_ack(method.delivery_tag)

    return on_message
