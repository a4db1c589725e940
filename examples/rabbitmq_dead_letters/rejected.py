"""A consumer rejects a message and does not want it back: it goes to the dead-letter exchange, reason ``rejected``."""

from __future__ import annotations

import time

from examples.rabbitmq_dead_letters.common import NORMAL_QUEUE, next_message, opened, publish, set_up, tell

if __name__ == "__main__":
    with opened() as channel:
        set_up(channel)
        began = time.monotonic()
        publish(channel, "cannot be handled")
        method, _, _ = next_message(channel, NORMAL_QUEUE)
        channel.basic_reject(method.delivery_tag, requeue=False)
        tell(channel, began)
