"""A queue of ``x-max-length: 5`` gets a sixth message: the oldest goes to the dead-letter exchange, reason ``maxlen``."""

from __future__ import annotations

import time

from examples.rabbitmq_dead_letters.common import opened, publish, set_up, tell

if __name__ == "__main__":
    with opened() as channel:
        set_up(channel, x_max_length=5)
        began = time.monotonic()
        for number in range(1, 7):
            publish(channel, f"message {number}")
        tell(channel, began)
