"""Nobody takes a message within the queue's ``x-message-ttl`` of five seconds: it goes to the dead-letter exchange, reason ``expired``."""

from __future__ import annotations

import time

from examples.rabbitmq_dead_letters.common import opened, publish, set_up, tell

if __name__ == "__main__":
    with opened() as channel:
        set_up(channel, x_message_ttl=5000)
        began = time.monotonic()
        publish(channel, "too late")
        tell(channel, began)
